//! What a worker asks for that takes whatever is next, as the arguments of `claim_best.sql`.

use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::{Served, TurnRequest};
use crate::Store;

/// What `claim_best.sql` does with the jobs that it finds.
pub(super) const TAKE: &str = "take";
pub(super) const SURE: &str = "sure";
pub(super) const LOOK: &str = "look";

/// One job that a worker asks for; its tools as columns.
#[derive(Debug)]
pub(crate) struct Pick {
    pub(super) token: Uuid,
    pub(super) tools: Vec<String>,
    pub(super) worker: String,
    queue: String,
    versions: Vec<i32>,
    slots: Vec<Option<i32>>,
    slots_each: Vec<Option<i32>>,
    resume_tools: Vec<String>,
    resume_versions: Vec<i32>,
    oldest_first: bool,
}

impl Pick {
    pub(super) fn new(request: &TurnRequest<'_>) -> Self {
        let tools = request.tools;
        let resumes = |tool: &Served<'_>| {
            let name = tool.tool.to_owned();
            let versions = tool.resumes.clone().into_iter();
            versions.map(move |version| (name.clone(), version))
        };
        let (resume_tools, resume_versions) = tools.iter().flat_map(resumes).unzip();
        Self {
            token: request.token,
            tools: tools.iter().map(|tool| tool.tool.to_owned()).collect(),
            worker: request.worker.to_owned(),
            queue: request.queue.to_owned(),
            versions: tools.iter().map(|tool| tool.version).collect(),
            slots: tools.iter().map(|tool| tool.limits.slots()).collect(),
            slots_each: tools.iter().map(|tool| tool.limits.slots_each()).collect(),
            resume_tools,
            resume_versions,
            oldest_first: request.oldest_first,
        }
    }

    /// Whether one statement can ask for both.
    pub(super) fn asks_as(&self, other: &Self) -> bool {
        self.queue == other.queue
            && self.worker == other.worker
            && self.oldest_first == other.oldest_first
            && self.tools == other.tools
            && self.versions == other.versions
            && self.slots == other.slots
            && self.slots_each == other.slots_each
            && self.resume_tools == other.resume_tools
            && self.resume_versions == other.resume_versions
    }
}

/// The arguments that are no worker's wish.
pub(super) struct Arguments<'a> {
    tokens: &'a [Uuid],
    jobs: i32,
    lease_ms: i64,
    grace_ms: i64,
    connected_ms: i64,
    start: i64,
    mode: &'static str,
}

impl<'a> Arguments<'a> {
    /// For as many jobs as there are tokens.
    pub(super) fn new(
        store: &Store,
        tokens: &'a [Uuid],
        connected_ms: i64,
        mode: &'static str,
    ) -> Self {
        Self {
            tokens,
            jobs: i32::try_from(tokens.len()).unwrap_or(i32::MAX),
            lease_ms: store.config.lease_ms(),
            grace_ms: store.config.lease_grace_ms(),
            connected_ms,
            start: anywhere(),
            mode,
        }
    }

    pub(super) fn of<'b>(&'b self, pick: &'b Pick) -> [&'b (dyn ToSql + Sync); 16] {
        [
            &pick.queue,
            &pick.tools,
            &pick.versions,
            &pick.slots,
            &pick.slots_each,
            &pick.resume_tools,
            &pick.resume_versions,
            &self.tokens,
            &self.lease_ms,
            &self.grace_ms,
            &self.connected_ms,
            &pick.worker,
            &self.start,
            &pick.oldest_first,
            &self.mode,
            &self.jobs,
        ]
    }
}

/// Where among the principals to begin to look.
fn anywhere() -> i64 {
    let (high, _) = Uuid::new_v4().as_u64_pair();
    // The version's four bits are always the same: these are not.
    i64::from_ne_bytes(high.rotate_left(16).to_ne_bytes())
}
