-- What nothing is sent to for a while: destinations that rest, accounts whose breaker is open, look-ups that are throttled.

-- name: Pauses :many
select key, scope, account, notifier, destination, reason, code, sentence, since, until, probe_at, trial, clock_timestamp()::timestamptz as now
from pause where until is null or until > clock_timestamp() order by key;

-- name: Rest :exec
-- A destination, or the look-ups of an account, rest for a time. A later end wins; a rest that is over begins anew.
insert into pause (key, scope, account, notifier, destination, reason, code, sentence, since, until)
values (@key, @scope, @account, @notifier, @destination, @reason, @code, @sentence, clock_timestamp(), clock_timestamp() + @length::interval)
on conflict (key) do update set
  since = case when pause.until > clock_timestamp() then pause.since else excluded.since end,
  notifier = excluded.notifier, reason = excluded.reason, code = excluded.code, sentence = excluded.sentence, until = excluded.until
where pause.until < excluded.until;

-- name: OpenBreaker :execrows
-- The first finding opens it; a trial that failed only ends.
insert into pause (key, scope, account, notifier, checksum, reason, code, sentence, since, probe_at)
values (@key, 'account', @account, @notifier, @checksum, @reason, @code, @sentence, clock_timestamp(), clock_timestamp() + @probe::interval)
on conflict (key) do update set trial = null, reason = excluded.reason, code = excluded.code, sentence = excluded.sentence
where pause.trial is not null;

-- name: TakeProbes :many
-- Breakers whose account is to be asked now: one replica asks, the time of the next question is written first. A crash
-- after it costs one interval. They grow from half a minute to five.
with due as materialized (
  select p.key, p.probes from pause p
  where p.scope = 'account' and p.key = any(@keys::text[]) and p.probe_at <= clock_timestamp() order by p.key for update skip locked
)
update pause set probes = pause.probes + 1,
  probe_at = clock_timestamp() + case when due.probes >= 4 then interval '5 minutes' else interval '30 seconds' * (1 << due.probes) end
from due where pause.key = due.key
returning pause.key, pause.account, pause.notifier, pause.code, pause.trial;

-- name: CloseBreaker :execrows
delete from pause where key = @key and scope = 'account';

-- name: OldestWaiting :one
-- The delivery that tries an account on behalf of all: the first in the queue that waits for it.
select id from delivery
where notifier = any(@notifiers::text[]) and next_at is not null and lease_token is null and reason like 'account:%'
order by priority, created_at, id limit 1;

-- name: SetTrial :execrows
update pause set trial = @trial where key = @key and scope = 'account';

-- name: BringForwardWaiting :many
-- Deliveries that wait for an account, now that it is well. They are found by what is due, and locked by their keys in
-- order: one step for both would walk the whole of the primary key, since the worker's connections avoid sorts. What is
-- asked of the row again is wrapped, so that no index but the key's is a way to it.
with waiting as materialized (
  select d.id from delivery d
  where d.notifier = any(@notifiers::text[]) and d.next_at > now() and d.lease_token is null and d.reason like 'account:%'
    and (sqlc.narg(trial)::uuid is null or d.id = sqlc.narg(trial))
), locked as materialized (
  select d.id from delivery d where d.id = any(array(select waiting.id from waiting)) order by d.id for update
)
update delivery d set next_at = clock_timestamp(), version = d.version + 1
where d.id = any(array(select locked.id from locked)) and d.lease_token is null and d.reason like 'account:%'
  and coalesce(d.next_at, '-infinity') > clock_timestamp()
returning d.id;

-- name: LiftPause :exec
-- A person's word on a delivery lets its destination be tried at once; what a provider asked for stays. What waits for the destination
-- follows a few seconds later: if it refuses that delivery again, it rests anew by then, and keeps the others. A row that somebody
-- holds at this moment is passed by: waiting for it here could wait for ever, and it looks by itself in the end.
with lifted as (
  delete from pause where scope = 'destination' and account = @account and reason <> 'rate_limited'
    and (sqlc.narg(before)::timestamptz is null or since < sqlc.narg(before))
    and destination = (select a.address from attempt a where a.delivery_id = @delivery_id order by a.number desc limit 1)
  returning key
), waiting as materialized (
  select d.id from lifted join delivery d on d.queue = lifted.key
  where d.lease_token is null and d.reason = 'paused' and d.next_at > clock_timestamp() + interval '5 seconds'
  for update of d skip locked
)
update delivery d set next_at = clock_timestamp() + interval '5 seconds', version = d.version + 1
from waiting where d.id = waiting.id;

-- name: PurgePauses :execrows
-- Rests that are over, and breakers found with a file that no live replica has any more.
delete from pause p where p.until <= clock_timestamp() - interval '1 minute'
  or p.scope = 'account' and p.since < clock_timestamp() - @alive::interval
    and not exists (select 1 from replica r where r.seen_at > clock_timestamp() - @alive::interval and r.checksum = p.checksum);

-- name: UnannouncedBreakers :many
select key, account, notifier, reason, code, sentence, since from pause
where scope = 'account' and announced_at is null order by key limit @most for update skip locked;

-- name: BreakerAnnounced :exec
update pause set announced_at = clock_timestamp() where key = @key;

-- name: AnyBreaker :one
select exists (select 1 from pause where scope = 'account' and account = @account)::boolean as found;

-- name: OverduePages :many
-- Pages that are kept back longer than their bound and whose escalation has not gone on yet.
select id, incident_id, step_id, target from delivery where overdue = 1 order by id limit @most;

-- name: PassOver :many
-- The escalation went on without these pages. What is written is no worker's business, so it may be on a leased row; a
-- finish that overlaps decides again.
update delivery set overdue = 2, version = version + 1 where id = @id and overdue = 1 returning notifier, reason, sentence;

-- name: MovedChats :many
select account, address, moved_to from moved_chat;

-- name: MoveChat :exec
insert into moved_chat (account, address, moved_to, at) values (@account, @address, @moved_to, clock_timestamp())
on conflict (account, address) do update set moved_to = excluded.moved_to, at = excluded.at where moved_chat.moved_to <> excluded.moved_to;
