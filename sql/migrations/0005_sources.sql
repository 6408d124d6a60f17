-- +goose Up
-- Sources that must call every so often, and alerts that hold only as long as they are sent again. Additive: a replica of
-- the version before knows nothing of heartbeats and says of no alert how long it holds.

-- A heartbeat of the file, whichever replica's.
create table heartbeat (
  name      text primary key,
  since     timestamptz not null, -- when a replica's file first named it: silence counts from here before the first call
  listed_at timestamptz not null, -- when a replica's file last named it
  called_at timestamptz,
  missed_at timestamptz           -- when its self-alert was committed; null: it is not missed
);

-- Firing alerts whose source said until when they hold.
create index alert_holds on alert (ends_at) where status = 'firing' and ends_at is not null;
