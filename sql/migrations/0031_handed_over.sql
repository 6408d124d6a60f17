-- +goose Up
-- Who got a page of their own since the page of a target was bound to somebody else: each person once for each page of a step.
-- Additive: a replica of the version before hands over nothing.
create table handed_over (
  incident_id uuid not null references incident on delete cascade,
  step_id     uuid not null,          -- of the escalation; all zeros where no step made the page
  notifier    text not null,
  target      text not null,
  user_id     text not null,
  delivery_id uuid not null,          -- the page that the person got
  at          timestamptz not null,
  primary key (incident_id, step_id, notifier, target, user_id)
);
