-- What alerts that are taken in one transaction ask of their incidents: for all of them at once, or for one.

-- name: LockLiveIncidents :many
-- The live incidents of the keys that nobody else holds. Whoever waits for one would let all others wait.
select * from incident where key = any(@keys::text[]) and state <> 'resolved' order by id for update skip locked;

-- name: LiveKeys :many
-- Those of the keys that have a live incident, whoever holds it.
select key from incident where key = any(@keys::text[]) and state <> 'resolved';

-- name: LastResolvedIncidents :many
-- Of each key the incident that was resolved last.
select * from incident where id = any(array(
  select l.id from unnest(@keys::text[]) as k(key)
  cross join lateral (select i.id from incident i where i.key = k.key and i.state = 'resolved' order by i.resolved_at desc limit 1) l
));

-- name: AlertsByFingerprints :many
-- Each is found by index, however many there are and whatever the planner believes of it.
with v as materialized (select unnest(@incident_ids::uuid[]) as incident_id, unnest(@fingerprints::text[]) as fingerprint)
select * from alert where id = any(array(
  select l.id from v cross join lateral (select a.id from alert a where a.incident_id = v.incident_id and a.fingerprint = v.fingerprint limit 1) l
));

-- name: AllAlertsOfIncidents :many
-- Of incidents that have few.
select * from alert where incident_id = any(@incident_ids::uuid[]) order by (status = 'firing') desc, starts_at desc, id desc;

-- name: LockDeliveriesOfIncidents :many
select id, incident_id, content_id, kind, notifier, target, state, reason, effect, desired, applied, reference, attempts, tries,
  open_attempt, doubt, form, denials, queue, overdue, stop_state, stop_reason, card_id, wait_until, expires_at, created_at, called_at, lease_token, version,
  clock_timestamp()::timestamptz as claimed_at, next_at as was_due
from delivery where incident_id = any(@incident_ids::uuid[]) order by id for update;

-- name: StepsOfIncidents :many
select * from escalation where incident_id = any(@incident_ids::uuid[]) order by id for update;

-- name: AnySilences :one
-- Whether any holds, and which incidents have alerts that one keeps back.
select exists (select 1 from silence s where s.ends_at > now() and s.starts_at <= now())::boolean as found,
  array(select distinct a.incident_id from silenced_alert a where a.incident_id = any(@incident_ids::uuid[]))::uuid[] as keeping;

-- name: AlertsByKey :many
-- As AlertsByFingerprints, of the live incidents of keys: first the incident, then its alert, whatever the planner believes.
with v as materialized (
  select k.fingerprint, (select i.id from incident i where i.key = k.key and i.state <> 'resolved') as incident_id
  from (select unnest(@keys::text[]) as key, unnest(@fingerprints::text[]) as fingerprint) k
)
select * from alert where id = any(array(
  select l.id from v cross join lateral (select a.id from alert a where a.incident_id = v.incident_id and a.fingerprint = v.fingerprint limit 1) l
));

-- name: WithDeliveries :many
-- Those of the incidents that have told anybody, or tried to.
select i.id::uuid as id from unnest(@incident_ids::uuid[]) as i(id) where exists (select 1 from delivery d where d.incident_id = i.id);
