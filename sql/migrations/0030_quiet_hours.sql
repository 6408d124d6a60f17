-- +goose Up
-- Escalations that rest until somebody's quiet hours are over. Additive: a replica of the version before pages at night.
alter table escalation add column rests boolean not null default false; -- due: moved to the end of quiet hours, and all that follow it
