//! Settings of the gateway: its door, its limits, its patience.

use std::net::SocketAddr;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::pace::Pacing;
use crate::peers;
pub use crate::peers::AddressHeader;
use crate::{auth, tls};

/// Clients and proxies give up on an answer that takes longer.
const PACE_MAX: Duration = Duration::from_secs(60);

/// Hardly any token of an issuer is shorter: an operator who sets less means something else.
const TOKEN_BYTES_MIN: usize = 256;

/// Proxies cut idle streams; the specification's advice is a comment at least this often.
const KEEP_ALIVE_MAX: Duration = Duration::from_secs(15);

/// `[gateway]`: the MCP endpoint.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Address of the MCP endpoint. Development authentication needs a loopback address.
    #[schemars(with = "String")]
    pub bind: SocketAddr,
    /// Path of the MCP endpoint.
    pub path: String,
    /// Origins that browsers may call from, as `https://app.example.com`. On loopback our own
    /// address is one too.
    pub allowed_origins: Vec<String>,
    /// Values of `Host` that are served, as `mcp.example.com` or `mcp.example.com:8443`. Empty:
    /// any, but on loopback only our own address (against DNS rebinding).
    pub allowed_hosts: Vec<String>,
    /// Proxies in front of us, as addresses or networks like `10.0.0.0/8`: what they say of their
    /// client's address is believed, nobody else's word. Empty: the address of a connection is the
    /// client's.
    pub trusted_proxies: Vec<String>,
    /// Where they say it: `x-forwarded-for` or `forwarded` (RFC 7239). The other one is never read,
    /// since a proxy may pass on what a client wrote there.
    pub client_address_header: AddressHeader,
    /// Keys for `requestState` and cursors of lists, 32 bytes each in hex or base64, the same for all
    /// replicas. The first seals, all open: to rotate, first add the new one at the end everywhere,
    /// then put it in front, then drop the old one (`docs/security.md`). Needed by tools that ask
    /// before a task exists; without one lists come whole.
    pub request_state_keys: Vec<String>,
    /// How long a question that is asked before a task exists waits for the retried call.
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String")]
    pub request_state_ttl: Duration,
    /// How long a call is held open for its result before it becomes a task, where the tool
    /// does not say.
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String")]
    pub inline_budget: Duration,
    /// How long any call is held open before it becomes a task, at most: a tool that says more gets
    /// this.
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String")]
    pub inline_budget_max: Duration,
    /// How long a call that cannot become a task (of a client without the extension, or of a tool
    /// without task support) is held for its result, where the tool does not say. Then it is
    /// answered with an error, and its work is stopped.
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String")]
    pub call_limit: Duration,
    /// How long a call of a tool that asks first waits for the question.
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String")]
    pub ask_budget: Duration,
    /// After how long a held call is answered as a stream, if the client takes one.
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String")]
    pub stream_after: Duration,
    /// How often an open stream shows that it is alive. At most 15 s.
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String")]
    pub keep_alive: Duration,
    /// How often a held call looks at its task when nothing wakes it.
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String")]
    pub recheck: Duration,
    /// How often a subscription reads its tasks when nothing wakes it.
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String")]
    pub listen_recheck: Duration,
    /// For how long a task without a handle survives the gateway that holds its call.
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String")]
    pub hold: Duration,
    /// `pollIntervalMs`, at least, where the tool does not say.
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String")]
    pub poll_min: Duration,
    /// `pollIntervalMs`, at most, where the tool does not say.
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String")]
    pub poll_max: Duration,
    /// `pollIntervalMs` of a task that waits for a person.
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String")]
    pub poll_input: Duration,
    /// What happens to `tasks/get` of a live task that comes before its `pollIntervalMs` is over:
    /// `off`, `observe` (counted) or `on` (held until the task changes or the interval is over).
    pub pacing: Pacing,
    /// How long an early poll is held, at most. No longer than 1m: clients give up then.
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String")]
    pub pace_max: Duration,
    /// How often the list of tools is read when nothing says that it changed.
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String")]
    pub catalogue_refresh: Duration,
    /// `ttlMs` of `server/discover` and of all lists: how long clients may cache them.
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String")]
    pub list_ttl: Duration,
    /// Tools on one page of `tools/list`; resources, templates or prompts on one of theirs.
    pub list_page: usize,
    /// Whether clients of MCP 2025-11-25 and 2025-06-18 are served, without sessions (see
    /// `docs/legacy-clients.md`). If not, they are told which revision is.
    pub legacy_clients: bool,
    /// What `server/discover` (and `initialize`) tells models; empty: how to wait for tasks.
    pub instructions: String,
    /// Encryption at the door.
    pub tls: tls::Config,
    /// Size and time limits.
    pub limits: Limits,
    /// After SIGTERM: for how long new connections are still accepted while load balancers
    /// learn of it.
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String")]
    pub drain_delay: Duration,
    /// After that: how long open requests may take to end before they are cut off.
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String")]
    pub drain_deadline: Duration,
}

/// `[gateway.limits]`: what one request, one connection and one process may use.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Size of a request's body, in bytes; more is answered 413.
    pub body_bytes_max: usize,
    /// Size of a tool call's arguments, in bytes, where the tool does not say.
    pub argument_bytes_max: usize,
    /// Size of one answer to a question, in bytes.
    pub answer_bytes_max: usize,
    /// Nesting of a request's JSON, in levels.
    pub depth_max: usize,
    /// Length of a JSON-RPC `id`, in bytes.
    pub id_bytes_max: usize,
    /// Length of an idempotency key, in bytes, wherever it comes from. 1 to 255: in an index of Postgres it
    /// shares a row, of 2,704 bytes at most, with the principal and the tool's name.
    pub idempotency_key_bytes_max: usize,
    /// Length of a tool's name, in bytes. Tools with longer names are neither listed nor called, which is
    /// logged and counted (`mcp_tasks_gateway_catalogue_refused_tools`). 1 to 128, which is the longest in MCP.
    pub tool_name_bytes_max: usize,
    /// Length of a bearer token, in bytes; a longer one is answered 401. 256 to `header_bytes_max`, which it
    /// shares with all other headers.
    pub token_bytes_max: usize,
    /// Size of a request's headers, in bytes; more is answered 431. At least 8192.
    pub header_bytes_max: usize,
    /// Open connections; more are answered 429 and closed.
    pub connections_max: usize,
    /// Open connections of one address (of IPv6: of one network of 64 bits) that is no trusted proxy's;
    /// more are answered 429 and closed. 0: any number.
    pub connections_of_address_max: usize,
    /// Tokens of one address that were refused, or could not be judged, per second, at length. Beyond it only
    /// tokens are let in that are known to be good; the others are answered 429. 0: any number.
    pub refused_tokens_of_address_per_second: u32,
    /// The same, at once after a rest.
    pub refused_tokens_of_address_burst: u32,
    /// Requests that are being answered; more are answered 429.
    pub requests_max: usize,
    /// Tool calls held open for their result. Near it (and near `connections_max` and
    /// `requests_max`) calls become tasks at once; beyond it calls that can't become tasks are
    /// answered 429.
    pub held_calls_max: usize,
    /// The same, of one principal.
    pub held_calls_of_principal_max: usize,
    /// Requests of one principal, per second, at length; more are answered 429. Reads of tasks are
    /// refused last: they may overdraw it by the burst. Each gateway counts for itself. 0: any number.
    pub requests_of_principal_per_second: u32,
    /// Requests that one principal may send at once after a rest.
    pub requests_of_principal_burst: u32,
    /// Requests of one principal that are being answered, as of all in `requests_max`; more are
    /// answered 429. Streams are not counted among them.
    pub requests_of_principal_max: usize,
    /// Bytes of request bodies and answers in memory, where one is longer than 16 KiB; who sends more
    /// is answered 429. At least two of the largest bodies fit.
    pub memory_bytes_max: usize,
    /// The same, of one principal.
    pub memory_bytes_of_principal_max: usize,
    /// The same, of all services that call back: of those in `memory_bytes_max`.
    pub memory_bytes_of_callbacks_max: usize,
    /// Calls of services (`/callbacks/…`) that are being answered, of those in `requests_max`; more
    /// are answered 429.
    pub callbacks_max: usize,
    /// Calls of services for one task that are being answered; more are answered 429.
    pub callbacks_of_task_max: usize,
    /// Calls of services for one task, per second, at length; more are answered 429. 0: any number.
    pub callbacks_of_task_per_second: u32,
    /// Calls of services for one task, at once after a rest.
    pub callbacks_of_task_burst: u32,
    /// Tasks of one principal that are not over, on all gateways; calls that would make more are
    /// answered 429. Kept about, not exactly, when many calls come at once. 0: any number.
    pub live_tasks_of_principal_max: usize,
    /// The same, of all principals of one tenant.
    pub live_tasks_of_tenant_max: usize,
    /// Early polls held at a time; more are answered at once.
    pub held_polls_max: usize,
    /// The same, of one principal; more are answered 429.
    pub held_polls_of_principal_max: usize,
    /// Open `subscriptions/listen` streams, and `tasks/result` that waits; more are answered 429.
    pub listens_max: usize,
    /// The same, of one principal.
    pub listens_of_principal_max: usize,
    /// Resources that one principal listens to or did in the last 90 seconds; a `subscriptions/listen` for
    /// more is answered 429. Each gateway counts for itself.
    pub listened_resources_of_principal_max: usize,
    /// Bytes of their URIs.
    pub listened_bytes_of_principal_max: usize,
    /// Tasks of one `subscriptions/listen`, and resources of one.
    pub listen_ids_max: usize,
    /// How long the headers of a request may take, and how long a connection may be idle: over HTTP/1
    /// it is closed then, over HTTP/2 told to end.
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String")]
    pub header_read_timeout: Duration,
    /// How long the body of a request may take; then 408.
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String")]
    pub body_read_timeout: Duration,
    /// How long a client may take in nothing of what it is sent before its connection is closed; an
    /// answer longer than 16 KiB may take this long in all, and a second more for each 16 KiB.
    #[serde(with = "humantime_serde")]
    #[schemars(with = "String")]
    pub write_timeout: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            bind: SocketAddr::from(([127, 0, 0, 1], 3000)),
            path: "/mcp".to_owned(),
            allowed_origins: Vec::new(),
            allowed_hosts: Vec::new(),
            trusted_proxies: Vec::new(),
            client_address_header: AddressHeader::default(),
            request_state_keys: Vec::new(),
            request_state_ttl: Duration::from_secs(600),
            inline_budget: Duration::from_secs(3),
            inline_budget_max: Duration::from_secs(60),
            call_limit: Duration::from_secs(600),
            ask_budget: Duration::from_secs(10),
            stream_after: Duration::from_millis(400),
            keep_alive: Duration::from_secs(10),
            recheck: Duration::from_secs(2),
            listen_recheck: Duration::from_secs(30),
            hold: Duration::from_secs(15),
            poll_min: Duration::from_millis(500),
            poll_max: Duration::from_secs(10),
            poll_input: Duration::from_secs(5),
            pacing: Pacing::default(),
            pace_max: Duration::from_secs(5),
            catalogue_refresh: Duration::from_secs(1),
            list_ttl: Duration::from_secs(5),
            list_page: 100,
            legacy_clients: true,
            instructions: String::new(),
            tls: tls::Config::default(),
            limits: Limits::default(),
            drain_delay: Duration::from_secs(5),
            drain_deadline: Duration::from_secs(10),
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body_bytes_max: 4 * 1024 * 1024,
            argument_bytes_max: 1024 * 1024,
            answer_bytes_max: 1024 * 1024,
            depth_max: 64,
            id_bytes_max: 1024,
            idempotency_key_bytes_max: protocol::idempotency::KEY_BYTES_MAX,
            tool_name_bytes_max: protocol::tools::NAME_BYTES_MAX,
            token_bytes_max: 8 * 1024,
            header_bytes_max: 32 * 1024,
            connections_max: 10_000,
            connections_of_address_max: 4_000,
            refused_tokens_of_address_per_second: 10,
            refused_tokens_of_address_burst: 100,
            requests_max: 4_096,
            held_calls_max: 2_000,
            held_polls_max: 2_000,
            held_polls_of_principal_max: 200,
            held_calls_of_principal_max: 500,
            requests_of_principal_per_second: 1_000,
            requests_of_principal_burst: 2_000,
            requests_of_principal_max: 1_024,
            memory_bytes_max: 256 * 1024 * 1024,
            memory_bytes_of_principal_max: 64 * 1024 * 1024,
            memory_bytes_of_callbacks_max: 64 * 1024 * 1024,
            callbacks_max: 1_024,
            callbacks_of_task_max: 8,
            callbacks_of_task_per_second: 20,
            callbacks_of_task_burst: 100,
            live_tasks_of_principal_max: 10_000,
            live_tasks_of_tenant_max: 100_000,
            listens_max: 2_000,
            listens_of_principal_max: 200,
            listened_resources_of_principal_max: 1_000,
            listened_bytes_of_principal_max: 1024 * 1024,
            listen_ids_max: 100,
            header_read_timeout: Duration::from_secs(30),
            body_read_timeout: Duration::from_secs(30),
            write_timeout: Duration::from_secs(30),
        }
    }
}

impl Config {
    /// Everything wrong with these settings, each naming its field; empty when they work.
    #[must_use]
    pub fn validate(&self, auth: &auth::Config) -> Vec<String> {
        let mut problems = auth.validate(self.bind);
        if !self.path.starts_with('/') {
            problems.push(format!("gateway.path: {:?} must begin with /", self.path));
        }
        for origin in &self.allowed_origins {
            let rest = origin.split_once("://").map(|(_, host)| host);
            if rest.is_none_or(|host| host.is_empty() || host.contains('/')) {
                problems.push(format!(
                    "gateway.allowed_origins: {origin:?} is not scheme://host[:port]"
                ));
            }
        }
        for (place, key) in self.request_state_keys.iter().enumerate() {
            if let Err(problem) = protocol::secret::read_key(key) {
                problems.push(format!("gateway.request_state_keys[{place}]: {problem}"));
            }
        }
        for (place, text) in self.trusted_proxies.iter().enumerate() {
            if let Err(problem) = peers::network(text) {
                problems.push(format!("gateway.trusted_proxies[{place}]: {problem}"));
            }
        }
        self.check_times(&mut problems);
        self.tls.validate(&mut problems);
        self.limits.validate(&mut problems);
        problems
    }

    fn check_times(&self, problems: &mut Vec<String>) {
        for (name, value) in [
            ("request_state_ttl", self.request_state_ttl),
            ("call_limit", self.call_limit),
            ("ask_budget", self.ask_budget),
            ("keep_alive", self.keep_alive),
            ("recheck", self.recheck),
            ("listen_recheck", self.listen_recheck),
            ("poll_min", self.poll_min),
            ("catalogue_refresh", self.catalogue_refresh),
            ("drain_deadline", self.drain_deadline),
        ] {
            if value.is_zero() {
                problems.push(format!("gateway.{name}: must be above 0"));
            }
        }
        if self.keep_alive > KEEP_ALIVE_MAX {
            problems.push(format!(
                "gateway.keep_alive: {:?} is longer than {KEEP_ALIVE_MAX:?}",
                self.keep_alive
            ));
        }
        if self.pace_max > PACE_MAX {
            problems.push(format!(
                "gateway.pace_max: {:?} is longer than {PACE_MAX:?}: clients would give up",
                self.pace_max
            ));
        }
        if self.inline_budget > self.inline_budget_max {
            problems.push(format!(
                "gateway.inline_budget: {:?} is longer than gateway.inline_budget_max ({:?})",
                self.inline_budget, self.inline_budget_max
            ));
        }
        if self.poll_min > self.poll_max {
            problems.push(format!(
                "gateway.poll_min: {:?} is longer than gateway.poll_max ({:?})",
                self.poll_min, self.poll_max
            ));
        }
        if self.hold < Duration::from_secs(3) {
            problems.push(format!(
                "gateway.hold: {:?} is shorter than 3s: a slow second would abandon calls",
                self.hold
            ));
        }
        if self.list_page == 0 {
            problems.push("gateway.list_page: must be at least 1".to_owned());
        }
    }
}

impl Limits {
    fn validate(&self, problems: &mut Vec<String>) {
        for (name, value, min) in [
            ("body_bytes_max", self.body_bytes_max, 1024),
            ("argument_bytes_max", self.argument_bytes_max, 1),
            ("answer_bytes_max", self.answer_bytes_max, 1),
            ("depth_max", self.depth_max, 8),
            ("id_bytes_max", self.id_bytes_max, 36),
            ("header_bytes_max", self.header_bytes_max, 8192),
            ("connections_max", self.connections_max, 1),
            ("requests_max", self.requests_max, 1),
            ("held_calls_max", self.held_calls_max, 1),
            ("held_polls_max", self.held_polls_max, 1),
            (
                "held_polls_of_principal_max",
                self.held_polls_of_principal_max,
                1,
            ),
            (
                "held_calls_of_principal_max",
                self.held_calls_of_principal_max,
                1,
            ),
            ("callbacks_max", self.callbacks_max, 1),
            ("callbacks_of_task_max", self.callbacks_of_task_max, 1),
            ("listens_max", self.listens_max, 1),
            ("listens_of_principal_max", self.listens_of_principal_max, 1),
            ("listen_ids_max", self.listen_ids_max, 1),
            (
                "listened_resources_of_principal_max",
                self.listened_resources_of_principal_max,
                1,
            ),
            (
                "listened_bytes_of_principal_max",
                self.listened_bytes_of_principal_max,
                protocol::resources::URI_BYTES_MAX,
            ),
            (
                "requests_of_principal_max",
                self.requests_of_principal_max,
                1,
            ),
        ] {
            if value < min {
                problems.push(format!(
                    "gateway.limits.{name}: {value} must be at least {min}"
                ));
            }
        }
        self.check_lengths(problems);
        for (name, value) in [
            (
                "requests_of_principal_burst",
                self.requests_of_principal_burst,
            ),
            (
                "refused_tokens_of_address_burst",
                self.refused_tokens_of_address_burst,
            ),
            ("callbacks_of_task_burst", self.callbacks_of_task_burst),
        ] {
            if value == 0 {
                problems.push(format!("gateway.limits.{name}: 0 must be at least 1"));
            }
        }
        if self.depth_max > 128 {
            problems.push(format!(
                "gateway.limits.depth_max: {} is above 128, which JSON readers behind us refuse",
                self.depth_max
            ));
        }
        for (name, value) in [
            ("header_read_timeout", self.header_read_timeout),
            ("body_read_timeout", self.body_read_timeout),
            ("write_timeout", self.write_timeout),
        ] {
            if value.is_zero() {
                problems.push(format!("gateway.limits.{name}: must be above 0"));
            }
        }
    }

    fn check_lengths(&self, problems: &mut Vec<String>) {
        for (name, value, allowed, most_is) in [
            (
                "idempotency_key_bytes_max",
                self.idempotency_key_bytes_max,
                1..=protocol::idempotency::KEY_BYTES_MAX,
                "what fits into a row of an index beside the principal and the tool",
            ),
            (
                "tool_name_bytes_max",
                self.tool_name_bytes_max,
                1..=protocol::tools::NAME_BYTES_MAX,
                "the longest in MCP",
            ),
            (
                "token_bytes_max",
                self.token_bytes_max,
                TOKEN_BYTES_MIN..=self.header_bytes_max,
                "gateway.limits.header_bytes_max",
            ),
        ] {
            if !allowed.contains(&value) {
                let (least, most) = allowed.into_inner();
                problems.push(format!(
                    "gateway.limits.{name}: {value} is not between {least} and {most} ({most}: {most_is})"
                ));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_valid() {
        let auth = auth::Config::default();
        assert_eq!(Config::default().validate(&auth), Vec::<String>::new());
    }

    #[test]
    fn lengths_have_bounds_of_their_own() {
        type Set = fn(&mut Limits, usize);
        let lengths: [(&str, Set, usize, usize); 3] = [
            (
                "idempotency_key_bytes_max",
                |limits, bytes| limits.idempotency_key_bytes_max = bytes,
                1,
                255,
            ),
            (
                "tool_name_bytes_max",
                |limits, bytes| limits.tool_name_bytes_max = bytes,
                1,
                128,
            ),
            (
                "token_bytes_max",
                |limits, bytes| limits.token_bytes_max = bytes,
                256,
                10_000,
            ),
        ];
        for (name, set, least, most) in lengths {
            for bytes in [least - 1, least, most, most + 1] {
                let mut config = Config::default();
                config.limits.header_bytes_max = 10_000;
                set(&mut config.limits, bytes);
                let problems = config.validate(&auth::Config::default());
                if (least..=most).contains(&bytes) {
                    assert_eq!(problems, Vec::<String>::new(), "{name}: {bytes}");
                } else {
                    let told =
                        format!("gateway.limits.{name}: {bytes} is not between {least} and {most}");
                    assert!(problems.concat().starts_with(&told), "{problems:?}");
                }
            }
        }
    }

    #[test]
    fn all_problems_are_told_at_once() {
        let mut config = Config {
            path: "mcp".to_owned(),
            keep_alive: Duration::from_secs(16),
            pace_max: Duration::from_secs(61),
            poll_min: Duration::from_secs(11),
            inline_budget_max: Duration::from_secs(1),
            call_limit: Duration::ZERO,
            hold: Duration::ZERO,
            request_state_keys: vec!["short".to_owned()],
            allowed_origins: vec!["example.com".to_owned()],
            ..Config::default()
        };
        config.limits.depth_max = 4096;
        config.limits.listens_max = 0;
        let problems = config.validate(&auth::Config::default());
        for field in [
            "path",
            "keep_alive",
            "pace_max",
            "poll_min",
            "inline_budget",
            "call_limit",
            "hold",
            "request_state_keys[0]",
            "allowed_origins",
            "limits.depth_max",
            "limits.listens_max",
        ] {
            let named = |problem: &String| problem.starts_with(&format!("gateway.{field}:"));
            assert!(problems.iter().any(named), "{field}: {problems:?}");
        }
        assert_eq!(problems.len(), 11);
    }
}
