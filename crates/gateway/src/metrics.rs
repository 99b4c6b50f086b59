//! What the gateway counts.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use http::StatusCode;
use protocol::code;
use serde::Deserialize;
use telemetry::Registry;
use telemetry::metrics::{
    Histogram, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, WORK_SECONDS,
};

use crate::error::{Error, Row};
use crate::memory::Load;
use crate::promotion::Reason;

/// Codes of errors that are no tool's own: what tools make up is no label.
const CODES: [i64; 5] = [
    code::PARSE_ERROR,
    code::INVALID_REQUEST,
    code::METHOD_NOT_FOUND,
    code::INVALID_PARAMS,
    code::INTERNAL_ERROR,
];

telemetry::metrics! {
    /// Of one gateway process.
    pub(crate) struct Metrics {
        /// Requests answered, by method, outcome (`ok`, `task`, `input_required`, `failed`, `disconnected` or the name of an error), HTTP status and JSON-RPC code (`none` without one; of tools' own codes `other`).
        requests: IntCounterVec = "mcp_tasks_gateway_requests_total" ["method", "outcome", "http_status", "code"],
        /// Seconds from a request's head to the end of its answer, waiting for the tool and open streams included.
        seconds: HistogramVec = "mcp_tasks_gateway_request_seconds" ["method"] in WORK_SECONDS,
        /// Seconds from a tool call's head to its answer with a task handle.
        handle_seconds: Histogram = "mcp_tasks_gateway_handle_seconds" in WORK_SECONDS,
        /// Requests that are being answered, held calls, held polls and open streams included.
        in_flight: IntGauge = "mcp_tasks_gateway_requests_in_flight",
        /// Open connections.
        connections: IntGauge = "mcp_tasks_gateway_connections",
        /// Connections refused, because there were too many (`all`) or too many of one address (`address`).
        connections_refused: IntCounterVec = "mcp_tasks_gateway_connections_refused_total" ["of"],
        /// Bytes of request bodies and of answers in memory, of those longer than 16 KiB.
        memory_bytes: IntGauge = "mcp_tasks_gateway_message_bytes",
        /// Tool calls that wait here for their result.
        held_calls: IntGauge = "mcp_tasks_gateway_held_calls",
        /// `tasks/get` of live tasks by client and by how they came: `in_time`, or before `pollIntervalMs` was over and then answered (`early`), `held` or `refused`.
        polls: IntCounterVec = "mcp_tasks_gateway_polls_total" ["client", "pace"],
        /// Early polls that are held until their task changes or the interval is over.
        held_polls: IntGauge = "mcp_tasks_gateway_held_polls",
        /// Open subscriptions/listen streams.
        listens: IntGauge = "mcp_tasks_gateway_listens",
        /// Tasks that open listens wait for.
        listened_tasks: IntGauge = "mcp_tasks_gateway_listened_tasks",
        /// Calls answered with a task handle, by reason (`no_budget`, `queue`, `held`, `closing`, `deadline`, `question`, `asked`).
        promotions: IntCounterVec = "mcp_tasks_gateway_promotions_total" ["reason"],
        /// Requests of older revisions of MCP, by revision.
        legacy_requests: IntCounterVec = "mcp_tasks_gateway_legacy_requests_total" ["version"],
        /// Requests about tasks that came without the Mcp-Name header; they are served.
        missing_names: IntCounterVec = "mcp_tasks_gateway_missing_mcp_name_total" ["method"],
        /// Calls of services at the addresses that tasks wait at, by what came of them: a result `kept`, `progress`, the same result again (`repeated`) or another one (`used`), too late or for a task that has ended (`gone`), a signature that is none of ours (`unknown`), not readable (`refused`), more than may come (`limited`), or Postgres away (`unavailable`).
        callbacks: IntCounterVec = "mcp_tasks_gateway_callbacks_total" ["result"],
        /// Tasks created whose hint did not reach Redis; the reconcile sweep finds them.
        unhinted: IntCounter = "mcp_tasks_gateway_unhinted_total",
        /// Tasks told to stop because their only caller went away.
        abandoned: IntCounter = "mcp_tasks_gateway_abandoned_total",
        /// Deliveries that could not be recorded; alerts about unread failures then err toward firing.
        marks_lost: IntCounter = "mcp_tasks_gateway_delivery_marks_lost_total",
        /// Tools in this process's copy of the catalogue.
        tools: IntGauge = "mcp_tasks_gateway_catalogue_tools",
        /// Tools in the catalogue that cannot be served, because their definition or schema is broken, or their name is longer than is set.
        tools_refused: IntGauge = "mcp_tasks_gateway_catalogue_refused_tools",
        /// What is listed beside tools in this process's copy of the catalogue, by kind (`resources`, `templates`, `prompts`).
        provided: IntGaugeVec = "mcp_tasks_gateway_catalogue_provided" ["kind"],
        /// Resources that open listens wait for.
        listened_resources: IntGauge = "mcp_tasks_gateway_listened_resources",
        /// Tokens that were shown, by kind (`jwt`, `opaque`, `api_key`) and outcome (`accepted`, `refused`, `unavailable`: it could not be checked).
        tokens: IntCounterVec = "mcp_tasks_gateway_tokens_total" ["kind", "outcome"],
        /// Requests to issuers, by kind (`keys`, `introspection`; `file` for keys of a file) and outcome (`ok`, `failed`, `crowded`: not sent, because too many were open).
        issuer_requests: IntCounterVec = "mcp_tasks_gateway_issuer_requests_total" ["kind", "outcome"],
        /// Requests that ended in a panic of ours.
        panics: IntCounter = "mcp_tasks_gateway_panics_total",
    }
}

impl Metrics {
    /// All series that alerts look at exist from the start.
    pub(crate) fn prepared(registry: &Registry) -> Self {
        let metrics = Self::new(registry);
        for of in ["all", "address"] {
            metrics.connections_refused.with_label_values(&[of]);
        }
        for reason in Reason::ALL {
            metrics.promotions.with_label_values(&[reason.as_str()]);
        }
        for outcome in crate::callbacks::Outcome::ALL {
            metrics.callbacks.with_label_values(&[outcome.as_str()]);
        }
        for method in [
            "completion/complete",
            "prompts/get",
            "prompts/list",
            "resources/list",
            "resources/read",
            "resources/templates/list",
            "server/discover",
            "subscriptions/listen",
            "tasks/cancel",
            "tasks/get",
            "tasks/update",
            "tools/call",
            "tools/list",
        ] {
            metrics.seconds.with_label_values(&[method]);
            metrics.requests(method, "ok", &Status::ok());
            for error in [
                Error::Bug(String::new()),
                Error::Overloaded { what: "" },
                Error::Store(store::Error::Unavailable("".into())),
            ] {
                let row = error.row();
                metrics.requests(method, row.label, &Status::of(&row));
            }
        }
        for kind in ["resources", "templates", "prompts"] {
            metrics.provided.with_label_values(&[kind]);
        }
        for kind in ["jwt", "opaque", "api_key"] {
            for outcome in ["accepted", "refused", "unavailable"] {
                metrics.tokens.with_label_values(&[kind, outcome]);
            }
        }
        for kind in ["keys", "introspection", "file"] {
            for outcome in ["ok", "failed"] {
                metrics.issuer_requests.with_label_values(&[kind, outcome]);
            }
        }
        metrics.requests("tools/call", "task", &Status::ok());
        for pace in ["in_time", "early", "held", "refused"] {
            metrics.polls.with_label_values(&["other", pace]);
        }
        for version in protocol::legacy::VERSIONS {
            metrics.legacy_requests.with_label_values(&[version]);
        }
        for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
            metrics.missing_names.with_label_values(&[method]);
        }
        metrics
    }

    fn requests(&self, method: &str, outcome: &str, status: &Status) -> IntCounter {
        let http = status.http.as_ref().map_or("none", StatusCode::as_str);
        let labels = [method, outcome, http, &status.code];
        self.requests.with_label_values(&labels)
    }
}

/// How an answer looks to who reads only its numbers.
#[derive(Clone, Debug)]
struct Status {
    /// `None`: nothing was answered.
    http: Option<StatusCode>,
    /// The JSON-RPC error's.
    code: Cow<'static, str>,
}

impl Status {
    fn ok() -> Self {
        Self {
            http: Some(StatusCode::OK),
            code: Cow::Borrowed("none"),
        }
    }

    fn of(row: &Row) -> Self {
        Self {
            http: Some(row.status),
            code: row.error.code.to_string().into(),
        }
    }

    /// A task's own error.
    fn failed(error: &[u8]) -> Self {
        #[derive(Deserialize)]
        struct Coded {
            code: i64,
        }
        let code = serde_json::from_slice(error).map(|error: Coded| error.code);
        let code = code.ok().filter(|code| CODES.contains(code));
        Self {
            http: Some(StatusCode::OK),
            code: code.map_or(Cow::Borrowed("other"), |code| code.to_string().into()),
        }
    }
}

/// Counts one request when it ends, however it ends.
pub(crate) struct Meter {
    metrics: Arc<Metrics>,
    method: &'static str,
    started: Instant,
    outcome: &'static str,
    status: Status,
    /// The memory that its body takes as long as it may be needed, once it is known whose it is.
    pub(crate) load: Option<Load>,
    /// Address of who sends it.
    pub(crate) client: Option<IpAddr>,
    _level: Level,
}

impl Meter {
    pub(crate) fn start(metrics: &Arc<Metrics>) -> Self {
        Self {
            metrics: Arc::clone(metrics),
            method: "unknown",
            started: Instant::now(),
            outcome: "disconnected",
            status: Status {
                http: None,
                ..Status::ok()
            },
            load: None,
            client: None,
            _level: Level::raise(&metrics.in_flight, 1),
        }
    }

    /// The method, once it is known to be one of ours: what clients send is no label.
    pub(crate) fn method(&mut self, method: &'static str) {
        self.method = method;
    }

    /// It was answered as it asked.
    pub(crate) fn outcome(&mut self, outcome: &'static str) {
        (self.outcome, self.status) = (outcome, Status::ok());
    }

    /// An accepted notification.
    pub(crate) fn accepted(&mut self) {
        self.outcome("ok");
        self.status.http = Some(StatusCode::ACCEPTED);
    }

    /// It was answered with the error that its task ended with.
    pub(crate) fn failed(&mut self, outcome: &'static str, error: &[u8]) {
        (self.outcome, self.status) = (outcome, Status::failed(error));
    }

    /// It was refused.
    pub(crate) fn refused(&mut self, row: &Row) {
        (self.outcome, self.status) = (row.label, Status::of(row));
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // The layer around answers with this.
            self.refused(&Error::Bug(String::new()).row());
        }
        let seconds = self.started.elapsed().as_secs_f64();
        self.metrics
            .seconds
            .with_label_values(&[self.method])
            .observe(seconds);
        if self.outcome == "task" {
            self.metrics.handle_seconds.observe(seconds);
        }
        self.metrics
            .requests(self.method, self.outcome, &self.status)
            .inc();
    }
}

/// Raises a gauge for as long as it lives.
pub(crate) struct Level {
    gauge: IntGauge,
    by: i64,
}

impl Level {
    pub(crate) fn raise(gauge: &IntGauge, by: usize) -> Self {
        let by = i64::try_from(by).unwrap_or(i64::MAX);
        gauge.add(by);
        Self {
            gauge: gauge.clone(),
            by,
        }
    }
}

impl Drop for Level {
    fn drop(&mut self) {
        self.gauge.sub(self.by);
    }
}
