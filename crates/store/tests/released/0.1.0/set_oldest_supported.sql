-- Binaries older than this refuse to start (I14).
INSERT INTO schema_support (oldest_supported_release) VALUES ($1)
ON CONFLICT (one) DO UPDATE SET oldest_supported_release = $1
