-- The sweep ended well.
UPDATE sweep_leases SET last_success_at = now() WHERE sweep = $1 AND holder = $2
