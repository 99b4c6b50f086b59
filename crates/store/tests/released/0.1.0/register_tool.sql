-- A worker serves this version of the tool. `changed_at` moves only when a caller of
-- tools/list would see a difference.
INSERT INTO tools (name, version, current, listed, spec, spec_digest, changed_at, last_seen_at)
VALUES ($1, $2, false, true, $3, $4, now(), now())
ON CONFLICT (name, version) DO UPDATE SET
    last_seen_at = now(), spec = $3, spec_digest = $4, listed = true,
    changed_at = CASE WHEN tools.spec_digest = $4 AND tools.listed THEN tools.changed_at ELSE now() END
