-- API tokens. Only hashes are kept; a revoked name stays, so that the audit trail keeps its meaning.

-- name: AddToken :execrows
insert into token (name, hash, scopes, created_at)
values (@name, @hash, @scopes, clock_timestamp())
on conflict do nothing;

-- name: LiveTokens :many
select name, hash, scopes from token where revoked_at is null order by name;

-- name: ListTokens :many
select name, scopes, created_at, revoked_at from token order by created_at desc, name limit @most;

-- name: RevokeToken :execrows
update token set revoked_at = clock_timestamp() where name = @name and revoked_at is null;

-- name: HasTokens :one
select exists (select from token where revoked_at is null);
