-- How long ago (ms) any replica last ended this sweep well; NULL = never.
SELECT (extract(epoch FROM now() - last_success_at) * 1000)::bigint AS success_ms FROM sweep_leases WHERE sweep = $1
