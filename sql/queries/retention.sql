-- What is over and old enough goes, in small transactions that skip what another replica has. Nothing unsettled, nothing
-- dead that nobody has decided on, and nothing of an incident that is not resolved goes, however old it is.

-- name: OldIncidents :many
-- Resolved incidents, the oldest first, locked.
select i.id, i.resolved_at::timestamptz as resolved_at from incident i
where i.state = 'resolved' and i.resolved_at < now() - @age::interval and (i.resolved_at, i.id) > (@after::timestamptz, @after_id::uuid)
  and not exists (select 1 from delivery d where d.incident_id = i.id
    and (d.settled_at is null or d.state in ('rejected', 'unreachable', 'held', 'exhausted', 'expired')))
order by i.resolved_at, i.id limit @most for update skip locked;

-- name: StillOver :many
-- Those of locked incidents that nothing keeps: a statement of its own, which sees what was committed before the lock.
select i.id from incident i
where i.id = any(@ids::uuid[]) and i.state = 'resolved' and not exists (select 1 from delivery d where d.incident_id = i.id
    and (d.settled_at is null or d.state in ('rejected', 'unreachable', 'held', 'exhausted', 'expired')));

-- name: PurgeAttemptsOf :execrows
-- Whole months go at once, see drop_attempt_partitions; these go with what they belong to, so that no view shows half of it.
delete from attempt where id = any(array(
  select a.id from attempt a
  where a.delivery_id = any(@deliveries::uuid[]) or a.delivery_id = any(array(select d.id from delivery d where d.incident_id = any(@incidents::uuid[]))) limit @most));

-- name: PurgeAlertsOf :execrows
delete from alert where ctid = any(array(select x.ctid from alert x where x.incident_id = any(@incidents::uuid[]) limit @most));

-- name: PurgeTimelineOf :execrows
delete from timeline where ctid = any(array(select x.ctid from timeline x where x.incident_id = any(@incidents::uuid[]) limit @most));

-- name: PurgeContentsOf :exec
delete from content c where c.id = any(@incidents::uuid[])
  or c.id = any(array(select d.content_id from delivery d where d.incident_id = any(@incidents::uuid[]) and d.content_id is not null));

-- name: PurgeDeliveriesOf :execrows
-- Their decisions go along.
delete from delivery where incident_id = any(@incidents::uuid[]);

-- name: PurgeIncidents :execrows
-- Their escalations go along.
delete from incident where id = any(@incidents::uuid[]);

-- name: OldDeliveries :many
-- Settled deliveries of no incident, locked.
select d.id, d.content_id from delivery d
where d.incident_id is null and d.settled_at < now() - @age::interval and d.state in ('sent', 'assumed', 'canceled')
order by d.settled_at limit @most for update skip locked;

-- name: PurgeDeliveries :execrows
delete from delivery where id = any(@deliveries::uuid[]);

-- name: LockContents :many
-- Two replicas that purge two deliveries with one content see each other's here.
select id from content where id = any(@contents::uuid[]) order by id for update;

-- name: PurgeUnshown :exec
-- Contents that no delivery shows any more.
delete from content c where c.id = any(@contents::uuid[]) and not exists (select 1 from delivery d where d.incident_id is null and d.content_id = c.id);

-- name: PurgeAudit :execrows
delete from audit where ctid = any(array(select a.ctid from audit a where a.at < now() - @age::interval order by a.at limit @most));

-- name: PurgeSilences :execrows
-- One that has kept something back which is still there stays: it says why.
delete from silence where ctid = any(array(
  select s.ctid from silence s where s.ends_at < now() - @age::interval
    and not exists (select 1 from silenced_alert a where a.silence_id = s.id)
  order by s.ends_at limit @most for update skip locked));

-- name: PurgeBulkItems :execrows
delete from bulk_item where ctid = any(array(
  select i.ctid from bulk_item i where i.run_id = any(array(
    select r.id from bulk_run r where r.state <> 'running' and r.ended_at < now() - @age::interval order by r.ended_at limit 100)) limit @most));

-- name: PurgeBulkRuns :execrows
delete from bulk_run where ctid = any(array(
  select r.ctid from bulk_run r where r.state <> 'running' and r.ended_at < now() - @age::interval
    and not exists (select 1 from bulk_item i where i.run_id = r.id)
  order by r.ended_at limit @most for update skip locked));

-- name: DropAttemptPartitions :many
select p.name::text as name from drop_attempt_partitions(now() - @age::interval) as p(name);
