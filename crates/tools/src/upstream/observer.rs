//! Who counts what upstreams are asked: metrics are the binary's.

use super::fault::Fault;

/// Hears how requests to upstream servers go. Must return at once.
pub trait Observer: Send + Sync {
    /// A tool was called, a resource read, a prompt or a completion asked for; `outcome` is one of
    /// [`OUTCOMES`].
    fn asked(&self, upstream: &str, outcome: &'static str);
    /// Its lists were read, or could not be.
    fn listed(&self, upstream: &str, ok: bool);
}

/// How a request may end: with a result, question or task; with the server's own error; not sent
/// or not accepted, so that nothing happened; refused for good; cut off; with garbage; stopped by
/// us.
pub const OUTCOMES: [&str; 7] = [
    "answered", "error", "not_sent", "refused", "cut_off", "garbage", "stopped",
];

/// Counts nothing.
pub(super) struct Nobody;

impl Observer for Nobody {
    fn asked(&self, _: &str, _: &'static str) {}
    fn listed(&self, _: &str, _: bool) {}
}

/// A fault among [`OUTCOMES`].
pub(super) fn outcome(fault: &Fault) -> &'static str {
    match fault {
        Fault::Rpc(_) => "error",
        Fault::NotSent(_) | Fault::Expired => "not_sent",
        Fault::Refused(_) | Fault::Misfit(_) => "refused",
        Fault::Unknown(_) => "cut_off",
        Fault::Garbage(_) => "garbage",
    }
}
