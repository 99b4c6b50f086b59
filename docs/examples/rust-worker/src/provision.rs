//! `provision`: rents a machine, asks where it costs much, installs it, and gives it back when
//! nothing comes of it.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::json;
use worker::{
    Arguments, CallToolResult, Context, Definition, Progress, Question, Step, Tool, ToolError,
    ToolSpec, Undo, Undoing, pause,
};

/// From this size on a person is asked.
const LARGE: u32 = 64;

/// Where machines are rented: stands for a service that tells repeats apart by a key.
#[derive(Clone, Default)]
pub struct Machines {
    rented: Arc<Mutex<BTreeSet<String>>>,
}

impl Machines {
    fn rent(&self, key: &str) -> String {
        let name = format!("machine-{key}");
        let mut rented = self.rented.lock().unwrap_or_else(PoisonError::into_inner);
        rented.insert(name.clone());
        name
    }

    fn give_back(&self, name: &str) {
        let mut rented = self.rented.lock().unwrap_or_else(PoisonError::into_inner);
        rented.remove(name);
    }

    /// How many are rented just now.
    pub fn count(&self) -> usize {
        let rented = self.rented.lock().unwrap_or_else(PoisonError::into_inner);
        rented.len()
    }
}

/// The tool.
pub struct Provision {
    /// Where it rents.
    pub machines: Machines,
}

#[derive(Deserialize)]
struct Wanted {
    cores: u32,
    /// What to install, one after another.
    #[serde(default)]
    packages: Vec<String>,
}

#[derive(Deserialize)]
struct Approval {
    go: bool,
}

/// What `rent` puts out, and what undoing it needs.
#[derive(Serialize, Deserialize)]
struct Rented {
    machine: String,
}

#[worker::async_trait]
impl Tool for Provision {
    fn spec(&self) -> ToolSpec {
        let schema = json!({
            "type": "object",
            "properties": {
                "cores": { "type": "integer", "minimum": 1 },
                "packages": { "type": "array", "items": { "type": "string" } }
            },
            "required": ["cores"]
        });
        let definition = Definition::new("provision", &schema)
            .with_description("Rents a machine and installs packages on it.");
        let mut spec = ToolSpec::new(definition);
        spec.policy.tries_max = 3;
        spec.policy.work_limit = Duration::from_secs(30 * 60);
        spec
    }

    async fn call(
        &self,
        context: &mut Context,
        arguments: Arguments,
    ) -> Result<CallToolResult, ToolError> {
        let Wanted { cores, packages } = arguments.parse()?;
        if cores >= LARGE && !approved(context, cores).await? {
            return Ok(CallToolResult::text("not provisioned"));
        }
        // Journaled before it acts, so that whoever undoes it knows what to do.
        let rent = Step::new("rent")
            .idempotent()
            .undo(Undo::new(json!({})).idempotent());
        let machines = &self.machines;
        let Rented { machine } = context
            .step(rent, |info| async move {
                let machine = machines.rent(&info.idempotency_key);
                Ok(Rented { machine })
            })
            .await?;
        let all = packages.len() as u64;
        for (done, package) in (0..all).zip(&packages) {
            let report = Progress::new(done).of(all);
            let report = report.with_message(format!("installing {package}"));
            context.report(report).await;
            let (key, stop) = (format!("install {package}"), context.cancelled());
            // Installing twice changes nothing more.
            let install = Step::new(&key).idempotent();
            context
                .step(install, |_| install_on(&machine, package, stop))
                .await?;
        }
        Ok(CallToolResult::text(format!("{machine} is ready")))
    }

    async fn undo(&self, undoing: &mut Undoing) -> Result<(), ToolError> {
        // `rent` alone declares an undo.
        let Rented { machine } = undoing.output()?;
        self.machines.give_back(&machine);
        Ok(())
    }
}

/// Nobody is waited for more than a day; who does not answer does not want it.
async fn approved(context: &mut Context, cores: u32) -> Result<bool, ToolError> {
    let schema = json!({
        "type": "object",
        "properties": { "go": { "type": "boolean", "title": "Rent it" } },
        "required": ["go"]
    });
    let question = Question::elicit("approve", format!("{cores} cores cost much. Go?"), schema)
        .wait(Duration::from_secs(24 * 3600))
        .default_content(json!({ "go": false }));
    let answers = context.ask(vec![question]).await?;
    let approval = answers.elicited::<Approval>("approve")?;
    Ok(approval.accepted().is_some_and(|approval| approval.go))
}

async fn install_on(
    machine: &str,
    package: &str,
    stop: worker::CancellationToken,
) -> Result<(), ToolError> {
    // The machine is slow, and gives way when it is told to.
    pause(&stop, Duration::from_secs(60)).await?;
    match package {
        "flaky" => Err(ToolError::retryable(format!("{machine} does not answer"))),
        "no-such" => Err(ToolError::failed(404, "there is no such package")),
        _ => Ok(()),
    }
}
