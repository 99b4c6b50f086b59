//! Inline or task: decided per call, from the tool's policy and the load. Pure.
//!
//! Never from the tool's name or its history: the same tool is fast on a small input and slow on
//! a large one. And nothing the client sends can ask for a task or refuse one, other than by
//! declaring the extension.

use std::time::Duration;

use store::{TaskSupport, ToolPolicy};

/// The part of this process' limits from which calls become tasks at once, in percent.
const NEARLY_FULL_PERCENT: u64 = 90;

/// What is known of one call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call<'a> {
    /// The request declared the tasks extension.
    pub(crate) declared: bool,
    /// The tool's rules.
    pub(crate) policy: &'a ToolPolicy,
    /// It asks for a task itself, as calls of MCP 2025-11-25 may.
    pub(crate) wants_task: bool,
    /// It comes without a `requestState`, so the tool may still have a question for the caller.
    pub(crate) first_round: bool,
}

/// What is known of this replica and of the queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    /// For how long the caller's oldest due job of the tool has waited for a worker, or somebody's
    /// whose turn has not come yet either.
    pub(crate) queue_waited: Duration,
    /// How much is taken of what this process may hold open, in percent: held calls, connections or
    /// requests, whichever is nearest to its limit.
    pub(crate) full_percent: u64,
    /// The gateway's inline budget, where the tool has none.
    pub(crate) inline_budget: Duration,
    /// No tool's budget is longer.
    pub(crate) inline_budget_max: Duration,
    /// How long a call that can't become a task is held, where the tool does not say.
    pub(crate) call_limit: Duration,
    /// How long a tool that asks first may take to ask.
    pub(crate) ask_budget: Duration,
    /// The process is about to end.
    pub(crate) closing: bool,
}

/// Why a call became a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// The budget is 0.
    NoBudget,
    /// The queue is longer than the budget.
    Queue,
    /// This process holds nearly as many calls, connections or requests as it may.
    Held,
    /// The process is about to end.
    Closing,
    /// The budget was used up.
    Deadline,
    /// The task asks a question.
    Question,
    /// The call asked for it (MCP 2025-11-25).
    Asked,
}

impl Reason {
    /// Metric label.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::NoBudget => "no_budget",
            Self::Queue => "queue",
            Self::Held => "held",
            Self::Closing => "closing",
            Self::Deadline => "deadline",
            Self::Question => "question",
            Self::Asked => "asked",
        }
    }

    pub(crate) const ALL: [Self; 7] = [
        Self::NoBudget,
        Self::Queue,
        Self::Held,
        Self::Closing,
        Self::Deadline,
        Self::Question,
        Self::Asked,
    ];
}

/// How a call is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Plan {
    /// To its end, but no longer than this: it can't become a task.
    Hold(Duration),
    /// Not at all: a handle at once.
    AtOnce(Reason),
    /// This long, then a handle.
    Within(Duration, Reason),
}

/// How to wait for one call.
pub(crate) fn plan(call: Call<'_>, load: Load) -> Plan {
    if !call.declared || call.policy.task_support == TaskSupport::None {
        return Plan::Hold(call.policy.call_limit.unwrap_or(load.call_limit));
    }
    if call.wants_task {
        return Plan::AtOnce(Reason::Asked);
    }
    let budget = call.policy.inline_budget.unwrap_or(load.inline_budget);
    let budget = budget.min(load.inline_budget_max);
    let may_ask = call.policy.asks_first && call.first_round;
    if load.closing {
        return Plan::AtOnce(Reason::Closing);
    }
    // The question of a tool that asks first can only be put to a caller who still waits, so
    // neither a budget of 0 nor load takes that wait away.
    if may_ask {
        let reason = if budget.is_zero() {
            Reason::NoBudget
        } else {
            Reason::Deadline
        };
        return Plan::Within(budget.max(load.ask_budget), reason);
    }
    if budget.is_zero() {
        Plan::AtOnce(Reason::NoBudget)
    } else if load.full_percent >= NEARLY_FULL_PERCENT {
        Plan::AtOnce(Reason::Held)
    } else if load.queue_waited > budget {
        Plan::AtOnce(Reason::Queue)
    } else {
        Plan::Within(budget, Reason::Deadline)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn idle() -> Load {
        Load {
            queue_waited: Duration::ZERO,
            full_percent: 0,
            inline_budget: 3 * SECOND,
            inline_budget_max: 5 * SECOND,
            call_limit: 600 * SECOND,
            ask_budget: 10 * SECOND,
            closing: false,
        }
    }

    fn policy(support: TaskSupport, budget: Option<Duration>, asks_first: bool) -> ToolPolicy {
        ToolPolicy {
            task_support: support,
            inline_budget: budget,
            asks_first,
            ..ToolPolicy::default()
        }
    }

    fn call(policy: &ToolPolicy) -> Call<'_> {
        Call {
            declared: true,
            wants_task: false,
            policy,
            first_round: true,
        }
    }

    #[test]
    fn undeclared_calls_and_tools_without_support_are_held() {
        let zero = policy(TaskSupport::Optional, Some(Duration::ZERO), false);
        let undeclared = Call {
            declared: false,
            ..call(&zero)
        };
        let busy = Load {
            full_percent: 100,
            closing: true,
            queue_waited: 60 * SECOND,
            ..idle()
        };
        assert_eq!(plan(undeclared, busy), Plan::Hold(600 * SECOND));
        let mut none = policy(TaskSupport::None, Some(Duration::ZERO), false);
        assert_eq!(plan(call(&none), busy), Plan::Hold(600 * SECOND));
        none.call_limit = Some(3 * SECOND);
        assert_eq!(plan(call(&none), busy), Plan::Hold(3 * SECOND));
    }

    #[test]
    fn the_tools_budget_comes_before_the_gateways() {
        let own = policy(TaskSupport::Optional, Some(2 * SECOND), false);
        assert_eq!(
            plan(call(&own), idle()),
            Plan::Within(2 * SECOND, Reason::Deadline)
        );
        let none = policy(TaskSupport::Required, None, false);
        assert_eq!(
            plan(call(&none), idle()),
            Plan::Within(3 * SECOND, Reason::Deadline)
        );
        let zero = policy(TaskSupport::Optional, Some(Duration::ZERO), false);
        assert_eq!(plan(call(&zero), idle()), Plan::AtOnce(Reason::NoBudget));
    }

    #[test]
    fn no_budget_is_above_the_ceiling() {
        let long = policy(TaskSupport::Optional, Some(3600 * SECOND), false);
        let ceiling = Plan::Within(5 * SECOND, Reason::Deadline);
        assert_eq!(plan(call(&long), idle()), ceiling);
        // Nor is what the queue is measured by.
        let queue = Load {
            queue_waited: 6 * SECOND,
            ..idle()
        };
        assert_eq!(plan(call(&long), queue), Plan::AtOnce(Reason::Queue));
    }

    #[test]
    fn load_promotes_at_once() {
        let tool = policy(TaskSupport::Optional, None, false);
        let waited = |queue_waited| {
            plan(
                call(&tool),
                Load {
                    queue_waited,
                    ..idle()
                },
            )
        };
        assert_eq!(
            waited(3 * SECOND),
            Plan::Within(3 * SECOND, Reason::Deadline)
        );
        assert_eq!(waited(4 * SECOND), Plan::AtOnce(Reason::Queue));
        let full = |full_percent| {
            plan(
                call(&tool),
                Load {
                    full_percent,
                    ..idle()
                },
            )
        };
        assert_eq!(full(89), Plan::Within(3 * SECOND, Reason::Deadline));
        assert_eq!(full(90), Plan::AtOnce(Reason::Held));
        let closing = Load {
            closing: true,
            ..idle()
        };
        assert_eq!(plan(call(&tool), closing), Plan::AtOnce(Reason::Closing));
    }

    #[test]
    fn a_tool_that_asks_first_is_waited_for_in_the_first_round_only() {
        let asks = policy(TaskSupport::Required, Some(Duration::ZERO), true);
        assert_eq!(
            plan(call(&asks), idle()),
            Plan::Within(10 * SECOND, Reason::NoBudget)
        );
        let busy = Load {
            queue_waited: 60 * SECOND,
            full_percent: 100,
            ..idle()
        };
        assert_eq!(
            plan(call(&asks), busy),
            Plan::Within(10 * SECOND, Reason::NoBudget)
        );
        let second = Call {
            first_round: false,
            ..call(&asks)
        };
        assert_eq!(plan(second, idle()), Plan::AtOnce(Reason::NoBudget));
    }
}
