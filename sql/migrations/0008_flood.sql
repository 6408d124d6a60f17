-- +goose Up
-- One incident may hold tens of thousands of alerts: what is read of it with each further one must not grow with them.

-- The newest, firing first: what cards show.
create index alert_shown on alert (incident_id, (status = 'firing') desc, starts_at desc, id desc);
-- Which criticalities fire.
create index alert_rank on alert (incident_id, criticality) where status = 'firing';
