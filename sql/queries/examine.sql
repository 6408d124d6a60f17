-- What `tocsin doctor` asks of the server. All of it can be read by any role and before the first migration.

-- name: ExamineServer :one
select
  current_setting('server_version_num')::int as version,
  current_setting('server_version')::text as version_text,
  pg_is_in_recovery()::boolean as standby,
  (current_setting('default_transaction_read_only') = 'on')::boolean as read_only,
  pg_encoding_to_char(d.encoding)::text as encoding,
  current_setting('synchronous_commit')::text as synchronous_commit,
  current_setting('synchronous_standby_names')::text as synchronous_standbys,
  current_setting('fsync')::text as fsync,
  current_setting('max_connections')::int as max_connections,
  current_setting('superuser_reserved_connections')::int as reserved_connections,
  coalesce((select sum(s.numbackends) from pg_catalog.pg_stat_database s), 0)::int as used_connections,
  d.datconnlimit::int as database_limit,
  r.rolname::text as role,
  r.rolsuper::boolean as superuser,
  r.rolconnlimit::int as role_limit
from pg_catalog.pg_database d, pg_catalog.pg_roles r
where d.datname = current_database() and r.rolname = current_user;

-- name: ExamineTables :many
-- The tables of the schema in which the role lacks a right that tocsin uses, and whether it owns the one whose partitions
-- are made as time goes on.
select c.relname::text as name,
  has_table_privilege(c.oid, 'SELECT')::boolean as may_read,
  (has_table_privilege(c.oid, 'INSERT') and has_table_privilege(c.oid, 'UPDATE') and has_table_privilege(c.oid, 'DELETE'))::boolean as may_write,
  pg_has_role(c.relowner, 'USAGE')::boolean as owner
from pg_catalog.pg_class c
where c.relnamespace = (select v.relnamespace from pg_catalog.pg_class v where v.oid = to_regclass('goose_db_version'))
  and c.relkind in ('r', 'p') and not c.relispartition
order by c.relname;

-- name: ExamineReplicas :many
select r.id, r.checksum, r.version, r.notifiers, (clock_timestamp() - r.seen_at)::interval as silent, r.file_error, r.started_at, r.seen_at, r.read_at
from replica r order by r.started_at;
