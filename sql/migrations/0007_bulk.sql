-- +goose Up
-- Decisions on many dead deliveries at once, and what happened, for those who listen. Additive: a replica of the version
-- before works off no run and tells of nothing.

-- One decision on many deliveries: the set is fixed when it is made, and worked off by whichever replica has time.
create table bulk_run (
  id          uuid primary key,
  made_at     timestamptz not null,
  actor       text not null,
  action      text not null check (action in ('assume_delivered', 'cancel', 'send_again')),
  reason      text not null default '',
  filter      jsonb not null,
  per_second  integer not null check (per_second > 0),
  state       text not null check (state in ('running', 'done', 'canceled')),
  total       integer not null check (total >= 0),
  applied     integer not null default 0,
  skipped     integer not null default 0,
  paced_at    timestamptz not null,            -- what may be taken is what has gathered since then
  ended_at    timestamptz,
  canceled_by text,
  check ((state = 'running') = (ended_at is null)),
  check ((state = 'canceled') = (canceled_by is not null)),
  check (applied + skipped <= total)
) with (fillfactor = 70);
create index bulk_run_waiting on bulk_run (paced_at) where state = 'running';

-- Its set: a delivery with the state and effect that it had. What has moved since then is left alone.
create table bulk_item (
  run_id      uuid not null references bulk_run on delete cascade,
  delivery_id uuid not null,                   -- no foreign key: its triggers would cost the delivery's row
  incident_id uuid,
  notifier    text not null,
  state       text not null,
  effect      integer not null,
  reason      text not null default '',        -- of the delivery, when it was counted
  result      text check (result in ('applied', 'skipped')), -- null: not looked at yet
  why         text not null default '',        -- skipped: why
  primary key (run_id, delivery_id)
) with (fillfactor = 70);
create index bulk_item_waiting on bulk_item (run_id, incident_id, delivery_id) where result is null;

-- What happened, for those who listen. Written by the transaction that made it happen, and numbered later, by one at a
-- time: so the numbers stand in an order in which nothing can appear behind what somebody has read, and neither a slow
-- transaction nor a number that was lost with one holds anybody up.
create table event (
  id       bigint generated always as identity,
  sequence bigint,                             -- null: not numbered yet
  at       timestamptz not null,
  type     text not null,
  topic    text not null,
  body     json not null                       -- as it goes over the wire, but for its number
) with (fillfactor = 60);
create unique index event_sequence on event (sequence) where sequence is not null;
create index event_unnumbered on event (id) where sequence is null;
alter table event set (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
create sequence event_number;

-- Who was last told of as on call.
create table oncall_told (
  schedule text primary key,
  users    text[] not null,
  layer    text not null default '',
  at       timestamptz not null
);
