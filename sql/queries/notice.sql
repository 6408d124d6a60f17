-- Notices about shifts.

-- name: TryLockNotices :one
-- One replica at a time works on them: each compares all that is there with all that the schedules say.
select pg_try_advisory_xact_lock(hashtext('tocsin.shift_notice'))::boolean as locked;

-- name: ShiftNotices :many
-- Those that are due after a time, and those of turns that go on then.
select * from shift_notice where due_at > @after or ends_at > @after or ends_at is null order by schedule, user_id, what, at;

-- name: PutShiftNotice :exec
insert into shift_notice (schedule, user_id, what, at, starts_at, ends_at, due_at, delivery_id, content_id)
values (@schedule, @user_id, @what, @at, sqlc.narg(starts_at), sqlc.narg(ends_at), @due_at, @delivery_id, @content_id)
on conflict (schedule, user_id, what, at) do update set starts_at = excluded.starts_at, ends_at = excluded.ends_at, due_at = excluded.due_at,
  delivery_id = excluded.delivery_id, content_id = excluded.content_id, withdrawn = false;

-- name: WithdrawShiftNotice :exec
update shift_notice set withdrawn = true where delivery_id = @delivery_id;

-- name: PurgeShiftNotices :execrows
delete from shift_notice where ctid = any(array(select n.ctid from shift_notice n
  where n.due_at < now() - @age::interval and n.ends_at < now() - @age::interval limit @most));
