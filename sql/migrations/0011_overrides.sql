-- +goose Up
-- Overrides of schedules, and the gaps that were told of. Additive: a replica of the version before goes by the layers alone.

-- A row stays when its time is over: who was on call is asked for long after.
create table schedule_override (
  id         uuid primary key,
  created_at timestamptz not null,
  schedule   text not null,
  user_id    text not null,
  instead_of text not null default '',         -- only this person is replaced; empty: everybody is
  gaps       boolean not null default false,   -- it covers gaps as well
  starts_at  timestamptz not null,
  ends_at    timestamptz not null,             -- ended before its time: when that was
  reason     text not null default '',
  author     text not null,                    -- a name for people; the audit trail says through which token
  swap_id    uuid,                             -- the same on both halves of a swap
  ended_by   text,                             -- who ended it before its time
  check (ends_at > starts_at or ends_at = starts_at and ended_by is not null),
  check (not (gaps and instead_of <> ''))
);
create index schedule_override_ends on schedule_override (ends_at);

-- The next gap of each schedule that was told of.
create table gap_told (
  schedule  text primary key,
  begins_at timestamptz not null,
  at        timestamptz not null
);
