-- +goose Up
-- The words are those of ARCHITECTURE.md. States are text with CHECK, so that an old and a new replica can share the
-- tables during a rolling upgrade; the CHECKs repeat the invariants that the code relies on.

-- Lower bound of the uuid v7 made at an instant: attempts are partitioned by their time-ordered id.
-- +goose StatementBegin
create function uuid_at(t timestamptz) returns uuid language sql immutable parallel safe as $$
  select (lpad(to_hex(floor(extract(epoch from t) * 1000)::bigint), 12, '0') || '70008000000000000000')::uuid
$$;
-- +goose StatementEnd

create table incident (
  id              uuid primary key,
  key             text not null,             -- grouping key: one live incident each
  source          text not null,             -- native, alertmanager, or a source's name
  topic           text not null,             -- of the first alert
  title           text not null,
  state           text not null check (state in ('open', 'acknowledged', 'resolved')),
  criticality     text not null,             -- the highest firing one
  count           bigint not null default 0, -- firings received, re-sends included
  firing          integer not null default 0 check (firing >= 0),   -- fingerprints
  resolved        integer not null default 0 check (resolved >= 0), -- fingerprints
  truncated       integer not null default 0, -- alerts that the source left out of its last message
  revision        integer not null default 1, -- of what cards show
  sequence        integer not null default 0, -- last one of the timeline
  opened_at       timestamptz not null,
  acknowledged_at timestamptz,
  acknowledged_by text,
  resolved_at     timestamptz,
  resolved_by     text,
  check ((state = 'resolved') = (resolved_at is not null))
);
create unique index incident_live on incident (key) where state <> 'resolved';
create index incident_ended on incident (key, resolved_at desc) where state = 'resolved';

-- One row per fingerprint within an incident; a re-send updates it.
create table alert (
  id            uuid primary key,
  incident_id   uuid not null references incident on delete cascade,
  fingerprint   text not null,
  topic         text not null,
  criticality   text not null,
  status        text not null check (status in ('firing', 'resolved')),
  title         text not null,
  text          text not null default '',
  labels        jsonb not null default '{}',
  links         jsonb not null default '[]',
  starts_at     timestamptz not null,
  ends_at       timestamptz,
  count         bigint not null default 1,
  first_seen_at timestamptz not null,
  last_seen_at  timestamptz not null,
  unique (incident_id, fingerprint)
);

create table timeline (
  incident_id uuid not null references incident on delete cascade,
  sequence    integer not null,
  at          timestamptz not null,
  actor       text not null,
  type        text not null,
  text        text not null default '',
  primary key (incident_id, sequence)
);

-- What deliveries show, at its newest revision: an incident's snapshot (id = the incident's) or a notification's text.
create table content (
  id       uuid primary key,
  revision integer not null,
  body     jsonb not null
);

-- The unit that is claimed. Narrow and hot: content lies beside it, history in attempt.
create table delivery (
  id           uuid primary key,
  incident_id  uuid references incident on delete cascade,
  content_id   uuid,                           -- whose content it shows; written before it in the same transaction, and no
                                               -- foreign key: its triggers would cost every write of this row
  kind         text not null check (kind in ('page', 'call', 'sms', 'card', 'thread', 'notice', 'event', 'bulk')),
  priority     smallint not null,
  notifier     text not null,
  target       text not null,
  state        text not null check (state in ('pending', 'sent', 'assumed', 'canceled', 'rejected', 'unreachable', 'held', 'exhausted', 'expired')),
  reason       text not null default '',
  sentence     text not null default '',
  next_at      timestamptz,                    -- when it next needs a worker: due, retry, or the lease's end
  lease_token  uuid,
  lease_until  timestamptz,
  worker       text not null default '',
  version      bigint not null default 0,      -- raised by every write, so that a finish sees what was noted meanwhile
  effect       integer not null default 1,
  desired      integer not null default 1,
  applied      integer not null default 0,
  reference    jsonb,
  attempts     integer not null default 0,
  tries        integer not null default 0,     -- failed and unknown ones of the current effect
  open_attempt uuid,
  doubt        jsonb,                          -- effect, key, address, since, revision, through
  stop_state   text,
  stop_reason  text,
  card_id      uuid,                           -- thread: whose thread it is; page: whose link it carries
  wait_until   timestamptz,
  expires_at   timestamptz,
  lifetime     interval,                       -- what expires_at was made from, and is again when it is sent again
  step_id      uuid,                           -- page: the escalation step that made it
  created_at   timestamptz not null,
  called_at    timestamptz,                    -- when its first attempt began
  settled_at   timestamptz,
  announced_at timestamptz,                    -- dead: when its self-alert was committed
  check ((lease_token is null) = (lease_until is null)),
  check ((state = 'pending') = (next_at is not null)),
  check ((state = 'pending') = (settled_at is null)),
  check (lease_token is null or state = 'pending'),
  check (open_attempt is null or lease_token is not null),
  check (applied <= desired),
  check ((stop_state is null) = (stop_reason is null))
) with (fillfactor = 70);
-- The one index for claims and takeovers: a lane is a notifier and a priority.
create index delivery_due on delivery (notifier, priority, next_at) where next_at is not null;
create index delivery_incident on delivery (incident_id) where incident_id is not null;
create index delivery_card on delivery (card_id) where card_id is not null;
create index delivery_dead on delivery (settled_at desc, id desc) where state in ('rejected', 'unreachable', 'held', 'exhausted', 'expired');
-- A dead row is its own outbox until its self-alert is committed.
create index delivery_unannounced on delivery (settled_at) where announced_at is null and state in ('rejected', 'unreachable', 'held', 'exhausted', 'expired');
create index delivery_lifetime on delivery (expires_at) where expires_at is not null and settled_at is null;
alter table delivery set (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);

-- Append-mostly, dropped by partition at the end of retention. No foreign key: the rows' lives end apart.
create table attempt (
  id             uuid not null,               -- uuid v7 made by the worker: the partition key, time-ordered
  delivery_id    uuid not null,
  number         integer not null,
  effect         integer not null,
  effect_key     text not null,
  revision       integer not null,
  operation      text not null check (operation in ('create', 'edit', 'reply')),
  address        text not null,
  worker         text not null,
  lease_token    uuid not null,
  started_at     timestamptz not null,
  finished_at    timestamptz,
  outcome        text check (outcome in ('sent', 'failed', 'unknown')),
  evidence       text check (evidence in ('not_called', 'not_sent', 'possibly_sent', 'answered')),
  closed_by      text check (closed_by in ('worker', 'takeover', 'shutdown', 'reconcile')),
  fault          text not null default '',
  reason         text not null default '',
  error          text not null default '',
  provider_code  text not null default '',
  http_status    integer,
  bytes_written  bigint,
  dns_ms         double precision,
  connect_ms     double precision,
  tls_ms         double precision,
  first_byte_ms  double precision,
  duration_ms    double precision,
  answer         text not null default '',
  reference      jsonb,
  late_outcome   text check (late_outcome in ('sent', 'failed', 'unknown')),
  late_reference jsonb,
  late_at        timestamptz,
  primary key (id),
  check ((outcome is null) = (finished_at is null)),
  check ((outcome is null) = (closed_by is null))
) partition by range (id);
create table attempt_default partition of attempt default;
create index attempt_delivery on attempt (delivery_id, number);

-- Makes the monthly partitions from this month on. Rows whose worker's clock lay outside them are in the default
-- partition; a month that has some there stays there. A new partition needs the whole of attempt for itself: it waits for
-- readers only a moment, since the worker's writes wait behind it meanwhile, and there are weeks to try it again.
-- +goose StatementBegin
create function add_attempt_partitions(months integer) returns void language plpgsql set lock_timeout = '300ms' as $$
declare
  first timestamptz := date_trunc('month', clock_timestamp() at time zone 'UTC') at time zone 'UTC';
  lower timestamptz;
  upper timestamptz;
  part  text;
begin
  if not pg_try_advisory_xact_lock(hashtext('tocsin attempt partitions')) then
    return; -- another replica is at it
  end if;
  for i in 0..months loop
    lower := first + make_interval(months => i);
    upper := first + make_interval(months => i + 1);
    part := 'attempt_' || to_char(lower at time zone 'UTC', 'YYYY_MM');
    if to_regclass(part) is null then
      begin
        -- A row is written twice, at begin and at finish: room on its page keeps the second write off the indexes.
        execute format('create table %I partition of attempt for values from (%L) to (%L) with (fillfactor = 45)', part, uuid_at(lower), uuid_at(upper));
      exception when check_violation then
        raise notice 'attempts of % stay in the default partition', part;
      end;
    end if;
  end loop;
end
$$;
-- +goose StatementEnd
select add_attempt_partitions(2);

-- A person's word on a delivery.
create table decision (
  id          uuid primary key,
  delivery_id uuid not null references delivery on delete cascade,
  at          timestamptz not null,
  actor       text not null,
  action      text not null check (action in ('assume_delivered', 'cancel', 'send_again')),
  reason      text not null default '',
  from_state  text not null,
  effect      integer not null
);
create index decision_delivery on decision (delivery_id, at);

-- Due steps of escalations. Done steps stay as history.
create table escalation (
  id          uuid primary key,
  incident_id uuid not null references incident on delete cascade,
  name        text not null,
  round       integer not null,
  step        integer not null,
  due_at      timestamptz,                     -- null: fired or withdrawn
  state       text not null check (state in ('due', 'fired', 'withdrawn')),
  reason      text not null default '',
  fired_at    timestamptz,
  unique (incident_id, name, round, step),
  check ((state = 'due') = (due_at is not null))
);
create index escalation_due on escalation (due_at) where due_at is not null;

-- Chat accounts linked to people.
create table account (
  provider   text not null check (provider in ('slack', 'telegram')),
  account_id text not null,
  user_id    text not null,
  linked_at  timestamptz not null,
  linked_by  text not null,
  primary key (provider, account_id)
);
create index account_user on account (user_id, provider);

-- One-time codes by which a person links an account; only the code's hash is kept. The press that asked for it is
-- applied once the account is linked.
create table link_code (
  hash        bytea primary key,
  provider    text not null check (provider in ('slack', 'telegram')),
  account_id  text not null,
  account     text not null default '',        -- the name the chat showed
  press       jsonb,
  created_at  timestamptz not null,
  expires_at  timestamptz not null
);

-- Each callback once: a provider redelivers what it saw no answer to.
create table callback (
  key    text primary key,
  at     timestamptz not null,
  result text not null default ''
);
create index callback_at on callback (at);

-- The first answer of a request with an Idempotency-Key.
create table idempotency (
  token      text not null,                     -- name of the API token: keys of two senders never meet
  key        text not null,
  body_hash  bytea not null,
  status     integer not null,
  answer     jsonb not null,
  created_at timestamptz not null,
  primary key (token, key)
);
create index idempotency_at on idempotency (created_at);

-- Live replicas: heartbeat, and what their file knows.
create table replica (
  id         text primary key,
  started_at timestamptz not null,
  seen_at    timestamptz not null,
  checksum   text not null,
  notifiers  text[] not null,
  version    text not null default ''
);

-- A notifier that some delivery waits for and no live replica's file knows, since when.
create table missing_notifier (
  notifier text primary key,
  since    timestamptz not null
);

-- API tokens made by `tocsin token create`; only the hash is kept.
create table token (
  name       text primary key,
  hash       bytea not null unique,
  scopes     text[] not null,
  created_at timestamptz not null,
  revoked_at timestamptz
);

-- Who did what through the API, the chats and the command line.
create table audit (
  id     uuid primary key,
  at     timestamptz not null,
  actor  text not null,
  action text not null,
  object text not null,
  detail text not null default ''
);
create index audit_at on audit (at desc);
create index audit_object on audit (object, at);
