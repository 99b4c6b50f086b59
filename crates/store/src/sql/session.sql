-- What ends by itself in every session of ours: a statement that takes too long ($1 ms), a
-- transaction whose client hangs and which holds its locks meanwhile ($2 ms; shorter, so that who
-- waits for them gets them), a statement whose client is gone (looked at every second, where the
-- system can tell), and a session whose client vanished without a word (15 s).
SELECT set_config('statement_timeout', $1, false),
       set_config('idle_in_transaction_session_timeout', $2, false),
       CASE WHEN version() LIKE '%linux%'
            THEN set_config('client_connection_check_interval', '1000', false) END,
       set_config('tcp_keepalives_idle', '9', false),
       set_config('tcp_keepalives_interval', '2', false),
       set_config('tcp_keepalives_count', '3', false)
