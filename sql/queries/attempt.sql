-- name: CloseTakenOver :many
-- Closes exactly the open attempts of rows just taken over, as unknown. A second statement of the claim's transaction:
-- its snapshot is newer than the row locks, so it sees an attempt begun a moment before.
update attempt set outcome = 'unknown', evidence = 'possibly_sent', closed_by = 'takeover', reason = 'takeover',
  error = 'the worker ' || worker || ' lost its lease during the call', finished_at = clock_timestamp(),
  duration_ms = extract(epoch from clock_timestamp() - started_at) * 1000
where id = any(@ids::uuid[]) and outcome is null
returning id, delivery_id, number, effect, effect_key, revision, operation, address, worker, started_at;

-- name: AddLostAttempt :exec
-- An attempt row that a fail-over lost is inserted again with its result: the call was made.
insert into attempt (id, delivery_id, number, effect, effect_key, revision, operation, address, worker, lease_token, started_at, finished_at,
  outcome, evidence, closed_by, fault, reason, error, provider_code, http_status, bytes_written, duration_ms, answer, reference, form, phase)
values (@id, @delivery_id, @number, @effect, @effect_key, @revision, @operation, @address, @worker, @lease_token,
  @started_at::timestamptz, clock_timestamp(),
  @outcome::text, @evidence::text, @closed_by::text, @fault, 'row_lost', @error, @provider_code, nullif(@http_status::int, 0), @bytes_written::bigint, @duration_ms::float8, @answer,
  nullif(@ref::text, '')::jsonb, @form, @phase)
on conflict (id) do nothing;

-- name: LateEvidence :one
-- Keeps an answer that came after its lease was lost, on the attempt and nowhere else.
update attempt set late_outcome = @outcome::text, late_at = clock_timestamp(), late_reference = nullif(@ref::text, '')::jsonb,
  http_status = coalesce(http_status, nullif(@status::int, 0)), bytes_written = coalesce(bytes_written, @bytes::bigint),
  provider_code = case when provider_code = '' then @code else provider_code end, answer = case when answer = '' then @answer else answer end, phase = case when phase = '' then @phase else phase end
where id = @id and late_outcome is null and closed_by = 'takeover'
returning id, number, effect, effect_key, revision, operation, address, outcome, started_at;

-- name: LateSent :many
-- Late evidence of a success on the current effect of rows in doubt, read before each create.
select a.id, a.delivery_id, a.number, a.effect, a.effect_key, a.revision, a.operation, a.address, a.started_at, a.late_outcome, a.late_reference
from attempt a where a.delivery_id = any(@deliveries::uuid[]) and a.late_outcome = 'sent' order by a.delivery_id, a.number;

-- name: Reconciled :exec
-- A look-up found what an attempt in doubt has made. Of several with the same key it is the last one that had begun when the
-- object was made, by the provider's clock with a little room; without a time, the newest.
update attempt set outcome = 'sent', closed_by = 'reconcile', reason = 'reconciled', reference = @ref::jsonb
where id = (
  select a.id from attempt a
  where a.delivery_id = @delivery_id and a.effect_key = @effect_key and a.outcome = 'unknown'
  order by (a.started_at <= coalesce(sqlc.narg(made_at)::timestamptz, clock_timestamp()) + interval '5 seconds') desc, a.number desc
  limit 1
);

-- name: AddAttemptPartitions :exec
-- Makes the partitions of this month and the next ones that are not there yet.
select add_attempt_partitions(@months::int);
