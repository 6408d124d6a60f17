-- Overrides of schedules. Those that are over stay: who was on call is asked for long after.

-- name: LockOverrides :exec
-- One at a time, so that the order in which they were made is the order of created_at.
select pg_advisory_xact_lock(hashtext('tocsin.schedule_override'));

-- name: AddOverride :exec
insert into schedule_override (id, created_at, schedule, user_id, instead_of, gaps, starts_at, ends_at, reason, author, swap_id)
values (@id, clock_timestamp(), @schedule, @user_id, @instead_of, @gaps, @starts_at, @ends_at, @reason, @author, @swap_id);

-- name: CountOverrides :one
-- Of one schedule, those that are not over.
select count(*)::bigint as overrides from schedule_override where schedule = @schedule and ends_at > now();

-- name: EndOverride :many
-- One that has not begun ends before it does; both halves of a swap end together.
update schedule_override o set starts_at = least(o.starts_at, c.at), ends_at = c.at, ended_by = @ended_by::text
from (select clock_timestamp() as at) c
where o.schedule = @schedule and o.ends_at > c.at
  and (o.id = @id or o.swap_id = (select s.swap_id from schedule_override s where s.id = @id))
returning o.id;

-- name: Overlay :many
-- The overrides that hold at some instant of a span, in the order in which they were made; and, on each row, which copies of calendars there
-- are. There is always a row: one without an override, where there is none.
select c.versions::jsonb as versions, o.id, o.created_at, o.schedule, o.user_id, o.instead_of, o.gaps, o.starts_at, o.ends_at
from (select coalesce(jsonb_object_agg(id, version), '{}') as versions from calendar where version > 0) c
left join schedule_override o on o.ends_at > @since and o.starts_at <= @until and o.ends_at > o.starts_at
order by o.created_at, o.id;

-- name: ReadOverride :one
select sqlc.embed(schedule_override), clock_timestamp()::timestamptz as now from schedule_override where schedule = @schedule and id = @id;

-- name: PageOverrides :many
select sqlc.embed(schedule_override), clock_timestamp()::timestamptz as now
from schedule_override where schedule = @schedule and id < @before and (@ended::boolean or ends_at > clock_timestamp()) order by id desc limit @most;

-- name: GapsTold :many
select schedule, begins_at from gap_told;

-- name: TellGap :execrows
-- Notes the next gap, unless another replica has just noted the same.
insert into gap_told (schedule, begins_at, at) values (@schedule, @begins_at, clock_timestamp())
on conflict (schedule) do update set begins_at = excluded.begins_at, at = excluded.at where gap_told.begins_at <> excluded.begins_at;

-- name: ForgetGap :exec
delete from gap_told where schedule = @schedule;

-- name: GapTold :one
select exists (select 1 from gap_told where schedule = @schedule)::boolean as told;
