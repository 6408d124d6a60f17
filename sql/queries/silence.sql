-- Silences, by the database's clock: compared with the transaction's now(), so that one transaction sees each silence in one state.

-- name: AddSilence :one
insert into silence (id, created_at, match, matchers, starts_at, ends_at, reason, author)
values (@id, clock_timestamp(), @match, @matchers::text[], @starts_at, @ends_at, @reason, @author)
returning *;

-- name: EndSilence :execrows
-- One that has not begun ends before it does.
update silence set starts_at = least(starts_at, clock_timestamp()), ends_at = clock_timestamp(), ended_by = @ended_by::text
where id = @id and ends_at > clock_timestamp();

-- name: EditSilence :execrows
-- One that is over stays over: what it kept back is sent.
update silence set ends_at = coalesce(sqlc.narg(ends_at), ends_at), reason = coalesce(sqlc.narg(reason), reason), edited_at = clock_timestamp(), edited_by = @edited_by::text
where id = @id and ends_at > clock_timestamp();

-- name: LockSilence :one
select * from silence where id = @id for update;

-- name: ActiveSilences :many
select * from silence where ends_at > now() and starts_at <= now() order by ends_at desc, id limit @most;

-- name: SilencesBetween :many
-- Those that hold at some instant of a span.
select * from silence where ends_at > @since and starts_at <= @until order by ends_at desc, id limit @most;

-- name: ReadSilence :one
select sqlc.embed(silence), clock_timestamp()::timestamptz as now, (select count(*) from silenced_alert a where a.silence_id = silence.id)::bigint as alerts
from silence where silence.id = @id;

-- name: PageSilences :many
select sqlc.embed(silence), clock_timestamp()::timestamptz as now, (select count(*) from silenced_alert a where a.silence_id = silence.id)::bigint as alerts
from silence where silence.id < @before and (@ended::boolean or silence.ends_at > clock_timestamp()) order by silence.id desc limit @most;

-- name: SilencedAlerts :many
select a.fingerprint, a.notify, a.silence_id, s.author, s.reason, s.ends_at, (s.ends_at <= now())::boolean as over
from silenced_alert a join silence s on s.id = a.silence_id where a.incident_id = @incident_id order by a.fingerprint;

-- name: SilenceAlert :exec
insert into silenced_alert (incident_id, fingerprint, silence_id, notify) values (@incident_id, @fingerprint, @silence_id, @notify::text[])
on conflict (incident_id, fingerprint) do update set silence_id = excluded.silence_id, notify = excluded.notify;

-- name: ForgetSilenced :exec
delete from silenced_alert where incident_id = @incident_id and fingerprint = any(@fingerprints::text[]);

-- name: SilencesOver :many
-- Incidents with alerts whose silence is over: due earlier than now, however long ago.
select distinct a.incident_id from silenced_alert a join silence s on s.id = a.silence_id
where s.ends_at <= now() order by a.incident_id limit @most;

-- name: SilencedIncidents :many
-- Of each incident how many firing alerts are silenced, and the silence among them that ends first.
with h as (
  select a.incident_id, count(*) as alerts, (array_agg(a.silence_id order by s.ends_at, s.id))[1] as silence_id
  from silenced_alert a join silence s on s.id = a.silence_id
  join alert x on x.incident_id = a.incident_id and x.fingerprint = a.fingerprint and x.status = 'firing'
  where a.incident_id = any(@ids::uuid[]) group by a.incident_id
)
select h.incident_id, h.alerts::bigint as alerts, s.id, s.author, s.reason, s.ends_at from h join silence s on s.id = h.silence_id;

-- name: RestAlerts :exec
-- Alerts that wait for the hours of a route.
insert into resting_alert (incident_id, fingerprint, opens_at)
select @incident_id, unnest(@fingerprints::text[]), unnest(@opens_ats::timestamptz[])
on conflict (incident_id, fingerprint) do update set opens_at = excluded.opens_at;

-- name: RestingAlerts :many
-- Those of an incident whose hours have begun.
select fingerprint from resting_alert where incident_id = @incident_id and opens_at <= now() order by fingerprint;

-- name: ForgetResting :exec
delete from resting_alert where incident_id = @incident_id and fingerprint = any(@fingerprints::text[]);

-- name: OpenedHours :many
-- Incidents with alerts that hours have begun for: due earlier than now, however long ago.
select distinct incident_id from resting_alert where opens_at <= now() order by incident_id limit @most;

-- name: RestAnew :exec
-- Another file may have other hours: all are looked at again.
update resting_alert set opens_at = clock_timestamp() where opens_at > clock_timestamp();

-- name: KeepRouting :exec
-- So many different answers of one incident are kept at most, or one round more.
insert into routing (incident_id, hash, at, file, topic, labels, body)
select v.incident_id, v.hash, clock_timestamp(), v.file, v.topic, v.labels::jsonb, v.body::jsonb
from (select unnest(@incident_ids::uuid[]) as incident_id, unnest(@hashes::text[]) as hash, unnest(@files::text[]) as file,
  unnest(@topics::text[]) as topic, unnest(@labels::text[]) as labels, unnest(@bodies::text[]) as body) v
where (select count(*) from routing r where r.incident_id = v.incident_id) < 100
on conflict (incident_id, hash) do nothing;

-- name: RoutingOf :many
select * from routing where incident_id = @incident_id order by at, hash;
