-- For operators: all of a task but arguments, questions, answers and outcome, of which only the size
-- and an error's reason are told.
SELECT id, issuer, subject, tenant, tool, tool_version, journaled, queue, priority, status, phase, status_message,
       created_at, last_updated_at, expires_at, finished_at, first_fetched_at, handed_out_at, alerted_at, run_at,
       attempt, tries, tries_max, claimed_by, claimed_at, started_at, lease_until, lease_until < now() AS lease_over, last_error,
       work_ms_used, work_ms_max, open_step, pending_status, undone_at, stop_requested_at, stop_reason, stop_detail, stopped_by,
       parked_for, input_deadline_at, rounds, hinted_at, hint_count, idempotency_key IS NOT NULL AS keyed, is_error,
       data_key, sealed_by, trace_context, octet_length(arguments) AS arguments_bytes, octet_length(result) AS result_bytes, now() AS now,
       CASE WHEN outcome_encoding = 0 AND octet_length(error) <= 65536 THEN error END AS error
FROM tasks WHERE id = $1
