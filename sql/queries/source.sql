-- Heartbeats, and alerts that hold only as long as they are sent again.

-- name: LapsedIncidents :many
-- Incidents with firing alerts that hold no longer. now() and not clock_timestamp(): an index can use it.
select incident_id from alert where status = 'firing' and ends_at <= now() group by incident_id order by min(ends_at), incident_id limit @most;

-- name: LapsedAlerts :many
select * from alert where incident_id = @incident_id and status = 'firing' and ends_at <= clock_timestamp() order by id;

-- name: ResolveLapsed :exec
-- Leaves last_seen_at alone: nobody has said anything.
update alert set status = 'resolved' where id = any(@ids::uuid[]);

-- name: ListHeartbeats :exec
-- Notes that a file names the heartbeats. One write a minute each is enough, however many replicas there are.
insert into heartbeat (name, since, listed_at)
select n.name, clock_timestamp(), clock_timestamp() from unnest(@names::text[]) as n(name) order by n.name
on conflict (name) do update set listed_at = clock_timestamp() where heartbeat.listed_at < clock_timestamp() - interval '1 minute';

-- name: DropHeartbeats :exec
-- Forgets heartbeats that no file has named for a while. Put back later, they begin anew.
delete from heartbeat where not name = any(@names::text[]) and listed_at < clock_timestamp() - @after::interval;

-- name: LockMissedHeartbeats :many
-- Heartbeats that did not call in time and of which nobody was told, or only an incident that a person has resolved meanwhile, a
-- while ago. Seconds, since there is no array of intervals to pass.
select h.name, greatest(h.called_at, h.since)::timestamptz as last_at, (h.called_at is not null)::boolean as called
from heartbeat h
join (select unnest(@names::text[]) as name, unnest(@keys::text[]) as key, unnest(@seconds::double precision[]) as every) f on f.name = h.name
where greatest(h.called_at, h.since) + make_interval(secs => f.every) < clock_timestamp() and (h.missed_at is null or not exists (
  select 1 from incident i where i.key = f.key and (i.state <> 'resolved' or i.resolved_at > clock_timestamp() - @again::interval)))
order by h.name limit @most for update of h skip locked;

-- name: HeartbeatAnnounced :exec
update heartbeat set missed_at = coalesce(missed_at, clock_timestamp()) where name = @name;

-- name: LockHeartbeat :many
select missed_at from heartbeat where name = @name for update;

-- name: CallHeartbeat :exec
insert into heartbeat (name, since, listed_at, called_at) values (@name, clock_timestamp(), clock_timestamp(), clock_timestamp())
on conflict (name) do update set called_at = clock_timestamp(), missed_at = null;

-- name: HeartbeatIsMissed :one
select exists (select 1 from heartbeat where name = @name and missed_at is not null)::boolean as missed;

-- name: Heartbeats :many
select * from heartbeat order by name;
