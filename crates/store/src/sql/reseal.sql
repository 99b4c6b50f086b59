-- What a new task is called with, sealed for it: repeat_task.sql copied it as it was sealed for another, in
-- the same transaction.
UPDATE tasks SET arguments = $2, client_capabilities = $3, offered_responses = $4, trace_context = $5,
    arguments_digest = $6, data_key = $7, sealed_by = $8
WHERE id = $1
