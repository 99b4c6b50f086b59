-- For the doctor: when each sweep last ended well, and whether somebody leads it.
SELECT sweep, (extract(epoch FROM now() - last_success_at))::bigint AS success_s, lease_until > now() AS led
FROM sweep_leases ORDER BY sweep
