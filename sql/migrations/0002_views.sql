-- +goose Up
-- The views are a public interface: dashboards and incident reviews are written against these columns. Columns are only
-- ever added, at the end.

-- Who is on call around now. The schedules live in the file, so the replicas write down what the file says for the
-- coming days; oncall_now picks what covers the database's present.
create table oncall_shift (
  schedule  text not null,
  layer     text not null,
  user_id   text not null,
  user_name text not null,
  since     timestamptz not null,
  until     timestamptz,                       -- null: no end in sight
  primary key (schedule, layer, user_id, since),
  check (until is null or until > since)
);

-- A line per attempt: who, what, when, how far it got, and why.
create view attempt_history as
select a.delivery_id,
       d.incident_id,
       d.kind,
       d.notifier,
       d.target,
       a.number as attempt_no,
       a.effect,
       a.effect_key,
       a.revision,
       a.operation,
       a.address,
       a.outcome,
       a.evidence,
       a.reason,
       a.error,
       a.provider_code,
       a.http_status,
       a.bytes_written,
       a.dns_ms,
       a.connect_ms,
       a.tls_ms,
       a.first_byte_ms,
       a.duration_ms,
       a.worker,
       a.started_at,
       a.finished_at,
       a.closed_by,
       a.late_outcome,
       a.late_at
from attempt a
left join delivery d on d.id = a.delivery_id;

-- Every delivery with what it is for and where it stands.
create view delivery_board as
select d.id as delivery_id,
       d.incident_id,
       i.title,
       d.kind,
       d.notifier,
       d.target,
       d.state,
       d.reason,
       d.sentence,
       d.effect,
       d.attempts,
       d.created_at,
       d.next_at,
       d.settled_at,
       d.open_attempt is not null as in_flight
from delivery d
left join incident i on i.id = d.incident_id;

-- The dead letter box: what waits for a person's decision.
create view dead_letters as
select d.id as delivery_id,
       d.incident_id,
       d.kind,
       d.notifier,
       d.target,
       d.state,
       d.reason,
       d.sentence,
       (select a.error from attempt a where a.delivery_id = d.id and a.error <> '' order by a.number desc limit 1) as last_error,
       d.attempts,
       d.doubt is not null as in_doubt,
       d.settled_at as died_at,
       d.announced_at
from delivery d
where d.state in ('rejected', 'unreachable', 'held', 'exhausted', 'expired');

-- What each card should show and what it shows.
create view card_state as
select d.incident_id,
       d.id as delivery_id,
       d.notifier,
       d.state,
       d.desired as desired_revision,
       d.applied as applied_revision,
       d.reference
from delivery d
where d.kind = 'card';

-- Who is on call at this moment.
create view oncall_now as
select s.schedule,
       s.user_id,
       s.user_name,
       s.layer,
       s.since,
       s.until
from oncall_shift s
where s.since <= now() and (s.until is null or s.until > now());

-- A role for people and dashboards that may read the views and nothing else. Where the migrating role may not make
-- roles, an administrator makes it and grants the same; several databases of one server may be migrated at once.
-- +goose StatementBegin
do $$
begin
  if not exists (select from pg_roles where rolname = 'tocsin_reader') then
    create role tocsin_reader nologin;
  end if;
exception
  when insufficient_privilege then
    raise notice 'role tocsin_reader was not created: this role may not create roles';
  when duplicate_object or unique_violation then
    null; -- another migration made it at the same moment
end
$$;
-- +goose StatementEnd
-- +goose StatementBegin
do $$
begin
  if exists (select from pg_roles where rolname = 'tocsin_reader') then
    grant select on attempt_history, delivery_board, dead_letters, card_state, oncall_now to tocsin_reader;
  end if;
end
$$;
-- +goose StatementEnd
