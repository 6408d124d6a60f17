-- +goose Up
-- What people are told of their shifts: each notice once for each shift and person, whichever replica sees it first. A row is made a day ahead and
-- stays when its time is over: it is what keeps a changed schedule from telling the same person twice. Additive: a replica of the
-- version before tells nothing.
create table shift_notice (
  schedule    text not null,
  user_id     text not null,
  what        text not null check (what in ('start', 'end', 'evening')),
  at          timestamptz not null,      -- the start or end that it tells of
  starts_at   timestamptz,               -- of the person's whole turn; null: since ever
  ends_at     timestamptz,               -- null: for ever
  due_at      timestamptz not null,
  delivery_id uuid not null,
  content_id  uuid not null,
  withdrawn   boolean not null default false, -- the shift was edited away before it was told
  primary key (schedule, user_id, what, at)
);
create index shift_notice_due on shift_notice (due_at);
