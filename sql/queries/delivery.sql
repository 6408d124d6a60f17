-- The worker's statements. They run on connections of their own with planner settings that keep them on the one
-- index, whatever the statistics say after an idle spell: see pkg/store/pool.go.

-- name: Claim :many
-- Takes due rows and rows whose lease ran out: both are the same column, next_at. Per notifier at most @free, higher
-- priority first. The low watermarks begin the index scans behind the dead entries of what is done already; pages have
-- none. A crash after this line leaves a lease that runs out by itself.
with lane as materialized (
  select unnest(@notifiers::text[]) as notifier, unnest(@free::int[]) as free, unnest(@low1::timestamptz[]) as low1, unnest(@low2::timestamptz[]) as low2,
    unnest(@low3::timestamptz[]) as low3, unnest(@low4::timestamptz[]) as low4
), due as materialized (
  select u.id, u.next_at from lane cross join lateral (
    select x.id, x.next_at from (
      select p0.id, p0.next_at from (select d.id, d.next_at from delivery d where d.notifier = lane.notifier and d.priority = 0 and d.next_at <= now()
                     order by d.next_at limit lane.free for update skip locked) p0
      union all
      select p1.id, p1.next_at from (select d.id, d.next_at from delivery d where d.notifier = lane.notifier and d.priority = 1 and d.next_at <= now() and d.next_at >= lane.low1
                     order by d.next_at limit lane.free for update skip locked) p1
      union all
      select p2.id, p2.next_at from (select d.id, d.next_at from delivery d where d.notifier = lane.notifier and d.priority = 2 and d.next_at <= now() and d.next_at >= lane.low2
                     order by d.next_at limit lane.free for update skip locked) p2
      union all
      select p3.id, p3.next_at from (select d.id, d.next_at from delivery d where d.notifier = lane.notifier and d.priority = 3 and d.next_at <= now() and d.next_at >= lane.low3
                     order by d.next_at limit lane.free for update skip locked) p3
      union all
      select p4.id, p4.next_at from (select d.id, d.next_at from delivery d where d.notifier = lane.notifier and d.priority = 4 and d.next_at <= now() and d.next_at >= lane.low4
                     order by d.next_at limit lane.free for update skip locked) p4
    ) x limit lane.free
  ) u
)
update delivery c set
  lease_token = gen_random_uuid(),
  lease_until = clock_timestamp() + @lease::interval,
  next_at = clock_timestamp() + @lease::interval,
  worker = @worker,
  version = c.version + 1
from due where c.id = any(array[due.id])
returning c.id, c.incident_id, c.content_id, c.kind, c.notifier, c.target, c.state, c.reason, c.effect, c.desired, c.applied, c.reference, c.attempts, c.tries,
  c.open_attempt, c.doubt, c.form, c.denials, c.queue, c.overdue, c.stop_state, c.stop_reason, c.card_id, c.wait_until, c.expires_at, c.created_at, c.called_at, c.lease_token, c.version,
  clock_timestamp()::timestamptz as claimed_at, due.next_at as was_due;

-- name: EarliestDue :one
-- When the next row of any of the notifiers needs a worker; infinity's place is taken by a day from now.
select coalesce(min(x.next_at), now() + interval '1 day')::timestamptz as due_at, now()::timestamptz as now
from unnest(@notifiers::text[]) as lane(notifier) cross join generate_series(0, 4) as p(priority)
cross join lateral (
  select d.next_at from delivery d where d.notifier = lane.notifier and d.priority = p.priority and d.next_at is not null
  order by d.next_at limit 1
) x;

-- The statements that write a batch lock its rows first, in the order of its values: the caller sorts them by id, which is
-- the order of all locks. What the clock says and whether the lease holds is asked after that wait, and the locked row is
-- written where it lies, by ctid. The values are joined from their own side, one index look-up a row: `= any(array[v.id])`
-- is what `= v.id` means and leaves the planner no other way. By `= v.id` it may as well walk the whole index for its order,
-- which costs the same as long as statistics call the table empty, and ruins the burst after.

-- name: Begin :many
-- Marks attempts as open and records them, in one statement: no call without a row. A row whose lease is gone, or whose
-- version moved (unless it may be raised, and nothing asks it to stop), or whose destination or account rests, or whose attempt
-- another call of this statement opened already, is left as it is; the last case answers as if it were new, since a lost answer to
-- COMMIT is normal. It answers with the version that the attempt was prepared on: what was noted since must not slip by the finish.
with v as materialized (
  select unnest(@ids::uuid[]) as id, unnest(@tokens::uuid[]) as token, unnest(@versions::bigint[]) as version,
    unnest(@attempt_ids::uuid[]) as attempt_id, unnest(@effect_keys::text[]) as effect_key, unnest(@revisions::int[]) as revision,
    unnest(@operations::text[]) as operation, unnest(@addresses::text[]) as address, unnest(@forms::text[]) as form,
    unnest(@queues::text[]) as queue, unnest(@accounts::text[]) as account, unnest(@raised::boolean[]) as raised
), locked as materialized (
  select d.ctid as tid, v.* from v join delivery d on d.id = any(array[v.id]) for update of d
), begun as (
  update delivery d set
    attempts = d.attempts + (d.open_attempt is null)::int,
    version = d.version + (d.open_attempt is null)::int,
    open_attempt = v.attempt_id, queue = null,
    called_at = coalesce(d.called_at, clock_timestamp())
  from locked v
  where d.ctid = v.tid and d.lease_token = v.token and d.lease_until > clock_timestamp()
    and (d.open_attempt is null and (d.version = v.version or v.raised and d.stop_state is null)
        and not exists (select from pause p where p.key = v.queue and p.until > clock_timestamp())
        and not exists (select from pause p where p.key = v.account and p.trial is distinct from v.id)
      or d.open_attempt = v.attempt_id)
  returning d.id, d.attempts, (v.version + 1)::bigint as version, d.effect, d.lease_token, d.created_at, v.attempt_id, v.effect_key, v.revision, v.operation, v.address, v.form
), recorded as (
  insert into attempt (id, delivery_id, number, effect, effect_key, revision, operation, address, form, worker, lease_token, started_at)
  select b.attempt_id, b.id, b.attempts, b.effect, b.effect_key, b.revision, b.operation, b.address, b.form, @worker, b.lease_token, clock_timestamp()
  from begun b
  on conflict (id) do nothing
  returning id
)
select b.id, b.attempts, b.version, clock_timestamp()::timestamptz as started_at from begun b;

-- name: Apply :many
-- Writes decided steps, each only on the row that it was decided on: same token, same version. Returns the rows that
-- took it.
with v as materialized (
  select unnest(@ids::uuid[]) as id, unnest(@tokens::uuid[]) as token, unnest(@versions::bigint[]) as version,
    unnest(@notes::boolean[]) as notes, unnest(@states::text[]) as state, unnest(@reasons::text[]) as reason, unnest(@sentences::text[]) as sentence,
    unnest(@effects::int[]) as effect, unnest(@desireds::int[]) as desired, unnest(@applieds::int[]) as applied, unnest(@refs::text[]) as ref,
    unnest(@tries::int[]) as tries, unnest(@doubts::text[]) as doubt, unnest(@stop_states::text[]) as stop_state, unnest(@stop_reasons::text[]) as stop_reason,
    unnest(@nexts::int[]) as next, unnest(@delays::float8[]) as delay, unnest(@jitters::float8[]) as jitter,
    unnest(@releases::boolean[]) as release, unnest(@closes::boolean[]) as closes, unnest(@renews::boolean[]) as renew,
    unnest(@expires::float8[]) as expires, unnest(@forms::text[]) as form, unnest(@denials::int[]) as denials, unnest(@queues::text[]) as queue,
    unnest(@overdues::boolean[]) as overdue
), locked as materialized (
  select d.ctid as tid, v.* from v join delivery d on d.id = any(array[v.id]) for update of d
), done as (
  update delivery d set
    state = v.state, form = v.form, denials = v.denials, queue = nullif(v.queue, ''), overdue = case when v.overdue then greatest(d.overdue, 1) else 0 end,
    reason = case when v.notes then d.reason else v.reason end,
    sentence = case when v.notes then d.sentence else v.sentence end,
    effect = v.effect, desired = v.desired, applied = v.applied, reference = nullif(v.ref, '')::jsonb, tries = v.tries,
    doubt = nullif(v.doubt, '')::jsonb, stop_state = nullif(v.stop_state, ''), stop_reason = nullif(v.stop_reason, ''),
    next_at = case v.next when 0 then d.next_at when 1 then clock_timestamp() + make_interval(secs => v.delay * (1 + v.jitter * random())) end,
    lease_token = case when v.release then null else d.lease_token end,
    lease_until = case when v.release then null else d.lease_until end,
    open_attempt = case when v.closes then null else d.open_attempt end,
    settled_at = case v.next when 0 then d.settled_at when 1 then null else clock_timestamp() end,
    announced_at = case when v.next = 0 then d.announced_at end,
    expires_at = case when v.renew then clock_timestamp() + d.lifetime when v.expires > 0 then clock_timestamp() + make_interval(secs => v.expires) else d.expires_at end,
    version = d.version + 1
  from locked v
  where d.ctid = v.tid
    and d.lease_token is not distinct from nullif(v.token, '00000000-0000-0000-0000-000000000000'::uuid) and d.version = v.version
  returning d.id
)
select done.id from done;

-- name: Finish :many
-- Apply for attempts that came back: the step and the attempt's end in one statement. Rows that moved take neither.
with v as materialized (
  select unnest(@ids::uuid[]) as id, unnest(@tokens::uuid[]) as token, unnest(@versions::bigint[]) as version,
    unnest(@states::text[]) as state, unnest(@reasons::text[]) as reason, unnest(@sentences::text[]) as sentence,
    unnest(@effects::int[]) as effect, unnest(@desireds::int[]) as desired, unnest(@applieds::int[]) as applied, unnest(@refs::text[]) as ref,
    unnest(@tries::int[]) as tries, unnest(@doubts::text[]) as doubt, unnest(@stop_states::text[]) as stop_state, unnest(@stop_reasons::text[]) as stop_reason,
    unnest(@nexts::int[]) as next, unnest(@delays::float8[]) as delay, unnest(@jitters::float8[]) as jitter,
    unnest(@forms::text[]) as form, unnest(@denials::int[]) as denials, unnest(@queues::text[]) as queue, unnest(@overdues::boolean[]) as overdue,
    unnest(@phases::text[]) as phase,
    unnest(@attempt_ids::uuid[]) as attempt_id, unnest(@outcomes::text[]) as outcome, unnest(@evidences::text[]) as evidence,
    unnest(@closed_bys::text[]) as closed_by, unnest(@faults::text[]) as fault, unnest(@attempt_reasons::text[]) as attempt_reason, unnest(@errors::text[]) as error,
    unnest(@codes::text[]) as code, unnest(@statuses::int[]) as status, unnest(@bytes::bigint[]) as bytes, unnest(@dns::float8[]) as dns,
    unnest(@connects::float8[]) as connect, unnest(@tlss::float8[]) as tls, unnest(@first_bytes::float8[]) as first_byte,
    unnest(@durations::float8[]) as duration, unnest(@answers::text[]) as answer, unnest(@attempt_refs::text[]) as attempt_ref
), locked as materialized (
  select d.ctid as tid, v.* from v join delivery d on d.id = any(array[v.id]) for update of d
), done as (
  update delivery d set
    state = v.state, reason = v.reason, sentence = v.sentence,
    form = v.form, denials = v.denials, queue = nullif(v.queue, ''), overdue = case when v.overdue then greatest(d.overdue, 1) else 0 end,
    effect = v.effect, desired = v.desired, applied = v.applied, reference = nullif(v.ref, '')::jsonb, tries = v.tries,
    doubt = nullif(v.doubt, '')::jsonb, stop_state = nullif(v.stop_state, ''), stop_reason = nullif(v.stop_reason, ''),
    next_at = case v.next when 1 then clock_timestamp() + make_interval(secs => v.delay * (1 + v.jitter * random())) end,
    settled_at = case when v.next = 1 then null else clock_timestamp() end,
    announced_at = null,
    lease_token = null, lease_until = null, open_attempt = null,
    version = d.version + 1
  from locked v
  where d.ctid = v.tid and d.lease_token = v.token and d.version = v.version
  returning d.id, v.attempt_id, v.outcome, v.evidence, v.closed_by, v.fault, v.attempt_reason, v.error, v.code, v.status, v.bytes, v.dns, v.connect, v.tls,
    v.first_byte, v.duration, v.answer, v.attempt_ref, v.phase
), closed as (
  update attempt t set
    outcome = a.outcome, evidence = a.evidence, closed_by = a.closed_by, fault = a.fault, reason = a.attempt_reason, error = a.error, provider_code = a.code,
    http_status = nullif(a.status, 0), bytes_written = a.bytes, dns_ms = nullif(a.dns, 0), connect_ms = nullif(a.connect, 0), tls_ms = nullif(a.tls, 0),
    first_byte_ms = nullif(a.first_byte, 0), duration_ms = a.duration, answer = a.answer, phase = a.phase, reference = nullif(a.attempt_ref, '')::jsonb, finished_at = clock_timestamp()
  from done a
  where t.id = any(array[a.attempt_id]) and t.outcome is null
  returning t.delivery_id
)
select done.id, (done.id in (select closed.delivery_id from closed))::boolean as closed from done;

-- name: DeliveriesByID :many
select id, incident_id, content_id, kind, notifier, target, state, reason, effect, desired, applied, reference, attempts, tries,
  open_attempt, doubt, form, denials, queue, overdue, stop_state, stop_reason, card_id, wait_until, expires_at, created_at, called_at, lease_token, version,
  clock_timestamp()::timestamptz as claimed_at, next_at as was_due
from delivery where id = any(@ids::uuid[]) order by id;

-- name: LockDeliveriesByID :many
select id, incident_id, content_id, kind, notifier, target, state, reason, effect, desired, applied, reference, attempts, tries,
  open_attempt, doubt, form, denials, queue, overdue, stop_state, stop_reason, card_id, wait_until, expires_at, created_at, called_at, lease_token, version,
  clock_timestamp()::timestamptz as claimed_at, next_at as was_due
from delivery where id = any(@ids::uuid[]) order by id for update;

-- name: LockExpired :many
-- An end stops creates only: what waits to be edited is left out here, or enough of it would stand before all others for good.
select id, incident_id, content_id, kind, notifier, target, state, reason, effect, desired, applied, reference, attempts, tries,
  open_attempt, doubt, form, denials, queue, overdue, stop_state, stop_reason, card_id, wait_until, expires_at, created_at, called_at, lease_token, version,
  clock_timestamp()::timestamptz as claimed_at, next_at as was_due
from delivery where expires_at is not null and settled_at is null and expires_at <= now() and stop_state is null
  and not (kind in ('card', 'page') and reference is not null)
order by expires_at limit @most for update skip locked;

-- name: AddDelivery :exec
-- created_at is written out: a default would take the transaction's old now().
insert into delivery (id, incident_id, content_id, kind, priority, notifier, target, state, reason, sentence, next_at, desired, card_id, step_id,
  wait_until, expires_at, lifetime, created_at, settled_at)
values (@id, sqlc.narg(incident_id), sqlc.narg(content_id), @kind, @priority, @notifier, @target, @state, @reason, @sentence,
  case when @state::text = 'pending' then clock_timestamp() + @delay::interval end,
  @desired, sqlc.narg(card_id), sqlc.narg(step_id),
  case when @waits::boolean then clock_timestamp() + @delay::interval end,
  case when @lifetime::interval > interval '0' then clock_timestamp() + @ends_in::interval end,
  case when @lifetime::interval > interval '0' then @lifetime::interval end,
  clock_timestamp(),
  case when @state::text <> 'pending' then clock_timestamp() end);

-- name: UnparkPages :many
-- A statement of its own after the commit of a card's first attempt: brings pages that wait for it forward, and them
-- alone: a backoff or a pause is not cut short. A page waits for the first card with a reference, or for the first
-- attempts of all to be over; that of a card which its destination or account keeps back is. A crash before it costs the page its bound, no more.
with waiting as materialized (
  select p.id from delivery p
  where p.incident_id = any(@incidents::uuid[]) and p.kind = 'page' and p.wait_until is not null and p.reason = 'waiting_for_card'
    and p.lease_token is null and p.settled_at is null
    and (exists (select 1 from delivery c where c.incident_id = p.incident_id and c.kind = 'card' and c.reference is not null)
      or (select count(*) from delivery c where c.incident_id = p.incident_id and c.kind = 'card' and c.settled_at is null
          and (c.attempts = 0 or c.attempts = 1 and c.open_attempt is not null)
          and not (c.lease_token is null and c.next_at > clock_timestamp() + interval '1 second'
            and (c.reason in ('paused', 'rate_limited') or c.reason like 'account:%'))) = 0)
), locked as materialized (
  select d.id from delivery d where d.id = any(array(select waiting.id from waiting)) order by d.id for update
)
update delivery p set next_at = clock_timestamp(), wait_until = null, version = p.version + 1
where p.id = any(array(select locked.id from locked)) and p.wait_until is not null and p.reason = 'waiting_for_card'
  and p.lease_token is null and p.settled_at is null
returning p.notifier;

-- name: UnparkThreads :many
-- The same for the threads of cards that got a reference or died.
with waiting as materialized (
  select t.id from delivery t
  where t.card_id = any(@cards::uuid[]) and t.kind = 'thread' and t.reason in ('waiting_for_card', '') and t.lease_token is null and t.settled_at is null
    and exists (select 1 from delivery c where c.id = t.card_id and (c.reference is not null or c.settled_at is not null))
), locked as materialized (
  select d.id from delivery d where d.id = any(array(select waiting.id from waiting)) order by d.id for update
)
update delivery t set next_at = clock_timestamp(), version = t.version + 1
where t.id = any(array(select locked.id from locked)) and t.reason in ('waiting_for_card', '') and t.lease_token is null and t.settled_at is null
returning t.notifier;

-- name: CardsOfIncidents :many
-- What pages and threads need to know of the cards around them. In no order: without sorts, the planner would find one
-- in the whole of the primary key.
select id, incident_id, notifier, state, reference, attempts, open_attempt, next_at,
  (lease_token is null and next_at > clock_timestamp() + interval '1 second' and (reason in ('paused', 'rate_limited') or reason like 'account:%'))::boolean as kept
from delivery
where incident_id = any(@incidents::uuid[]) and kind = 'card';

-- name: LiveNotifiers :many
-- The notifiers that waiting rows name: a skip scan over the index, a few hundred microseconds for a few hundred lanes.
with recursive lanes as (
  (select d.notifier from delivery d where d.next_at is not null order by d.notifier limit 1)
  union all
  select (select d.notifier from delivery d where d.next_at is not null and d.notifier > l.notifier order by d.notifier limit 1)
  from lanes l where l.notifier is not null
)
select lanes.notifier::text as notifier from lanes where lanes.notifier is not null;
