-- name: ClockTimestamp :one
select clock_timestamp()::timestamptz as now;


-- name: AddAudit :exec
insert into audit (id, at, actor, action, object, detail) values (@id, clock_timestamp(), @actor, @action, @object, @detail);

-- name: Accounts :many
-- Of several of one person in one chat the one that was linked last comes first, and is the one that is used.
select * from account order by user_id, provider, linked_at desc;

-- name: Notify :exec
select pg_notify(@channel, @payload);

-- name: Heartbeat :exec
insert into replica (id, started_at, seen_at, checksum, notifiers, version, file_error, read_at)
values (@id, clock_timestamp(), clock_timestamp(), @checksum, @notifiers::text[], @version, @file_error, clock_timestamp())
on conflict (id) do update set seen_at = excluded.seen_at, notifiers = excluded.notifiers, version = excluded.version, file_error = excluded.file_error,
  checksum = excluded.checksum, read_at = case when replica.checksum = excluded.checksum then coalesce(replica.read_at, excluded.read_at) else excluded.read_at end;

-- name: RemoveReplica :exec
delete from replica where id = @id;

-- name: UnannouncedDead :many
-- A dead row is its own outbox: taken under a lock that other replicas skip.
select d.*, coalesce(i.topic, '')::text as incident_topic, coalesce(i.criticality, '')::text as incident_criticality, coalesce(i.title, '')::text as incident_title
from delivery d left join incident i on i.id = d.incident_id
where d.announced_at is null and d.state in ('rejected', 'unreachable', 'held', 'exhausted', 'expired')
order by d.settled_at limit @most for update of d skip locked;

-- name: Announced :exec
update delivery set announced_at = clock_timestamp() where id = any(@ids::uuid[]) and announced_at is null;

-- name: AddDecision :exec
insert into decision (id, delivery_id, at, actor, action, reason, from_state, effect)
values (@id, @delivery_id, clock_timestamp(), @actor, @action, @reason, @from_state, @effect);
