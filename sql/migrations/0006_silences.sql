-- +goose Up
-- Silences, and the alerts that they keep back. Additive: a replica of the version before knows no silence and sends.

create table silence (
  id         uuid primary key,
  created_at timestamptz not null,
  match      text not null default '',    -- topic pattern; empty: every topic
  matchers   text[] not null default '{}',
  starts_at  timestamptz not null,
  ends_at    timestamptz not null,        -- ended before its time: when that was
  reason     text not null,
  author     text not null,               -- a name for people; the audit trail says through which token
  ended_by   text,                        -- who ended it before its time
  check (ends_at >= starts_at),
  check (match <> '' or cardinality(matchers) > 0) -- to silence everything must be said outright
);
create index silence_ends on silence (ends_at);

-- Alerts that are stored and shown and were not sent, since a silence hides them. The row is their way back: when the silence is
-- over, however long that was ago, what still fires is sent and the row goes.
create table silenced_alert (
  incident_id uuid not null references incident on delete cascade,
  fingerprint text not null,
  silence_id  uuid not null references silence,
  notify      text[] not null default '{}', -- the notifiers that the alert named itself
  primary key (incident_id, fingerprint)
);
create index silenced_alert_silence on silenced_alert (silence_id);
