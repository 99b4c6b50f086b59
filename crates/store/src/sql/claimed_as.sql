-- The job that a claim by turn got whose reply was lost. Asked for at a repeat only: it looks at all running
-- jobs of these tools.
SELECT t.id, t.tool, t.tool_version FROM tasks t
WHERE t.phase = 'running' AND t.tool = ANY($1::text[]) AND t.claim_token = $2
