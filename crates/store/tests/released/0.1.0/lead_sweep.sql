-- One replica runs a sweep at a time: the holder renews, another takes over when the lease
-- ran out.
INSERT INTO sweep_leases (sweep, holder, lease_until)
VALUES ($1, $2, now() + $3::bigint * interval '1 millisecond')
ON CONFLICT (sweep) DO UPDATE SET holder = $2, lease_until = now() + $3::bigint * interval '1 millisecond'
WHERE sweep_leases.holder = $2 OR sweep_leases.lease_until < now()
