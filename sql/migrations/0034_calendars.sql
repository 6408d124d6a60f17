-- +goose Up
-- Imported calendars: the last good copy of each, which all replicas go by. Additive: a replica of the version before refuses a file
-- that names one.

create sequence calendar_version;

create table calendar (
  id         text primary key,              -- a hash of its address and its zone: the address is a secret
  version    bigint not null default 0,     -- of the copy; none is ever used twice. 0: there is no copy yet
  fetched_at timestamptz,                   -- when the copy was last found to be what the calendar says
  events     jsonb not null default '[]',   -- spans with those whom they name, recurrences written out
  problems   text[] not null default '{}',  -- what in the copy could not be understood
  next_at    timestamptz not null,          -- not to be fetched before; of a fetch under way, the end of its time
  attempt    bigint not null default 0,     -- whose answer counts
  tries      integer not null default 0,    -- that failed since the last that did not
  failed_at  timestamptz,                   -- the first of these
  error      text not null default '',      -- of the last
  listed_at  timestamptz not null,          -- when a replica's file last named it
  check ((version = 0) = (fetched_at is null)),
  check ((tries = 0) = (failed_at is null)),
  check ((tries = 0) = (error = ''))
);

-- Of which layers it was told that their calendar is not as it should be; the row is there as long as that is so.
create table calendar_told (
  schedule text not null,
  layer    text not null,
  what     text not null,
  at       timestamptz not null,
  primary key (schedule, layer)
);
