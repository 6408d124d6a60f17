-- Decisions on many dead deliveries. The filter is written out three times: each statement finds its rows by the index of
-- the dead ones.

-- name: CountDead :many
-- What a filter finds.
select state, notifier, reason, coalesce((doubt->>'effect')::int = effect, false)::boolean as in_doubt, count(*)::bigint as found
from delivery
where state in ('rejected', 'unreachable', 'held', 'exhausted', 'expired')
  and (@state::text = '' or state = @state)
  and (@notifier::text = '' or notifier = @notifier)
  and (@kind::text = '' or kind = @kind)
  and (@reason::text = '' or reason = @reason)
  and (not @one_incident::boolean or incident_id = @incident_id::uuid)
  and settled_at >= @since::timestamptz
  and settled_at < @until::timestamptz
group by 1, 2, 3, 4
order by 2, 3, 1, 4;

-- name: AddBulkRun :exec
insert into bulk_run (id, made_at, actor, action, reason, filter, per_second, state, total, paced_at)
values (@id, clock_timestamp(), @actor, @action, @reason, @filter, @per_second, 'running', 0, clock_timestamp() - interval '1 second');

-- name: FixBulkItems :execrows
-- The run's set. One row more than the bound says that there are too many.
insert into bulk_item (run_id, delivery_id, incident_id, notifier, state, effect, reason)
select @run_id, d.id, d.incident_id, d.notifier, d.state, d.effect, d.reason
from delivery d
where d.state in ('rejected', 'unreachable', 'held', 'exhausted', 'expired')
  and (@state::text = '' or d.state = @state)
  and (@notifier::text = '' or d.notifier = @notifier)
  and (@kind::text = '' or d.kind = @kind)
  and (@reason::text = '' or d.reason = @reason)
  and (not @one_incident::boolean or d.incident_id = @incident_id::uuid)
  and d.settled_at >= @since::timestamptz
  and d.settled_at < @until::timestamptz
limit @most;

-- name: SizeBulkRun :exec
update bulk_run set total = @total, state = case when @total::int = 0 then 'done' else 'running' end, ended_at = case when @total::int = 0 then clock_timestamp() end
where id = @id;

-- name: LockBulkRun :one
-- A run that may take something now, with how many: what has gathered since paced_at, a second's worth at most. Another
-- replica has those that are skipped.
select id, actor, action, reason, per_second, made_at, total - applied - skipped as waiting,
  least(per_second, floor(extract(epoch from clock_timestamp() - paced_at) * per_second))::int as allowed
from bulk_run
where state = 'running' and paced_at <= clock_timestamp() - interval '1 second' / per_second
order by paced_at limit 1 for update skip locked;

-- name: NextBulkItems :many
-- Waiting items of one incident, so that a transaction locks one incident.
select i.delivery_id, i.incident_id, i.notifier, i.state, i.effect from bulk_item i
join (
  select f.run_id, f.incident_id, f.delivery_id from bulk_item f where f.run_id = @run_id and f.result is null order by f.incident_id, f.delivery_id limit 1
) n on i.run_id = n.run_id and (i.incident_id = n.incident_id or n.incident_id is null and i.delivery_id = n.delivery_id)
where i.result is null
order by i.delivery_id limit @most;

-- name: MarkBulkItems :exec
update bulk_item i set result = v.result, why = v.why
from (select unnest(@delivery_ids::uuid[]) as id, unnest(@results::text[]) as result, unnest(@whys::text[]) as why) v
where i.run_id = @run_id and i.delivery_id = v.id and i.result is null;

-- name: AdvanceBulkRun :exec
update bulk_run set applied = applied + @did, skipped = skipped + @passed,
  paced_at = greatest(paced_at, clock_timestamp() - interval '1 second') + interval '1 second' * @seconds::float8,
  state = @state, ended_at = case when @state = 'done' then clock_timestamp() end
where id = @id;

-- name: CancelBulkRun :one
-- It waits for what is being taken of the run at this moment, and nothing is taken after it.
update bulk_run set state = 'canceled', ended_at = clock_timestamp(), canceled_by = @by::text
where id = @id and state = 'running'
returning id;

-- name: ReadBulkRun :one
select * from bulk_run where id = @id;

-- name: PageBulkRuns :many
select * from bulk_run where id < @before order by id desc limit @most;

-- name: BulkCounts :many
-- What a run's set is and what became of it.
select notifier, state, reason, coalesce(result, '')::text as result, why, count(*)::bigint as number
from bulk_item where run_id = @run_id group by 1, 2, 3, 4, 5 order by 1, 3, 2, 4, 5;

-- name: NotifierKnown :one
-- Whether the file of any live replica has a notifier.
select exists (select 1 from replica where seen_at > clock_timestamp() - @alive::interval and @notifier::text = any(notifiers))::boolean as known;

-- name: DeadLetters :many
-- Dead deliveries by state and reason. The bound keeps a flood from making the gauges expensive.
select state, reason, count(*)::bigint as number
from (
  select d.state, d.reason from delivery d where d.state in ('rejected', 'unreachable', 'held', 'exhausted', 'expired') limit @most
) d
group by state, reason;
