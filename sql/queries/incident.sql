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

-- name: LastResolvedIncident :one
select * from incident where key = @key and state = 'resolved' order by resolved_at desc limit 1;

-- name: SaveIncident :exec
update incident set title = @title, state = @state, criticality = @criticality, count = @count, firing = @firing, resolved = @resolved,
  truncated = @truncated, revision = @revision, sequence = @sequence, acknowledged_at = @acknowledged_at, acknowledged_by = @acknowledged_by,
  resolved_at = @resolved_at, resolved_by = @resolved_by, topic = @topic, snoozed_until = @snoozed_until
where id = @id;

-- name: FindAlert :one
select * from alert where incident_id = @incident_id and fingerprint = @fingerprint;

-- name: AlertsOfIncident :many
select * from alert where incident_id = @incident_id order by (status = 'firing') desc, starts_at desc, id desc limit @most;

-- name: PutAlert :exec
insert into alert (id, incident_id, fingerprint, topic, criticality, status, title, text, labels, links, starts_at, ends_at, count, first_seen_at, last_seen_at)
values (@id, @incident_id, @fingerprint, @topic, @criticality, @status, @title, @text, @labels, @links, @starts_at, @ends_at, @count, clock_timestamp(), clock_timestamp())
on conflict (incident_id, fingerprint) do update set topic = excluded.topic, criticality = excluded.criticality, status = excluded.status,
  title = excluded.title, text = excluded.text, labels = excluded.labels, links = excluded.links, starts_at = excluded.starts_at,
  ends_at = excluded.ends_at, count = excluded.count, last_seen_at = excluded.last_seen_at;

-- name: AddTimeline :exec
insert into timeline (incident_id, sequence, at, actor, type, text) values (@incident_id, @sequence, clock_timestamp(), @actor, @type, @text);

-- name: TimelineOf :many
select * from timeline where incident_id = @incident_id and sequence > @after_sequence and sequence <= @through order by sequence limit @most;

-- name: PutContent :exec
insert into content (id, revision, body) values (@id, @revision, @body)
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
