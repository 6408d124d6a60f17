-- What happened, for those who listen.

-- name: AddEvents :exec
insert into event (at, type, topic, body)
select clock_timestamp(), v.type, v.topic, v.body::json
from (select unnest(@types::text[]) as type, unnest(@topics::text[]) as topic, unnest(@bodies::text[]) as body) v;

-- name: LockEventNumbers :exec
-- One numbers at a time, and its numbers are visible before the next one begins.
select pg_advisory_xact_lock(hashtext('tocsin event numbers'));

-- name: NumberEvents :execrows
-- A statement of its own after the lock: it must see what the one before has numbered.
update event e set sequence = n.sequence
from (
  select o.id, nextval('event_number') as sequence from (select u.id from event u where u.sequence is null order by u.id limit @most) o
) n
where e.id = n.id and e.sequence is null;

-- name: EventsAfter :many
select sequence::bigint as sequence, type, topic, body::text as body from event where sequence > @after::bigint order by sequence limit @most;

-- name: EventBounds :one
select coalesce((select min(sequence) from event where sequence is not null), 0)::bigint as first,
       coalesce((select max(sequence) from event where sequence is not null), 0)::bigint as last;

-- name: PurgeEvents :execrows
-- The oldest by number are the oldest by time, but for moments. The last one stays: it says up to where one can have heard.
delete from event where ctid = any(array(
  select o.ctid from (select e.ctid, e.at from event e where e.sequence is not null order by e.sequence limit @most) o where o.at < now() - @age::interval))
  and sequence < (select max(m.sequence) from event m where m.sequence is not null);

-- name: NewestChecksum :one
-- The checksum of the file that a live replica has taken last.
select coalesce((select checksum from replica where seen_at > clock_timestamp() - @alive::interval order by read_at desc nulls last, id limit 1), '')::text as checksum;

-- name: OnCallTold :many
select * from oncall_told;

-- name: TellOnCall :execrows
-- Writes who is on call, unless another replica has just written the same.
insert into oncall_told (schedule, users, layer, at) values (@schedule, @users::text[], @layer, clock_timestamp())
on conflict (schedule) do update set users = excluded.users, layer = excluded.layer, at = excluded.at
where oncall_told.users <> excluded.users;

-- name: ForgetOnCall :exec
delete from oncall_told where not schedule = any(@schedules::text[]);
