-- What intake needs beside the plain rows: whole groups of alerts at once.

-- name: PutAlerts :exec
-- Alerts of whole groups in one statement, and what listeners are told of them, where that is not empty. No fingerprint of an
-- incident may occur twice in it.
with v as (
  select unnest(@ids::uuid[]) as id, unnest(@incident_ids::uuid[]) as incident_id, unnest(@fingerprints::text[]) as fingerprint, unnest(@topics::text[]) as topic,
    unnest(@criticalities::text[]) as criticality, unnest(@statuses::text[]) as status, unnest(@titles::text[]) as title,
    unnest(@texts::text[]) as text, unnest(@labels::text[]) as labels, unnest(@links::text[]) as links,
    unnest(@starts_ats::timestamptz[]) as starts_at, unnest(@endeds::boolean[]) as ended, unnest(@ends_ats::timestamptz[]) as ends_at,
    unnest(@counts::bigint[]) as count, unnest(@tolds::text[]) as told
), told as (
  insert into event (at, type, topic, body) select clock_timestamp(), 'alert', v.topic, v.told::json from v where v.told <> ''
)
insert into alert (id, incident_id, fingerprint, topic, criticality, status, title, text, labels, links, starts_at, ends_at, count, first_seen_at, last_seen_at)
select v.id, v.incident_id, v.fingerprint, v.topic, v.criticality, v.status, v.title, v.text, v.labels::jsonb, v.links::jsonb, v.starts_at,
  case when v.ended then v.ends_at end, v.count, clock_timestamp(), clock_timestamp()
from v
on conflict (incident_id, fingerprint) do update set topic = excluded.topic, criticality = excluded.criticality, status = excluded.status,
  title = excluded.title, text = excluded.text, labels = excluded.labels, links = excluded.links, starts_at = excluded.starts_at,
  ends_at = excluded.ends_at, count = excluded.count, last_seen_at = excluded.last_seen_at;

-- name: FiringCriticalities :many
-- A skip scan over the index alert_rank: as many steps as there are criticalities, however many alerts fire.
with recursive ranks as (
  (select a.criticality from alert a where a.incident_id = @incident_id and a.status = 'firing' order by a.criticality limit 1)
  union all
  select (select a.criticality from alert a where a.incident_id = @incident_id and a.status = 'firing' and a.criticality > r.criticality order by a.criticality limit 1)
  from ranks r where r.criticality is not null
)
select ranks.criticality::text as criticality from ranks where ranks.criticality is not null;

-- name: LastAnnounced :one
-- When an incident of a key was opened last that told somebody.
select coalesce(max(i.opened_at), 'epoch'::timestamptz)::timestamptz as at from incident i
where i.key = @key and i.state = 'resolved' and exists (select 1 from delivery d where d.incident_id = i.id);

-- name: AnyUnrouted :one
-- Whether a live incident of a topic has no delivery at all, and no silence is the cause.
select exists (
  select 1 from incident i where i.state <> 'resolved' and i.topic = @topic and not exists (select 1 from delivery d where d.incident_id = i.id)
    and not exists (select 1 from silenced_alert a where a.incident_id = i.id)
)::boolean as found;
