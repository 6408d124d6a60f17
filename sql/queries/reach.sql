-- Whether people can be reached, and user groups of a chat.

-- name: ReachRows :many
select * from reach order by user_id, via;

-- name: ListReach :exec
-- A way that is new is looked at now.
insert into reach (user_id, via, due_at) values (@user_id, @via, clock_timestamp()) on conflict do nothing;

-- name: DropReach :exec
delete from reach where user_id = @user_id and via = @via;

-- name: ClaimReach :execrows
-- One replica looks; when it is lost, another does a little later.
update reach set due_at = clock_timestamp() + @lease::interval where user_id = @user_id and via = @via and due_at <= clock_timestamp();

-- name: PutReach :exec
update reach set due_at = clock_timestamp() + @again::interval, checked_at = clock_timestamp(), closed = @closed,
  since = case when @closed then coalesce(since, clock_timestamp()) end, reason = @reason, sentence = @sentence
where user_id = @user_id and via = @via;

-- name: ReachSooner :exec
update reach set due_at = least(due_at, clock_timestamp()) where user_id = @user_id and via = @via;

-- name: ReachToldRows :many
select * from reach_told order by schedule, user_id;

-- name: TellReach :execrows
insert into reach_told (schedule, user_id, what, at) values (@schedule, @user_id, @what, clock_timestamp())
on conflict (schedule, user_id) do update set what = excluded.what, at = excluded.at where reach_told.what <> excluded.what;

-- name: ForgetReach :exec
delete from reach_told where schedule = @schedule and user_id = @user_id;

-- name: ReachTold :one
select exists (select 1 from reach_told where schedule = @schedule and user_id = @user_id)::boolean as found;

-- name: ListGroup :exec
insert into user_group (schedule, group_id, next_at) values (@schedule, @group_id, clock_timestamp())
on conflict (schedule) do update set group_id = excluded.group_id, accepted = false, tries = 0, next_at = clock_timestamp(), error = ''
where user_group.group_id <> excluded.group_id;

-- name: ClaimGroup :many
-- Only where the members are not what they should be, and one replica at a time.
update user_group set next_at = clock_timestamp() + @lease::interval, attempt = attempt + 1
where schedule = @schedule and next_at <= clock_timestamp() and not (accepted and members = @members::text[])
returning attempt, tries;

-- name: GroupAccepted :exec
update user_group set members = @members::text[], accepted = true, tries = 0, error = '', next_at = clock_timestamp() + @pause::interval
where schedule = @schedule and attempt = @attempt;

-- name: GroupFailed :exec
update user_group set tries = tries + 1, error = @error, next_at = clock_timestamp() + @pause::interval
where schedule = @schedule and attempt = @attempt;

-- name: DropGroups :exec
delete from user_group where not schedule = any(@schedules::text[]);

-- name: GroupFails :one
select exists (select 1 from user_group where schedule = @schedule and error <> '')::boolean as found;
