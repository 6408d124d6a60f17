-- +goose Up
-- What happens by itself to an incident that is open: a route's hours begin, a silence holds its escalation. And what was decided
-- about its alerts, and by which file. Additive: a replica of the version before sends with the source's next message only,
-- fires steps that are held, and keeps no decisions.

-- Alerts that a route would take and that came in outside of its hours. The row is their way back: when hours begin, however long
-- ago, what still fires is routed again.
create table resting_alert (
  incident_id uuid not null references incident on delete cascade,
  fingerprint text not null,
  opens_at    timestamptz not null,       -- when the hours of the first of the routes begin; sooner where a file has changed
  primary key (incident_id, fingerprint)
);
create index resting_alert_opens on resting_alert (opens_at);

-- An escalation whose incident is silenced as a whole stands still: since when. When the silence is over, its steps come as much
-- later as it stood.
alter table escalation add column held_at timestamptz;

-- Who moved a silence's end.
alter table silence add column edited_at timestamptz;
alter table silence add column edited_by text;

-- What the file said about an incident's alerts when they came in, or when a silence ended or hours began: each different answer
-- once, with the labels of the first alert that got it. Another file may be in force when somebody asks why.
create table routing (
  incident_id uuid not null references incident on delete cascade,
  hash        text not null,              -- of topic and body
  at          timestamptz not null,
  file        text not null,              -- checksum of the file in force
  topic       text not null,
  labels      jsonb not null,
  body        jsonb not null,
  primary key (incident_id, hash)
);
