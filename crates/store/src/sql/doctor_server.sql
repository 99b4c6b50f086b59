-- For the doctor: what Postgres says of itself, of any schema.
SELECT current_setting('server_version') AS version, current_setting('server_version_num')::int AS version_num,
       current_setting('max_connections')::int AS max_connections,
       current_setting('superuser_reserved_connections')::int AS reserved,
       (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend') AS sessions,
       (SELECT count(*) FROM pg_stat_activity WHERE application_name = 'mcp-tasks' AND pid <> pg_backend_pid()) AS ours,
       current_setting('synchronous_commit') AS synchronous_commit, current_setting('fsync') AS fsync,
       current_setting('full_page_writes') AS full_page_writes, current_setting('autovacuum') AS autovacuum,
       current_setting('synchronous_standby_names') AS synchronous_standby_names,
       clock_timestamp() AS now,
       (SELECT (extract(epoch FROM clock_timestamp() - min(xact_start)))::bigint FROM pg_stat_activity
        WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()) AS oldest_transaction_s,
       (SELECT (extract(epoch FROM clock_timestamp() - min(prepared)))::bigint FROM pg_prepared_xacts) AS oldest_prepared_s,
       EXISTS (SELECT FROM pg_stat_activity WHERE usename IS NOT NULL AND query = '<insufficient privilege>') AS blind,
       (SELECT count(*) FROM pg_stat_replication) AS standbys,
       (SELECT (extract(epoch FROM max(coalesce(replay_lag, write_lag))))::bigint FROM pg_stat_replication) AS lag_s,
       (SELECT max(pg_wal_lsn_diff(pg_current_wal_lsn(), replay_lsn))::bigint FROM pg_stat_replication) AS lag_bytes,
       (SELECT count(*) FROM pg_replication_slots WHERE NOT active) AS idle_slots,
       (SELECT age(datfrozenxid)::bigint FROM pg_database WHERE datname = current_database()) AS xid_age
