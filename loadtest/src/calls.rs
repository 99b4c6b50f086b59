//! What calls ask the chaos tools to do: plans drawn at random, each with a name of its own, by
//! which ledger, history and result belong together.

use serde_json::Value;

use crate::plan::{End, Item, Plan, Question, Step, Undo};
use crate::rng::Rng;

/// A tool and its arguments.
#[derive(Debug, Clone)]
pub struct Call {
    /// The tool's name.
    pub tool: &'static str,
    /// Its arguments.
    pub plan: Plan,
}

impl Call {
    fn new(tool: &'static str, name: &str, items: Vec<Item>, end: End) -> Call {
        let call = name.to_owned();
        Call {
            tool,
            plan: Plan { call, items, end },
        }
    }

    /// The arguments as they are sent.
    ///
    /// # Panics
    /// Never: a plan is JSON.
    #[must_use]
    pub fn arguments(&self) -> Value {
        serde_json::to_value(&self.plan).expect("a plan is JSON")
    }

    /// Whether it ends only when somebody cancels it.
    #[must_use]
    pub fn waits(&self) -> bool {
        self.plan.end == End::Wait
    }
}

/// Ends soon: mostly answered inline.
#[must_use]
pub fn quick(rng: &mut Rng, name: &str) -> Call {
    let mut items = Vec::new();
    if rng.percent(60) {
        items.push(Item::Step(step(rng, "only", 60)));
    }
    let end = rng.weighted(&[(8, End::Result), (1, End::ToolError), (1, End::Failed)]);
    Call::new("chaos_quick", name, items, end)
}

/// A few steps, some of them with troubles of their own.
#[must_use]
pub fn steps(rng: &mut Rng, name: &str) -> Call {
    let mut items = Vec::new();
    for number in 0..rng.between(1, 5) {
        items.push(Item::Step(troubled(rng, &format!("s{number}"))));
        match rng.between(0, 16) {
            0 => items.push(Item::Pause(rng.between(0, 1_000))),
            1 => items.push(Item::Retry(1)),
            2 => items.push(Item::Panic(1)),
            _ => {}
        }
    }
    let end = rng.weighted(&[(17, End::Result), (1, End::ToolError), (2, End::Failed)]);
    Call::new("chaos_steps", name, items, end)
}

/// Works for long enough to be cancelled meanwhile.
#[must_use]
pub fn long(rng: &mut Rng, name: &str) -> Call {
    let mut items = Vec::new();
    for number in 0..rng.between(2, 6) {
        let mut step = step(rng, &format!("s{number}"), 500);
        step.deaf = rng.percent(15);
        items.push(Item::Step(step));
    }
    let end = rng.weighted(&[(1, End::Result), (2, End::Wait)]);
    Call::new("chaos_steps", name, items, end)
}

/// Asks once or twice between steps, up to three questions at once.
#[must_use]
pub fn asks(rng: &mut Rng, name: &str) -> Call {
    let mut items = vec![Item::Step(step(rng, "before", 150))];
    for round in 0..rng.between(1, 3) {
        let count = rng.weighted(&[(3, 1_u64), (2, 2), (2, 3)]);
        let questions = (0..count).map(|number| Question {
            key: format!("q{round}-{number}"),
            ..Question::default()
        });
        items.push(Item::Ask(questions.collect()));
        if rng.percent(70) {
            items.push(Item::Step(step(rng, &format!("after{round}"), 150)));
        }
    }
    Call::new("chaos_ask", name, items, End::Result)
}

/// Asks, and nobody is going to answer: a default stands for the answer, or it fails.
#[must_use]
pub fn asks_in_vain(rng: &mut Rng, name: &str) -> Call {
    let question = Question {
        key: "unheard".to_owned(),
        wait_ms: Some(rng.between(1_000, 3_000)),
        default: rng.percent(50).then(|| "nobody said anything".to_owned()),
    };
    let items = vec![
        Item::Step(step(rng, "before", 100)),
        Item::Ask(vec![question]),
        Item::Step(step(rng, "after", 100)),
    ];
    Call::new("chaos_ask", name, items, End::Result)
}

/// Steps that can be undone, and an end that asks for it, or a long wait in which to cancel it.
#[must_use]
pub fn undone(rng: &mut Rng, name: &str) -> Call {
    let mut items = Vec::new();
    for number in 0..rng.between(1, 4) {
        let mut step = step(rng, &format!("u{number}"), 200);
        step.undo = rng.percent(80).then(|| Undo {
            idempotent: rng.percent(70),
            before_ms: rng.between(0, 100),
            after_ms: rng.between(0, 100),
            refuses: u32::from(rng.percent(15)),
            fails: rng.percent(4),
        });
        items.push(Item::Step(step));
    }
    let end = rng.weighted(&[(4, End::Failed), (4, End::Wait), (2, End::Result)]);
    Call::new("chaos_undo", name, items, end)
}

/// Fails at every try until the tries are used up.
#[must_use]
pub fn hopeless(rng: &mut Rng, name: &str) -> Call {
    let items = vec![Item::Step(step(rng, "once", 50))];
    Call::new("chaos_gives_up", name, items, End::Exhaust)
}

/// A step whose waits take up to so many milliseconds each.
fn step(rng: &mut Rng, key: &str, up_to_ms: u64) -> Step {
    Step {
        key: key.to_owned(),
        idempotent: rng.percent(50),
        before_ms: rng.between(0, up_to_ms),
        after_ms: rng.between(0, up_to_ms),
        ..Step::default()
    }
}

/// A step that now and then refuses to act, or acts and does not know it.
fn troubled(rng: &mut Rng, key: &str) -> Step {
    let step = step(rng, key, 200);
    match rng.between(0, 24) {
        0 => Step { refuses: 1, ..step },
        1 => Step { unknown: 1, ..step },
        _ => step,
    }
}
