-- +goose Up
-- A snoozed incident is acknowledged and rings again at this time, unless somebody resolves or acknowledges it before. An older
-- replica neither reads nor writes it; one of the newer ones rings.
alter table incident add column snoozed_until timestamptz;
create index incident_snoozed on incident (snoozed_until) where snoozed_until is not null;
