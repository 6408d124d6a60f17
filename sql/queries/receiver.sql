-- Chats that are asked for what people do: who asks, how far they have come, and how each replica stands.

-- name: HoldPoller :many
-- Takes the lease where it is free, or renews one's own. No row: another replica has it.
insert into poller (account, token, holder, lease_until) values (@account, @token, @holder, clock_timestamp() + @ttl::interval)
on conflict (account) do update set token = excluded.token, holder = excluded.holder, lease_until = excluded.lease_until
where poller.token = excluded.token or poller.lease_until <= clock_timestamp()
returning next_update;

-- name: ReleasePoller :exec
update poller set lease_until = clock_timestamp() where account = @account and token = @token;

-- name: PollerHolder :many
select holder from poller where account = @account and lease_until > clock_timestamp();

-- name: AdvancePoller :execrows
update poller set next_update = greatest(next_update, @next_update::bigint)
where account = @account and token = @token and lease_until > clock_timestamp();

-- name: PutReceiver :exec
insert into receiver (replica, notifier, kind, state, detail, since, seen_at) values (@replica, @notifier, @kind, @state, @detail, clock_timestamp(), clock_timestamp())
on conflict (replica, notifier) do update set kind = excluded.kind, state = excluded.state, detail = excluded.detail, seen_at = excluded.seen_at,
  since = case when receiver.state = excluded.state then receiver.since else excluded.since end;

-- name: DropReceiver :exec
delete from receiver where replica = @replica and notifier = @notifier;

-- name: DropReceiversOf :exec
delete from receiver where replica = @replica;

-- name: Receivers :many
select * from receiver where seen_at > clock_timestamp() - @alive::interval order by notifier, replica;

-- name: DropStaleReceivers :exec
delete from receiver where seen_at < clock_timestamp() - interval '1 day';
