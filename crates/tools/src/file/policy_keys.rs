//! The keys of a policy.

use super::reader::Key;

const DURATION: &str = "a duration like \"30s\" or \"5m\"";
const DURATION_OR_NONE: &str = "a duration like \"30s\" or \"5m\", or \"none\"";
const BYTES_OR_NONE: &str = "a number of bytes, or \"none\"";

/// The keys of a policy, one to one the fields of `ToolPolicy`.
pub(super) const POLICY: &[Key] = &[
    Key {
        name: "task_support",
        allowed: "\"none\", \"optional\" or \"required\"",
        text: "Whether calls may become tasks: never, by deadline, or always (a client without the extension is refused)",
    },
    Key {
        name: "inline_budget",
        allowed: DURATION_OR_NONE,
        text: "How long a call is held open for its result before it becomes a task; `\"0s\"` at once, `\"none\"` the gateway's setting",
    },
    Key {
        name: "call_limit",
        allowed: DURATION_OR_NONE,
        text: "How long a call that cannot become a task is held for its result; then it is answered with an error, and its work is stopped. `\"none\"` the gateway's setting",
    },
    Key {
        name: "asks_first",
        allowed: "true or false",
        text: "The tool may ask its caller before there is a task",
    },
    Key {
        name: "work_limit",
        allowed: DURATION,
        text: "How long all tries together may work; waiting for people does not count",
    },
    Key {
        name: "client_absence",
        allowed: DURATION,
        text: "For how long the result is kept for a client that is away",
    },
    Key {
        name: "queue_wait",
        allowed: DURATION,
        text: "How long a job may wait for a worker before its TTL suffers",
    },
    Key {
        name: "queue",
        allowed: "1 to 64 of A-Z a-z 0-9 _ . -",
        text: "The queue that its jobs wait in: workers may serve some queues only (`worker.queues`)",
    },
    Key {
        name: "priority",
        allowed: "a number from -100 to 100",
        text: "Within the queue, jobs of a higher priority go first; one job in eight that a busy worker takes is of the priority whose jobs have waited longest",
    },
    Key {
        name: "concurrency",
        allowed: "a number from 1, or \"none\"",
        text: "Jobs at once, over all workers; the others wait",
    },
    Key {
        name: "concurrency_per_principal",
        allowed: "a number from 1, or \"none\"",
        text: "The same for the jobs of one principal",
    },
    Key {
        name: "tries_max",
        allowed: "a number from 1 to 65535",
        text: "Tries, the first included",
    },
    Key {
        name: "backoff.first",
        allowed: DURATION,
        text: "Pause before the second try; doubles from there",
    },
    Key {
        name: "backoff.max",
        allowed: DURATION,
        text: "Pause between tries, at most",
    },
    Key {
        name: "on_lost",
        allowed: "\"retry\" or \"fail\"",
        text: "What a lost worker means: another try, or the end (`worker_lost`)",
    },
    Key {
        name: "on_panic",
        allowed: "\"retry\" or \"fail\"",
        text: "What a panic of the tool's Rust code means",
    },
    Key {
        name: "retry_codes",
        allowed: "a list of JSON-RPC error codes",
        text: "Errors that are worth another try, though the tool says that it failed",
    },
    Key {
        name: "undo_limit",
        allowed: DURATION,
        text: "How long one try of one step's undo may take",
    },
    Key {
        name: "undo_tries_max",
        allowed: "a number from 1 to 65535",
        text: "Tries of one step's undo, the first included",
    },
    Key {
        name: "ttl",
        allowed: DURATION_OR_NONE,
        text: "How long a task lives from its creation; `\"none\"` computed from the other settings",
    },
    Key {
        name: "ttl_max",
        allowed: DURATION_OR_NONE,
        text: "Where a TTL ends that grows while people are asked; `\"none\"` never",
    },
    Key {
        name: "input_deadline",
        allowed: DURATION,
        text: "How long a question waits for its answer",
    },
    Key {
        name: "default_answers",
        allowed: "a table: key of a question = \"decline\", \"cancel\" or a table with the form's content; \"*\" = \"decline\" or \"cancel\" for all others",
        text: "What stands for an answer when nobody answered by the deadline, or when the client cannot be asked. Comes before what the tool itself has as a default",
    },
    Key {
        name: "alert_after",
        allowed: DURATION_OR_NONE,
        text: "A failure that its owner has not read for so long raises an alert; `\"none\"` the setting of cron",
    },
    Key {
        name: "poll_min",
        allowed: DURATION_OR_NONE,
        text: "Poll interval, at least; `\"none\"` the gateway's setting",
    },
    Key {
        name: "poll_max",
        allowed: DURATION_OR_NONE,
        text: "Poll interval, at most; `\"none\"` the gateway's setting",
    },
    Key {
        name: "idempotency_key_argument",
        allowed: "the name of an argument",
        text: "The argument that serves as idempotency key",
    },
    Key {
        name: "scopes",
        allowed: "a list of scopes",
        text: "Scopes that the caller's token must have; a call without them is refused (403, `insufficient_scope`)",
    },
    Key {
        name: "required_capabilities",
        allowed: "a table of client capabilities, as in `_meta`",
        text: "What the client must be able to do; a call of any other is refused",
    },
    Key {
        name: "argument_bytes_max",
        allowed: BYTES_OR_NONE,
        text: "Arguments, at most; `\"none\"` the gateway's setting",
    },
    Key {
        name: "result_bytes_max",
        allowed: BYTES_OR_NONE,
        text: "Result, at most; `\"none\"` the worker's setting",
    },
];
