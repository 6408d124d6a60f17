-- What people did in chats: stored once, by the key that every redelivery has, answered, and then applied.

-- name: ReceiveCallback :execrows
insert into callback (key, at, body, due_at) values (@key, clock_timestamp(), @body, clock_timestamp() + @hold::interval) on conflict (key) do nothing;

-- name: FirstCallback :execrows
-- In the transaction that applies it: no row means that another one has. A key that nobody stored before is stored as applied.
insert into callback (key, at) values (@key, clock_timestamp())
on conflict (key) do update set due_at = null, body = null where callback.due_at is not null;

-- name: DueCallbacks :many
-- Those whose replica did not come to apply them, each given to one replica for a while.
update callback set due_at = clock_timestamp() + @hold::interval
where key = any(array(select c.key from callback c where c.due_at <= now() order by c.due_at limit @most for update skip locked))
returning key, body, (clock_timestamp() - at)::interval as age;

-- name: CloseCallback :exec
update callback set due_at = null, body = null, result = @result where key = @key and due_at is not null;
