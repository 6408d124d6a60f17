-- name: AddStep :exec
insert into escalation (id, incident_id, name, round, step, due_at, state)
values (@id, @incident_id, @name, @round, @step, clock_timestamp() + @due::interval, 'due')
on conflict (incident_id, name, round, step) do nothing;

-- name: StepsOf :many
select * from escalation where incident_id = @incident_id order by id for update;

-- name: FireStep :execrows
update escalation set state = 'fired', due_at = null, fired_at = clock_timestamp() where id = @id and state = 'due';

-- name: WithdrawSteps :exec
update escalation set state = 'withdrawn', due_at = null, reason = @reason where incident_id = @incident_id and state = 'due';

-- name: BringForward :execrows
update escalation set due_at = least(due_at, clock_timestamp()) where id = @id and state = 'due';

-- name: DueSteps :many
select * from escalation where due_at <= now() order by due_at limit @most;

-- name: EarliestStep :one
select coalesce(min(due_at), now() + interval '1 day')::timestamptz as due_at, now()::timestamptz as now from escalation where due_at is not null;
