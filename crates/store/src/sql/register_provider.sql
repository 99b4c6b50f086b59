-- A worker serves this version of the provider. `changed_at` moves only when a caller of the lists
-- would see a difference.
INSERT INTO providers (name, version, listed, spec, spec_digest, changed_at, last_seen_at)
VALUES ($1, $2, true, $3, $4, now(), now())
ON CONFLICT (name, version) DO UPDATE SET
    last_seen_at = now(), listed = true,
    -- Written again only if it is another: lists may be long.
    spec = CASE WHEN providers.spec_digest = $4 THEN providers.spec ELSE $3 END, spec_digest = $4,
    changed_at = CASE WHEN providers.spec_digest = $4 AND providers.listed THEN providers.changed_at ELSE now() END
