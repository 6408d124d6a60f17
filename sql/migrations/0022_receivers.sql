-- +goose Up
-- A bot that is asked for what people do, instead of calling: the holder of the lease asks, and nobody else. What it was given is
-- stored in the transaction that moves next_update on, so that nothing is lost between two holders and nothing is stored twice.
create table poller (
  account     text primary key,          -- of the notifiers' credentials
  token       uuid not null,
  holder      text not null,             -- the replica
  lease_until timestamptz not null,
  next_update bigint not null default 0  -- the first update that is not stored
);

-- How each replica's receivers stand, for people: a connection, or why there is none. An older replica has none.
create table receiver (
  replica  text not null,
  notifier text not null,
  kind     text not null check (kind in ('socket', 'poll')),
  state    text not null check (state in ('connected', 'waiting', 'failed')),
  detail   text not null default '',
  since    timestamptz not null,
  seen_at  timestamptz not null,
  primary key (replica, notifier)
);
