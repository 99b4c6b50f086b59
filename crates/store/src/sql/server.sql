-- Which server answers: the same one for as long as a session lasts, or there is a pooler in
-- between that hands transactions on.
SELECT pg_backend_pid()
