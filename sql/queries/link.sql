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

-- name: RemoveAccount :execrows
delete from account where provider = @provider and account_id = @account_id and user_id = @user_id;

-- name: TakeLinkCodesOf :many
-- Uses up all codes that an account was shown: it is linked.
delete from link_code where provider = @provider and account_id = @account_id returning *;

-- name: AddInvitation :exec
insert into invitation (hash, user_id, made_by, created_at, expires_at) values (@hash, @user_id, @made_by, clock_timestamp(), clock_timestamp() + @ttl::interval);

-- name: TakeInvitation :one
delete from invitation where hash = @hash and expires_at > now() returning *;

-- name: DropStaleInvitations :exec
delete from invitation where expires_at < now() - interval '1 hour';

-- name: AccountUser :one
select user_id from account where provider = @provider and account_id = @account_id;

-- name: UnlinkedPages :many
-- Pages of open incidents that died for want of a linked account. The list of states is that of the index delivery_dead.
select d.id, d.incident_id::uuid as incident_id, d.notifier, d.target from delivery d join incident i on i.id = d.incident_id
where d.state in ('rejected', 'unreachable', 'held', 'exhausted', 'expired') and d.state = 'unreachable' and d.reason = 'no_linked_account' and d.kind = 'page' and i.state = 'open'
order by d.settled_at desc, d.id desc limit @most;
