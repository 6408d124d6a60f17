-- Chat accounts and the one-time codes by which people link them.

-- name: AddLinkCode :exec
insert into link_code (hash, provider, account_id, account, press, created_at, expires_at)
values (@hash, @provider, @account_id, @account, @press, clock_timestamp(), clock_timestamp() + @ttl::interval);

-- name: ReadLinkCode :one
select * from link_code where hash = @hash and expires_at > now();

-- name: TakeLinkCode :one
delete from link_code where hash = @hash and expires_at > now() returning *;

-- name: DropStaleLinkCodes :exec
delete from link_code where expires_at < now() - interval '1 hour';

-- name: PutAccount :exec
insert into account (provider, account_id, user_id, linked_at, linked_by)
values (@provider, @account_id, @user_id, clock_timestamp(), @linked_by)
on conflict (provider, account_id) do update set user_id = excluded.user_id, linked_at = excluded.linked_at, linked_by = excluded.linked_by;

-- name: AccountUser :one
select user_id from account where provider = @provider and account_id = @account_id;
