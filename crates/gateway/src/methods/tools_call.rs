//! `tools/call`: judge, commit, hint, and wait for the outcome as long as the budget says.
//!
//! Persist first, answer second: the task is committed before its id can leave, and what commits
//! it outlives the caller, so that a disconnect half way leaves nothing undecided.

use std::sync::Arc;

use bytes::Bytes;
use protocol::TaskId;
use protocol::input::InputResponses;
use protocol::tools::CallToolResult;
use queue::{Lane, Watch};
use serde_json::value::RawValue;
use store::{Created, Lookup, NewTask, StopReason};
use tokio::sync::mpsc;
use tracing::Instrument as _;

use super::tasks_update::answer_by_call;
use crate::Shared;
use crate::admission::{self, Place};
use crate::endpoint::Call;
use crate::error::Error;
use crate::held::{Held, Progress};
use crate::judgement::{self, Judged, Verdict};
use crate::large;
use crate::promotion::{self, Load, Plan};
use crate::reply::{self, Answer, Reply};
use crate::request_state::State;
use crate::stream::WAITING_MAX;
use crate::trace;
use crate::view;
use crate::waiters::{Holding, Unanswered};

/// Calls a tool.
pub(crate) async fn call(shared: &Arc<Shared>, call: Call) -> Answer {
    let opened = shared.in_time(Box::pin(open(shared, &call))).await;
    answer(shared, call, opened).await
}

enum Opened {
    Answered(Reply),
    Held(Box<Held>),
}

async fn open(shared: &Arc<Shared>, call: &Call) -> Result<(Opened, Place), Error> {
    let place = shared.admission.call(&call.caller.principal);
    let judged = match judgement::judge(shared, call).await? {
        Verdict::Valid(judged) => judged,
        Verdict::Invalid(told) => {
            let result = CallToolResult::error(told).to_json();
            let json = shared
                .meta
                .attach(&result)
                .map_err(|e| Error::Bug(e.to_string()))?;
            let reply = Reply::Result {
                json,
                mark: None,
                label: "invalid_arguments",
            };
            return Ok((Opened::Answered(reply), place));
        }
    };
    let plan = plan(shared, &judged, &place);
    let opened = start(shared, judged, plan, &place).await?;
    Ok((opened, place))
}

/// Carries out what was judged elsewhere, as a call that is held to its end.
pub(super) async fn held_to_its_end(
    shared: &Arc<Shared>,
    call: Call,
    judged: Box<Judged>,
    plan: Plan,
) -> Answer {
    let place = shared.admission.call(&call.caller.principal);
    let starting = Box::pin(start(shared, judged, plan, &place));
    let opened = shared.in_time(starting).await;
    answer(shared, call, opened.map(|opened| (opened, place))).await
}

async fn answer(
    shared: &Arc<Shared>,
    call: Call,
    opened: Result<(Opened, Place), Error>,
) -> Answer {
    match opened {
        Err(error) => call.answer(shared, Err(error)),
        Ok((Opened::Answered(reply), _)) => call.answer(shared, Ok(reply)),
        Ok((Opened::Held(held), place)) => wait(shared, call, *held, place).await,
    }
}

async fn start(
    shared: &Arc<Shared>,
    judged: Box<Judged>,
    plan: Plan,
    place: &Place,
) -> Result<Opened, Error> {
    let waits = !matches!(plan, Plan::AtOnce(_));
    if waits && place.is_over() {
        return Err(admission::limited("waiting tool calls"));
    }
    let at_capacity = shared.waiters.len() >= shared.config.limits.held_calls_max;
    if at_capacity && waits {
        return Err(Error::Overloaded { what: "tool calls" });
    }
    match judged.state.clone() {
        Some(state) => resume(shared, judged, state, plan).await,
        None => begin(shared, judged, plan).await,
    }
}

fn plan(shared: &Shared, judged: &Judged, place: &Place) -> Plan {
    let spec = &judged.entry.tool.spec;
    let call = promotion::Call {
        declared: judged.caller.declared_tasks().is_some(),
        wants_task: judged.caller.wants_task(),
        policy: &spec.policy,
        first_round: judged.state.is_none(),
    };
    promotion::plan(
        call,
        Load {
            queue_waited: shared
                .queues
                .ahead_of(spec.name(), &judged.caller.principal),
            full_percent: shared.full_percent().max(place.full_percent()),
            inline_budget: shared.config.inline_budget,
            inline_budget_max: shared.config.inline_budget_max,
            call_limit: shared.config.call_limit,
            ask_budget: shared.config.ask_budget,
            closing: shared.closing.is_cancelled(),
        },
    )
}

/// The first round: creates the task, or finds the one that the key names.
async fn begin(shared: &Arc<Shared>, judged: Box<Judged>, plan: Plan) -> Result<Opened, Error> {
    if judged.entry.paused {
        let paused = Error::ToolPaused(judged.entry.tool.spec.name().to_owned());
        return repeat(shared, judged, plan, paused).await;
    }
    let principal = &judged.caller.principal;
    if let Err(refused) = shared.admission.task(&shared.store, principal).await {
        return repeat(shared, judged, plan, refused).await;
    }
    let id = shared.new_id();
    tracing::Span::current().record("task.id", tracing::field::display(id));
    let judged = Arc::new(*judged);
    let creating = create(Arc::clone(shared), Arc::clone(&judged), id, plan);
    let created = shared.tracker.spawn(creating.in_current_span()).await;
    let (created, watch, holding) = created.map_err(|error| Error::Bug(error.to_string()))??;
    match (created, plan) {
        (Created::KeyReused, _) => Err(Error::KeyReused),
        (Created::New(task), Plan::AtOnce(reason)) if task.handed_out => {
            holding.answered();
            let proof = judged.caller.must_declare_tasks()?;
            shared
                .metrics
                .promotions
                .with_label_values(&[reason.as_str()])
                .inc();
            Ok(Opened::Answered(view::handle(shared, &task, proof)?))
        }
        (Created::New(task), _) => {
            let watch = match watch {
                Some(watch) => watch,
                None => shared.queue.watch(id).await,
            };
            Ok(held(shared, &judged, (task, watch, holding), plan))
        }
        (Created::Existing(task), _) => existing(shared, &judged, task.id, plan).await,
    }
}

/// No new call is taken, for the reason given; a repeat by key is none.
async fn repeat(
    shared: &Arc<Shared>,
    judged: Box<Judged>,
    plan: Plan,
    refused: Error,
) -> Result<Opened, Error> {
    let judged = Arc::new(*judged);
    let (principal, name) = (&judged.caller.principal, judged.entry.tool.spec.name());
    let Some(key) = judged.key.as_deref() else {
        return Err(refused);
    };
    let key = (key, &judged.digest);
    let keyed = shared.store.find_keyed(principal, name, key).await?;
    let Some((id, is_same)) = keyed else {
        return Err(refused);
    };
    if !is_same {
        return Err(Error::KeyReused);
    }
    existing(shared, &judged, id, plan).await
}

/// Commits the task and hints it. Runs to its end even if the caller goes away meanwhile; then
/// the holding is dropped with it, and the task is told to stop.
async fn create(
    shared: Arc<Shared>,
    judged: Arc<Judged>,
    id: TaskId,
    plan: Plan,
) -> Result<(Created, Option<Watch>, Holding), store::Error> {
    let spec = &judged.entry.tool.spec;
    let unanswered = match judged.key {
        Some(_) => Unanswered::Keep,
        None => Unanswered::Abandon,
    };
    let holding = shared.waiters.hold(id, unanswered);
    let new = NewTask {
        id,
        principal: &judged.caller.principal,
        tool: spec.name(),
        tool_version: spec.version,
        policy: &spec.policy,
        arguments: judged.arguments.clone(),
        arguments_digest: judged.digest,
        client_capabilities: Bytes::copy_from_slice(
            judged.caller.capabilities.as_json().as_bytes(),
        ),
        offered_responses: judged.responses.as_ref().map(object),
        trace_context: trace::of_task(&judged.caller.trace).map(Bytes::from),
        idempotency_key: judged.key.as_deref(),
        status_message: view::NO_RESULT_YET,
        hold: shared.config.hold,
        handed_out: matches!(plan, Plan::AtOnce(_)),
        hint_epoch: shared.queue.epoch(id),
    };
    // Interest before the hint, so that no wake-up is missed; none where nobody waits.
    let interest = async {
        match plan {
            Plan::AtOnce(_) => None,
            Plan::Hold(_) | Plan::Within(..) => Some(shared.queue.watch(id).await),
        }
    };
    let (created, watch) = tokio::join!(shared.store.create(&new), interest);
    let created = created?;
    if let Created::New(task) = &created {
        let lane = Lane {
            tool: task.tool.clone(),
            version: task.tool_version,
        };
        shared.hint(&lane, id).await;
    }
    Ok((created, watch, holding))
}

/// A repeat by key waits for the same task as the first call.
async fn existing(
    shared: &Arc<Shared>,
    judged: &Arc<Judged>,
    id: TaskId,
    plan: Plan,
) -> Result<Opened, Error> {
    tracing::Span::current().record("task.id", tracing::field::display(id));
    let holding = shared.waiters.hold(id, Unanswered::Keep);
    let watch = shared.queue.watch(id).await;
    let principal = &judged.caller.principal;
    if let Some(responses) = &judged.responses {
        answer_by_call(shared, judged, id, responses).await?;
    }
    match large::read(shared, principal, id).await? {
        Lookup::Found(task) if judged.caller.wants_task() => {
            holding.answered();
            let proof = judged.caller.must_declare_tasks()?;
            let task = shared.store.hand_out(id).await?.unwrap_or(*task);
            Ok(Opened::Answered(view::handle(shared, &task, proof)?))
        }
        Lookup::Found(task) => Ok(held(shared, judged, (*task, watch, holding), plan)),
        gone @ (Lookup::Expired { .. } | Lookup::Unknown) => Err(Error::gone(Some(gone))),
    }
}

/// A later round: the caller brings the state of a parked task, and perhaps answers. A stale or
/// repeated state simply meets the task as it is now.
async fn resume(
    shared: &Arc<Shared>,
    judged: Box<Judged>,
    state: State,
    plan: Plan,
) -> Result<Opened, Error> {
    let (id, judged) = (state.id, Arc::new(*judged));
    tracing::Span::current().record("task.id", tracing::field::display(id));
    // By Postgres' clock, which sealed it.
    if state.is_over(shared.store.clock().await?) {
        return Err(Error::RequestStateExpired);
    }
    let principal = &judged.caller.principal;
    let Lookup::Found(task) = shared.store.look(principal, id).await? else {
        return Err(Error::RequestStateExpired);
    };
    if task.stop == Some(StopReason::Abandoned) {
        return Err(Error::RequestStateExpired);
    }
    tracing::debug!(
        state.round,
        task.round = task.rounds,
        "question answered by a repeated call"
    );
    let unanswered = if task.keyed {
        Unanswered::Keep
    } else {
        Unanswered::Abandon
    };
    let watch = shared.queue.watch(id).await;
    if let Some(responses) = &judged.responses {
        match answer_by_call(shared, &judged, id, responses).await {
            Err(Error::TaskNotFound | Error::TaskExpired { .. }) => {
                return Err(Error::RequestStateExpired);
            }
            other => other?,
        }
    }
    let holding = shared.waiters.hold(id, unanswered);
    match large::read(shared, principal, id).await? {
        Lookup::Found(task) => Ok(held(shared, &judged, (*task, watch, holding), plan)),
        Lookup::Expired { .. } | Lookup::Unknown => Err(Error::RequestStateExpired),
    }
}

fn held(
    shared: &Arc<Shared>,
    judged: &Arc<Judged>,
    (task, watch, holding): (store::Task, Watch, Holding),
    plan: Plan,
) -> Opened {
    let held = Held::new(
        Arc::clone(shared),
        Arc::clone(judged),
        (task, watch, holding),
        plan,
    );
    Opened::Held(Box::new(held))
}

/// Waits for the outcome.
async fn wait(shared: &Arc<Shared>, call: Call, held: Held, place: Place) -> Answer {
    let streams = call.caller.reads_streams;
    let token = call.caller.progress_token.clone().filter(|_| streams);
    let (sender, messages) = mpsc::channel(WAITING_MAX);
    let progress = token.map(|token| Progress::new(token, sender));
    let ending = Arc::clone(shared);
    let running = async move {
        // Until it is answered, or nobody waits any more.
        let _place = place;
        let result = ending.in_time(held.outcome(progress)).await;
        trace::called(&result);
        call.finish(&ending, result)
    };
    reply::once_ended(shared, streams, messages, running.in_current_span()).await
}

/// Answers as one JSON object.
fn object(responses: &InputResponses) -> Bytes {
    let members: std::collections::BTreeMap<&str, &RawValue> = responses.iter().collect();
    serde_json::to_vec(&members)
        .expect("raw JSON always prints")
        .into()
}
