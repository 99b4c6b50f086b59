-- What a task was called with, as it is stored, and the key that it is sealed with.
SELECT arguments, client_capabilities, offered_responses, trace_context, arguments_digest, data_key, sealed_by
FROM tasks WHERE id = $1
