//! Error codes, each with the section that defines it, and the reasons of our
//! own failures.

/// The body is not JSON (JSON-RPC 2.0 §5.1). HTTP 400.
pub const PARSE_ERROR: i64 = -32700;
/// The JSON is not a request (JSON-RPC 2.0 §5.1). HTTP 400.
pub const INVALID_REQUEST: i64 = -32600;
/// The method is not served (JSON-RPC 2.0 §5.1; MCP 2026-07-28 §Streamable HTTP: 404).
pub const METHOD_NOT_FOUND: i64 = -32601;
/// The params are malformed, or name a tool or task that does not exist
/// (JSON-RPC 2.0 §5.1; SEP-2663 §Protocol Errors). HTTP 200, or 400 when `_meta`
/// lacks what every request must carry.
pub const INVALID_PARAMS: i64 = -32602;
/// We failed (JSON-RPC 2.0 §5.1). Carries `data.reason` where the work itself ended.
pub const INTERNAL_ERROR: i64 = -32603;
/// A header is missing, malformed, or differs from the body
/// (MCP 2026-07-28 schema `HEADER_MISMATCH`, SEP-2243). HTTP 400.
pub const HEADER_MISMATCH: i64 = -32020;
/// The client did not declare a capability the request needs
/// (MCP 2026-07-28 schema `MISSING_REQUIRED_CLIENT_CAPABILITY`). HTTP 400.
pub const MISSING_CAPABILITY: i64 = -32021;
/// The protocol version is not served
/// (MCP 2026-07-28 schema `UNSUPPORTED_PROTOCOL_VERSION`). HTTP 400.
pub const UNSUPPORTED_VERSION: i64 = -32022;
/// Overload, rate or quota limit; `data.retryAfterSeconds`. Not a code of the
/// specification: −32768…−32000 is reserved, so we use HTTP's own number.
pub const RATE_LIMITED: i64 = 429;

/// `data.reason` of the `-32603` error with which a task of ours fails.
pub mod reason {
    /// The task's TTL ran out before it finished.
    pub const TASK_EXPIRED: &str = "task_expired";
    /// A question was not answered in time.
    pub const INPUT_DEADLINE: &str = "input_deadline";
    /// The work took longer than the tool allows.
    pub const WORK_LIMIT: &str = "work_limit";
    /// Every allowed attempt was lost or failed.
    pub const ATTEMPTS_EXHAUSTED: &str = "attempts_exhausted";
    /// A step began, its end is unknown, and it may not be repeated.
    pub const STEP_IN_DOUBT: &str = "step_in_doubt";
    /// A step's undo failed.
    pub const UNDO_FAILED: &str = "undo_failed";
    /// No live worker can resume the version that the task began with.
    pub const VERSION_GONE: &str = "version_gone";
    /// A service accepted the work and did not say in time what came of it.
    pub const CALLBACK_OVERDUE: &str = "callback_overdue";
    /// The tool no longer takes the steps its journal holds.
    pub const JOURNAL_DRIFT: &str = "journal_drift";
    /// The tool would write more into its journal than it may.
    pub const JOURNAL_FULL: &str = "journal_full";
    /// The tool panicked, and its policy is not to try again.
    pub const TOOL_PANICKED: &str = "tool_panicked";
    /// The worker was lost, and the tool's policy is not to try again.
    pub const WORKER_LOST: &str = "worker_lost";
    /// An operator paused the tool: it takes no new calls for now.
    pub const TOOL_PAUSED: &str = "tool_paused";
    /// The task was cancelled: what a repeat by idempotency key of a cancelled
    /// call is told, and the caller whose held call was stopped.
    pub const CANCELLED: &str = "cancelled";
    /// The caller cannot become the owner of a task, and waited for its result for as long as it
    /// may: the work is stopped.
    pub const CALL_LIMIT: &str = "call_limit";
    /// The tool had a question that this client cannot be asked, and no default (code `-32021`).
    pub const CANNOT_ASK: &str = "cannot_ask";

    /// All of them.
    pub const ALL: [&str; 16] = [
        TASK_EXPIRED,
        INPUT_DEADLINE,
        WORK_LIMIT,
        ATTEMPTS_EXHAUSTED,
        STEP_IN_DOUBT,
        UNDO_FAILED,
        VERSION_GONE,
        CALLBACK_OVERDUE,
        JOURNAL_DRIFT,
        JOURNAL_FULL,
        TOOL_PANICKED,
        WORKER_LOST,
        TOOL_PAUSED,
        CANCELLED,
        CALL_LIMIT,
        CANNOT_ASK,
    ];
}
