-- Who may call now. All of it happens in one short transaction that locks the rows of pace by key.

-- name: LockPace :many
-- The beginnings of the last calls, locked, made where they are missing. The caller sorts the keys.
insert into pace (key) select unnest(@keys::text[]) on conflict (key) do update set begun = pace.begun returning key, begun;

-- name: SavePace :exec
-- The beginnings of all lie in one array, those of each key from one place to another: a batch has many of them.
update pace set begun = (@begun::timestamptz[])[v.first:v.last]
from (select unnest(@keys::text[]) as key, unnest(@firsts::int[]) as first, unnest(@lasts::int[]) as last) v
where pace.key = any(array[v.key]);

-- name: AheadInQueue :many
-- How many wait before each in its destination's queue, counted to @most, and how many of these sleep. One that was claimed
-- a moment ago counts until its attempt has begun: it may be told to wait. One that is due, or claimed, and not begun for a
-- while holds up nobody: its notifier may be unknown to all replicas by now, or hang, or its replica is gone. Those of @ids
-- are judged together.
select a.n::int as n, x.ahead::int as ahead, x.asleep::int as asleep
from (select unnest(@ns::int[]) as n, unnest(@queues::text[]) as queue, unnest(@priorities::int[]) as priority, unnest(@created::timestamptz[]) as created_at,
  unnest(@ids::uuid[]) as id) a
cross join lateral (
  select count(*) as ahead, count(*) filter (where w.lease_token is null) as asleep from (
    select d.lease_token from delivery d
    where d.queue = a.queue and (d.priority, d.created_at, d.id) < (a.priority, a.created_at, a.id) and d.id <> all(@ids)
      and case when d.lease_token is null then d.next_at > clock_timestamp() - interval '5 seconds'
        -- all replicas grant leases of one length: the later it ends, the later it was granted
        else d.lease_until > (select me.lease_until from delivery me where me.id = any(array[a.id])) - interval '5 seconds' end
    limit @most
  ) w
) x;

-- name: CallNext :execrows
-- The first of each queue is due when its turn comes: at once where somebody behind it has seen that there is one, else when the
-- slot after the call that begins now is free. What is asked of the row again is wrapped, so that no index but the key's is a
-- way to it.
with first as materialized (
  select (select d.id from delivery d where d.queue = q.queue and d.lease_token is null and d.next_at > clock_timestamp() - interval '5 seconds'
      order by d.priority, d.created_at, d.id limit 1) as id, q.seconds
  from (select unnest(@queues::text[]) as queue, unnest(@seconds::float8[]) as seconds) q
)
update delivery d set next_at = clock_timestamp() + make_interval(secs => first.seconds), version = d.version + 1
from first
where d.id = any(array[first.id]) and d.lease_token is null and coalesce(d.queue, '') <> ''
  and coalesce(d.next_at, '-infinity') > clock_timestamp() + make_interval(secs => first.seconds);

-- name: JoinQueue :exec
-- Those that are told to wait are seen in their queue from this moment on, not only when their leases end. It is their owner's
-- write, and fenced by their tokens.
with locked as materialized (
  select d.ctid as tid, u.queue from (select unnest(@ids::uuid[]) as id, unnest(@tokens::uuid[]) as token, unnest(@queues::text[]) as queue) u
  join delivery d on d.id = any(array[u.id]) where d.lease_token = u.token for update of d
)
update delivery d set queue = locked.queue from locked where d.ctid = locked.tid;

-- name: PurgePace :execrows
delete from pace where begun[cardinality(begun)] < clock_timestamp() - interval '1 day' or cardinality(begun) = 0;
