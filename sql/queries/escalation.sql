-- name: AddStep :exec
insert into escalation (id, incident_id, name, round, step, due_at, state)
values (@id, @incident_id, @name, @round, @step, clock_timestamp() + @due::interval, 'due')
on conflict (incident_id, name, round, step) do nothing;

-- name: StepsOf :many
select * from escalation where incident_id = @incident_id order by id for update;

-- name: FireStep :execrows
update escalation set state = 'fired', due_at = null, fired_at = clock_timestamp() where id = @id and state = 'due';

-- name: WithdrawSteps :exec
update escalation set state = 'withdrawn', due_at = null, held_at = null, reason = @reason where incident_id = @incident_id and state = 'due';

-- name: BringForward :execrows
update escalation set due_at = least(due_at, clock_timestamp()) where id = @id and state = 'due';

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
