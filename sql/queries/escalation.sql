-- name: AddStep :exec
insert into escalation (id, incident_id, name, round, step, due_at, state, rests)
values (@id, @incident_id, @name, @round, @step, clock_timestamp() + @due::interval, 'due', @rests)
on conflict (incident_id, name, round, step) do nothing;

-- name: FireStep :execrows
update escalation set state = 'fired', due_at = null, held_at = null, fired_at = clock_timestamp() where id = @id and state = 'due';

-- name: WithdrawSteps :exec
update escalation set state = 'withdrawn', due_at = null, held_at = null, reason = @reason where incident_id = @incident_id and state = 'due';

-- name: WithdrawStep :execrows
update escalation set state = 'withdrawn', due_at = null, held_at = null, reason = @reason where incident_id = @incident_id and step = @step and state = 'due';

-- name: DropStep :exec
update escalation set state = 'withdrawn', due_at = null, held_at = null, reason = @reason where id = @id and state = 'due';

-- name: BringForward :execrows
update escalation set due_at = least(due_at, clock_timestamp()) where id = @id and state = 'due';

-- name: RestSteps :exec
-- The clock of an escalation stands still until quiet hours are over: one step is moved there, and all others that are due by as much.
update escalation set rests = (id = @id::uuid), due_at = due_at + @by::interval
where incident_id = @incident_id::uuid and name = @name and state = 'due';

-- name: WakeSteps :execrows
-- The contrary: the incident has become urgent. What a silence holds was stopped at an earlier instant, and is due when it goes on.
update escalation e set rests = false, due_at = e.due_at - r.remaining
from (select s.name, min(s.due_at - coalesce(s.held_at, clock_timestamp())) as remaining from escalation s
      where s.incident_id = @incident_id and s.state = 'due' and s.rests and s.due_at > coalesce(s.held_at, clock_timestamp()) group by s.name) r
where e.incident_id = @incident_id and e.name = r.name and e.state = 'due';

-- name: RestingIncidents :many
-- Those of which an escalation waits for the end of quiet hours.
select distinct incident_id from escalation where state = 'due' and rests and due_at > now() order by incident_id limit @most;

-- name: DueSteps :many
-- But for those of an escalation that a silence holds.
select * from escalation where due_at <= now() and held_at is null order by due_at limit @most;

-- name: HoldSteps :execrows
-- The escalation stands still from now on.
update escalation set held_at = clock_timestamp() where incident_id = @incident_id and state = 'due' and held_at is null;

-- name: ReleaseSteps :execrows
-- It goes on: each step comes as much later as it stood still. One that was due by then is due now.
update escalation set due_at = due_at + (clock_timestamp() - held_at), held_at = null where incident_id = @incident_id and state = 'due' and held_at is not null;

-- name: ReadSteps :many
-- Without a lock, in order.
select * from escalation where incident_id = @incident_id order by name, round, id;

-- name: EarliestStep :one
select coalesce(min(due_at), now() + interval '1 day')::timestamptz as due_at, now()::timestamptz as now from escalation where due_at is not null and held_at is null;

-- name: StepOfDelivery :one
select coalesce(step_id, '00000000-0000-0000-0000-000000000000'::uuid)::uuid as step_id from delivery where id = @id;

-- name: HandOver :execrows
insert into handed_over (incident_id, step_id, notifier, target, user_id, delivery_id, at)
values (@incident_id, @step_id, @notifier, @target, @user_id, @delivery_id, clock_timestamp())
on conflict do nothing;
