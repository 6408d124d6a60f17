-- What the API shows. Lists run newest first by id, which is a uuid v7, and page by "older than this id". Each shape of
-- filter that has an index has a query of its own, so that its plan never depends on what the others ask.

-- name: PageIncidents :many
select * from incident
where id < @before
order by id desc
limit @most;

-- name: PageLiveIncidents :many
select * from incident
where state <> 'resolved' and id < @before and (@state::text = '' or state = @state)
order by id desc
limit @most;

-- name: PageResolvedIncidents :many
select * from incident
where state = 'resolved' and id < @before
order by id desc
limit @most;

-- name: ReadIncident :one
select * from incident where id = @id;

-- name: ReadTimeline :many
-- The newest entries, in order.
select * from (
  select * from timeline where incident_id = @incident_id order by sequence desc limit @most
) t
order by sequence;

-- name: PageDeliveries :many
-- It looks at so many rows at most: an index for what few ask would cost every delivery. Where it has looked at all of them, the
-- page ends early and the next one goes on behind them.
select * from delivery
where id in (
  select l.id from (select d.id, d.state, d.notifier, d.kind from delivery d where d.id < @before order by d.id desc limit @looked_at) l
  where (@state::text = '' or l.state = @state)
    and (@notifier::text = '' or l.notifier = @notifier)
    and (@kind::text = '' or l.kind = @kind)
  order by l.id desc
  limit @most)
order by id desc;

-- name: DeliveryBehind :one
-- The last row of those that one page looks at.
select d.id from delivery d where d.id < @before order by d.id desc offset @skip limit 1;

-- name: PagePendingDeliveries :many
select * from delivery
where next_at is not null
  and id < @before
  and (@notifier::text = '' or notifier = @notifier)
  and (@kind::text = '' or kind = @kind)
order by id desc
limit @most;

-- name: PageDeadDeliveries :many
select * from delivery
where state in ('rejected', 'unreachable', 'held', 'exhausted', 'expired')
  and id < @before
  and (@state::text = '' or state = @state)
  and (@notifier::text = '' or notifier = @notifier)
  and (@kind::text = '' or kind = @kind)
order by id desc
limit @most;

-- name: PageIncidentDeliveries :many
select * from delivery
where incident_id = @incident_id
  and id < @before
  and (@state::text = '' or state = @state)
  and (not @dead::boolean or state in ('rejected', 'unreachable', 'held', 'exhausted', 'expired'))
  and (@notifier::text = '' or notifier = @notifier)
  and (@kind::text = '' or kind = @kind)
order by id desc
limit @most;

-- name: ReadDelivery :one
select * from delivery where id = @id;

-- name: ReadAttempts :many
-- The newest attempts, in order.
select * from (
  select * from attempt where delivery_id = @delivery_id order by number desc limit @most
) a
order by number;

-- name: ReadDecisions :many
select * from decision where delivery_id = @delivery_id order by at, id limit @most;

-- name: CountWaiting :many
-- Deliveries that wait for a worker, by notifier and kind. It reads the partial index of the live ones only.
select notifier, kind, count(*)::bigint as waiting, count(*) filter (where next_at <= now())::bigint as due,
       coalesce(extract(epoch from now() - min(next_at)), 0)::double precision as oldest_seconds
from (
  select notifier, kind, next_at from delivery where next_at is not null limit @most
) d
group by notifier, kind;
