-- +goose Up
-- What is over and older than the file's `retention` is purged. Additive: a replica of the version before purges nothing.

create index incident_old on incident (resolved_at, id) where state = 'resolved';
-- Deliveries that belong to no incident: tests of notifiers, and events about other things. Several may show one content.
create index delivery_alone on delivery (settled_at) where incident_id is null and settled_at is not null;
create index delivery_alone_content on delivery (content_id) where incident_id is null;
create index bulk_run_old on bulk_run (ended_at) where state <> 'running';

-- What is purged leaves room and wrong statistics behind; a fifth of a table with years of history would be much of both.
alter table incident set (autovacuum_vacuum_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05);
alter table alert set (autovacuum_vacuum_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05);
alter table timeline set (autovacuum_vacuum_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05);
alter table content set (autovacuum_vacuum_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05);

-- Drops the monthly partitions of attempts that ended before an instant and hold no attempt of a delivery that is still
-- there, and says which. Only deliveries that are as old can have one there; two days are room for a worker's wrong clock.
-- Dropping needs the whole of attempt for itself: it waits for others only a moment, and is tried again later.
-- +goose StatementBegin
create function drop_attempt_partitions(before timestamptz) returns setof text language plpgsql set lock_timeout = '300ms' as $$
declare
  part  text;
  upper timestamptz;
  held  boolean;
begin
  if not pg_try_advisory_xact_lock(hashtext('tocsin attempt partitions')) then
    return; -- another replica is at it
  end if;
  for part in
    select c.relname from pg_inherits i join pg_class c on c.oid = i.inhrelid
    where i.inhparent = 'attempt'::regclass and c.relname ~ '^attempt_\d{4}_\d{2}$' order by c.relname
  loop
    upper := (to_date(right(part, 7), 'YYYY_MM') + interval '1 month') at time zone 'UTC' + interval '2 days';
    if upper >= before then
      continue;
    end if;
    execute format('select exists (select from delivery d where d.id < uuid_at(%L) and exists (select from %I a where a.delivery_id = d.id))', upper, part) into held;
    if held then
      continue;
    end if;
    begin
      execute 'lock table attempt in access exclusive mode';
      execute format('select exists (select from delivery d where d.id < uuid_at(%L) and exists (select from %I a where a.delivery_id = d.id))', upper, part) into held;
      if not held then
        execute format('drop table %I', part);
        return next part;
      end if;
    exception when lock_not_available then
      raise notice '% is dropped another time', part;
      return;
    end;
  end loop;
end
$$;
-- +goose StatementEnd
