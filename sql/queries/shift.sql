-- Who is on call around now, as the file and the overrides say; the view oncall_now reads it.

-- name: LockShifts :exec
-- One replica at a time: two that write the same rows in different orders would wait for each other.
select pg_advisory_xact_lock(hashtext('tocsin.oncall_shift'));

-- name: ReadShifts :many
select * from oncall_shift order by schedule collate "C", layer collate "C", user_id collate "C", since;

-- name: DropShifts :exec
delete from oncall_shift;

-- name: AddShift :exec
insert into oncall_shift (schedule, layer, user_id, user_name, since, until)
values (@schedule, @layer, @user_id, @user_name, @since, @until);
