-- +goose Up
-- One incident may hold tens of thousands of alerts: what is read of it with each further one must not grow with them.

-- The newest, firing first: what cards show.
create index alert_shown on alert (incident_id, (status = 'firing') desc, starts_at desc, id desc);
-- By that index whatever the statistics say: those of a quiet hour make the planner read and sort all of them.
-- +goose StatementBegin
create function shown_alerts(of_incident uuid, most integer) returns setof uuid language plpgsql stable
  set enable_sort = off set enable_bitmapscan = off set enable_seqscan = off set plan_cache_mode = force_generic_plan as $$
begin
  return query select a.id from alert a where a.incident_id = of_incident order by (a.status = 'firing') desc, a.starts_at desc, a.id desc limit most;
end
$$;
-- +goose StatementEnd
-- Which criticalities fire.
create index alert_rank on alert (incident_id, criticality) where status = 'firing';
