-- First answers of requests with an Idempotency-Key.

-- name: ClaimIdempotency :execrows
-- The row is the lock: a second request with the key waits here until the first one's transaction is over.
insert into idempotency (token, key, body_hash, status, answer, created_at)
values (@token, @key, @body_hash, 0, 'null', clock_timestamp())
on conflict (token, key) do nothing;

-- name: ReadIdempotency :one
select * from idempotency where token = @token and key = @key;

-- name: SaveIdempotency :exec
update idempotency set status = @status, answer = @answer where token = @token and key = @key;
