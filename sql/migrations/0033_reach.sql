-- +goose Up
-- Whether those who are on call soon can be reached, and the chat's groups that are kept equal to a schedule. Additive: a replica of
-- the version before looks at neither.

-- What was found about each way to each person who is on call within days.
create table reach (
  user_id    text not null,
  via        text not null,                 -- a notifier; empty: the person has no way at all
  due_at     timestamptz not null,          -- when it is looked at next
  checked_at timestamptz,                   -- null: not yet
  closed     boolean not null default false,
  since      timestamptz,                   -- closed: since when that is known
  reason     text not null default '',
  sentence   text not null default '',
  primary key (user_id, via),
  check (closed = (since is not null))
);

-- Of whom it was told that they can't be reached; the row is there as long as that is so.
create table reach_told (
  schedule text not null,
  user_id  text not null,
  what     text not null,                   -- the ways that are closed, and how bad it is
  at       timestamptz not null,
  primary key (schedule, user_id)
);

-- User groups of a chat.
create table user_group (
  schedule   text primary key,
  group_id   text not null,
  members    text[] not null default '{}',  -- as the chat accepted them last
  accepted   boolean not null default false,
  tries      integer not null default 0,    -- that failed since
  next_at    timestamptz not null,          -- not to be called before; of a call under way, the end of its time
  attempt    bigint not null default 0,     -- whose answer counts
  error      text not null default ''
);
