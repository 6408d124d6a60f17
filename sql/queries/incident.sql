-- name: OpenIncident :one
-- The live incident of a key, locked; made when there is none. The conflict arm writes the row to lock it, so that two
-- replicas that get the same alert at once meet here.
insert into incident (id, key, source, topic, title, state, criticality, opened_at)
values (@id, @key, @source, @topic, @title, 'open', @criticality, clock_timestamp())
on conflict (key) where state <> 'resolved' do update set key = excluded.key
returning sqlc.embed(incident), (xmax = 0)::boolean as created;

-- name: LockLiveIncident :one
select * from incident where key = @key and state <> 'resolved' for update;

-- name: LockIncident :one
select * from incident where id = @id for update;

-- name: SaveIncidents :exec
-- All that may change of incidents, each once. What may be missing is a text, and empty then.
with v as materialized (
  select unnest(@ids::uuid[]) as id, unnest(@topics::text[]) as topic, unnest(@titles::text[]) as title, unnest(@states::text[]) as state,
    unnest(@criticalities::text[]) as criticality, unnest(@counts::bigint[]) as count, unnest(@firings::int[]) as firing,
    unnest(@resolveds::int[]) as resolved, unnest(@truncateds::int[]) as truncated, unnest(@revisions::int[]) as revision,
    unnest(@sequences::int[]) as sequence, unnest(@acknowledged_ats::text[]) as acknowledged_at, unnest(@acknowledged_bys::text[]) as acknowledged_by,
    unnest(@resolved_ats::text[]) as resolved_at, unnest(@resolved_bys::text[]) as resolved_by, unnest(@snoozed_untils::text[]) as snoozed_until
)
update incident i set topic = v.topic, title = v.title, state = v.state, criticality = v.criticality, count = v.count, firing = v.firing,
  resolved = v.resolved, truncated = v.truncated, revision = v.revision, sequence = v.sequence,
  acknowledged_at = nullif(v.acknowledged_at, '')::timestamptz, acknowledged_by = nullif(v.acknowledged_by, ''),
  resolved_at = nullif(v.resolved_at, '')::timestamptz, resolved_by = nullif(v.resolved_by, ''), snoozed_until = nullif(v.snoozed_until, '')::timestamptz
from v where i.id = any(array[v.id]);

-- name: FindAlert :one
select * from alert where incident_id = @incident_id and fingerprint = @fingerprint;

-- name: AlertsOfIncident :many
select * from alert where incident_id = @incident_id order by (status = 'firing') desc, starts_at desc, id desc limit @most;

-- name: AlertsOfFlood :many
-- The same for an incident with very many: those that are not asked for are not read.
select * from alert where id = any(array(select shown_alerts(@incident_id, @most))) order by (status = 'firing') desc, starts_at desc, id desc;

-- name: AddTimeline :exec
insert into timeline (incident_id, sequence, at, actor, type, text)
select unnest(@incident_ids::uuid[]), unnest(@sequences::int[]), clock_timestamp(), unnest(@actors::text[]), unnest(@types::text[]), unnest(@texts::text[]);

-- name: TimelineOf :many
select * from timeline where incident_id = @incident_id and sequence > @after_sequence and sequence <= @through order by sequence limit @most;

-- name: PutContents :exec
-- An older revision never replaces a newer one. No id may occur twice.
insert into content (id, revision, body)
select unnest(@ids::uuid[]), unnest(@revisions::int[]), unnest(@bodies::text[])::jsonb
on conflict (id) do update set revision = excluded.revision, body = excluded.body where content.revision <= excluded.revision;

-- name: Contents :many
select * from content where id = any(@ids::uuid[]);

-- name: IncidentStates :many
select id, state from incident where id = any(@ids::uuid[]);

-- name: SnoozesOver :many
-- Incidents whose snooze is over, the longest over first.
select id from incident where snoozed_until <= now() order by snoozed_until limit @most;

-- name: LastTimeline :many
-- The newest entry of a type, with its age by the database's clock.
select t.actor, t.text, t.at, (clock_timestamp() - t.at)::interval as age
from timeline t where t.incident_id = @incident_id and t.type = @type order by t.sequence desc limit 1;
