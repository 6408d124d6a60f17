-- Imported calendars.

-- name: ListCalendars :exec
-- One that is new is fetched now.
insert into calendar (id, next_at, listed_at) select unnest(@ids::text[]), clock_timestamp(), clock_timestamp()
on conflict (id) do update set listed_at = excluded.listed_at where calendar.listed_at < excluded.listed_at - interval '1 minute';

-- name: PurgeCalendars :exec
-- Those that no file has named for so long.
delete from calendar where listed_at < clock_timestamp() - @after::interval;

-- name: ClaimCalendars :many
-- Each is fetched by one replica at a time.
with due as materialized (
  select id from calendar where id = any(@ids::text[]) and next_at <= clock_timestamp() order by next_at, id limit @most for update skip locked
)
update calendar c set next_at = clock_timestamp() + @lease::interval, attempt = attempt + 1
from due where c.id = due.id
returning c.id, c.attempt, c.tries;

-- name: PutCalendar :execrows
-- A copy that says the same keeps its version: whatever was made of it stays.
update calendar set
  version = case when version = 0 or events <> @events::jsonb or problems <> @problems::text[] then nextval('calendar_version') else version end,
  events = @events::jsonb, problems = @problems::text[], fetched_at = clock_timestamp(), next_at = clock_timestamp() + @again::interval, tries = 0, failed_at = null, error = ''
where id = @id and attempt = @attempt;

-- name: CalendarFailed :execrows
-- The copy stays in force.
update calendar set tries = tries + 1, failed_at = coalesce(failed_at, clock_timestamp()), error = @error, next_at = clock_timestamp() + @again::interval
where id = @id and attempt = @attempt;

-- name: CalendarStates :many
select id, fetched_at, problems, tries, failed_at, error from calendar order by id;

-- name: CalendarCopies :many
select id, version, events, problems from calendar where id = any(@ids::text[]) and version > 0;

-- name: CalendarsTold :many
select schedule, layer, what from calendar_told order by schedule, layer;

-- name: TellCalendar :execrows
insert into calendar_told (schedule, layer, what, at) values (@schedule, @layer, @what, clock_timestamp())
on conflict (schedule, layer) do update set what = excluded.what, at = excluded.at where calendar_told.what <> excluded.what;

-- name: ForgetCalendar :exec
delete from calendar_told where schedule = @schedule and layer = @layer;

-- name: CalendarTold :one
select exists (select 1 from calendar_told where schedule = @schedule and layer = @layer)::boolean as told;
