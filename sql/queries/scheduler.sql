-- Due work that belongs to no single incident: self-alerts, removed notifiers, what is swept away.

-- name: PagesOfStep :many
-- The pages of one escalation step, locked. begun: on its way or out; a page that waits for the card is on its way. One that
-- is kept back longer than its bound reaches nobody for now.
select id, target, state, (state = 'pending' and overdue > 0)::boolean as overdue, (state in ('sent', 'assumed') or state = 'pending'
    and (lease_token is not null or wait_until is not null or attempts > 0 or next_at <= clock_timestamp()))::boolean as begun
from delivery where incident_id = @incident_id::uuid and step_id = @step_id::uuid and kind = 'page' order by id for update;

-- name: Hurry :execrows
-- Brings a delivery forward that nobody has tried yet. Only its due time moves, and only while no worker owns it.
update delivery set next_at = clock_timestamp(), version = version + 1
where id = @id and state = 'pending' and lease_token is null and attempts = 0 and wait_until is null and next_at > clock_timestamp();

-- name: LiveIncidentsOfSource :many
select * from incident where source = @source and state <> 'resolved' order by id limit @most;

-- name: AnyDead :one
-- Whether a dead delivery of a group waits for a decision. The list of states is that of the index delivery_dead.
select exists (
  select 1 from delivery
  where state in ('rejected', 'unreachable', 'held', 'exhausted', 'expired')
    and state = @state::text and notifier = @notifier and target = @target and reason = @reason
)::boolean as found;

-- name: ForgetMissing :exec
-- A notifier is missing no more: a live replica's file knows it again, or nothing waits for it.
delete from missing_notifier m
where not m.notifier = any(@waiting::text[])
   or exists (select 1 from replica r where r.seen_at > clock_timestamp() - @alive::interval and m.notifier = any(r.notifiers));

-- name: NoteMissing :exec
insert into missing_notifier (notifier, since)
select w.notifier, clock_timestamp() from unnest(@waiting::text[]) as w(notifier)
where not exists (select 1 from replica r where r.seen_at > clock_timestamp() - @alive::interval and w.notifier = any(r.notifiers))
on conflict (notifier) do nothing;

-- name: MissingFor :many
select notifier from missing_notifier where since <= clock_timestamp() - @grace::interval order by notifier;

-- name: LockWaitingFor :many
-- Deliveries that wait for a notifier and are not told to end yet.
select id, incident_id, content_id, kind, notifier, target, state, reason, effect, desired, applied, reference, attempts, tries,
  open_attempt, doubt, form, denials, queue, overdue, stop_state, stop_reason, card_id, wait_until, expires_at, created_at, called_at, lease_token, version, clock_timestamp()::timestamptz as claimed_at, next_at as was_due
from delivery where notifier = @notifier and next_at is not null and stop_state is null
order by id limit @most for update skip locked;

-- name: LockOverCap :many
-- Deliveries whose tries lie above the cap of their notifier, and that are not told to end yet. A call under way decides by
-- itself.
select id, incident_id, content_id, kind, notifier, target, state, reason, effect, desired, applied, reference, attempts, tries,
  open_attempt, doubt, form, denials, queue, overdue, stop_state, stop_reason, card_id, wait_until, expires_at, created_at, called_at, lease_token, version, clock_timestamp()::timestamptz as claimed_at, next_at as was_due
from delivery where notifier = @notifier and next_at is not null and tries > 0 and tries > @count::int and stop_state is null and open_attempt is null
order by id limit @most for update skip locked;

-- name: AnyFileError :one
select exists (select 1 from replica where seen_at > clock_timestamp() - @alive::interval and file_error <> '')::boolean as found;

-- name: PurgeIdempotency :execrows
delete from idempotency where ctid = any(array(select i.ctid from idempotency i where i.created_at < now() - @age::interval order by i.created_at limit @most));

-- name: PurgeCallbacks :execrows
delete from callback where ctid = any(array(select c.ctid from callback c where c.at < now() - @age::interval and c.due_at is null order by c.at limit @most));

-- name: PurgeReplicas :execrows
delete from replica where seen_at < clock_timestamp() - @age::interval;
