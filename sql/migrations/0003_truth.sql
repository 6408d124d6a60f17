-- +goose Up
-- What an attempt has left out, how far it got, and whose turn it is. Additive: a replica of the version before goes on
-- beside it; what it writes counts as a whole message that waits for no turn.

alter table attempt
  add column phase text not null default '', -- how far the call got on the wire: dns, connect, tls, request, answer
  add column form  text not null default ''; -- what was left out since the provider had refused it: no_metadata, no_buttons, plain, root

alter table delivery
  add column form    text not null default '',
  add column denials smallint not null default 0, -- tries that a webhook refused with 401 or 403
  add column queue   text,                        -- the destination whose turn it waits for; may be left on a row that an old replica settled
  add column overdue smallint not null default 0, -- page: 1 kept back longer than its bound, 2 and the escalation went on without it
  add constraint delivery_overdue_page check (overdue = 0 or overdue in (1, 2) and kind = 'page');
-- Those that wait for one destination, in the order in which they go.
create index delivery_queue on delivery (queue, priority, created_at, id) where queue is not null;
create index delivery_overdue on delivery (id) where overdue = 1;

-- What nothing is sent to for a while, and the account breakers: nothing is sent through the account until a probe finds
-- it mended. Small: a row a destination or account that is in trouble.
create table pause (
  key          text primary key,          -- the destination, the account with its file's checksum, or the look-ups of an account
  scope        text not null check (scope in ('destination', 'account', 'look_up')),
  account      text not null,             -- a name for the credentials that tells nothing of them
  notifier     text not null,             -- through which it was found
  checksum     text not null default '',  -- account: of the file that it was found with
  destination  text not null default '',  -- as attempts name it
  reason       text not null,
  code         text not null default '',
  sentence     text not null default '',
  since        timestamptz not null,
  until        timestamptz,               -- null: an account, until it is mended
  probe_at     timestamptz,               -- account: when it is next asked whether it is well
  probes       integer not null default 0,
  trial        uuid,                      -- account: the one delivery that may try, since a probe proves nothing
  announced_at timestamptz,               -- account: when its self-alert was committed
  check ((scope = 'account') = (until is null)),
  check ((scope = 'account') = (probe_at is not null))
);

-- When the last calls to a destination or account began. Not logged: after a crash the count begins anew, which costs a
-- 429 at most.
create unlogged table pace (
  key   text primary key,
  begun timestamptz[] not null default '{}'
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);

-- Chats that have another id by now: Telegram's groups that became supergroups.
create table moved_chat (
  account  text not null,
  address  text not null,
  moved_to text not null,
  at       timestamptz not null,
  primary key (account, address)
);

create or replace view attempt_history as
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
       a.late_at,
       a.phase,
       a.form,
       a.answer,
       a.reference,
       a.late_reference
from attempt a
left join delivery d on d.id = a.delivery_id;
