//! `mcp-tasks tasks cancel|retry|requeue|expire`: on named tasks, or on all that fit a filter.

use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use protocol::TaskId;
use queue::{Lane, Queue};
use serde_json::{Value, json};
use store::{Act, Repeat, TaskAct, TaskFilter, TaskSummary, Touched};
use uuid::Uuid;

use super::Failure;
use super::operator::{self, Desk, object};
use super::tasks::{self, Touch};

/// Tasks read by one statement.
const PAGE: i64 = 500;

/// Runs one of them.
///
/// # Errors
/// When it cannot, or refuses to.
pub fn run(act: TaskAct, touch: &Touch, force: bool) -> Result<ExitCode, Failure> {
    let by_filter = touch.filter.to_json();
    let filtered = by_filter.as_object().is_some_and(|set| !set.is_empty());
    match (touch.ids.is_empty(), filtered) {
        (true, false) => return Err("name tasks, or say which by a filter (see --help)".into()),
        (false, true) => return Err("name tasks or use a filter, not both".into()),
        _ => {}
    }
    operator::run(&touch.operator, true, async |desk| {
        let target = if filtered {
            object([
                ("filter", by_filter),
                ("limit", json!(touch.limit)),
                ("force", json!(force.then_some(true))),
            ])
        } else {
            let ids: Vec<String> = touch.ids.iter().map(TaskId::to_string).collect();
            object([("ids", json!(ids)), ("force", json!(force.then_some(true)))])
        };
        let acting = Acting {
            desk,
            act,
            force,
            audit: Uuid::new_v4(),
        };
        let ended = if filtered {
            acting.bulk(touch, &target).await
        } else {
            acting.named(touch, &target).await
        };
        desk.ended(acting.audit, ended).await
    })
}

struct Acting<'a> {
    desk: &'a Desk,
    act: TaskAct,
    force: bool,
    audit: Uuid,
}

impl Acting<'_> {
    async fn named(&self, touch: &Touch, target: &Value) -> Result<ExitCode, Failure> {
        let mut rows = Vec::new();
        let mut all_done = true;
        if touch.dry_run {
            for id in &touch.ids {
                let (possible, row) = self.possible(*id).await?;
                all_done &= possible;
                rows.push(row);
            }
            self.would(&rows);
        } else {
            self.write_down(target).await?;
            let queue = self.desk.queue().await;
            for id in &touch.ids {
                let (touched, row) = self.one(*id, None, queue.as_ref()).await?;
                all_done &= !matches!(touched, Touched::Missing | Touched::Refused(_));
                rows.push(row);
            }
            self.did(&rows).await;
        }
        Ok(code(all_done))
    }

    /// Whether the act can be done to a task, and the task.
    async fn possible(&self, id: TaskId) -> Result<(bool, Value), Failure> {
        let store = &self.desk.store;
        let filter = TaskFilter {
            ids: vec![id],
            ..TaskFilter::default()
        };
        let found = store.list_tasks(&filter, Some(self.act), (None, 1)).await?;
        if let Some(task) = found.first() {
            return Ok((!self.refused(task), self.would_row(task)));
        }
        Ok((
            false,
            match store.list_tasks(&filter, None, (None, 1)).await?.first() {
                Some(task) => {
                    let mut row = tasks::row(task);
                    row["refused"] = json!(format!("{} does not apply", self.act.as_str()));
                    row
                }
                None => {
                    json!({"id": id.to_string(), "status": "missing", "refused": "there is none"})
                }
            },
        ))
    }

    fn refused(&self, task: &TaskSummary) -> bool {
        task.refusal.is_some() && !self.force
    }

    fn would_row(&self, task: &TaskSummary) -> Value {
        let mut row = tasks::row(task);
        if let Some(refusal) = task.refusal.as_ref().filter(|_| !self.force) {
            row["refused"] = json!(format!("{refusal} (--force)"));
        }
        row
    }

    async fn bulk(&self, touch: &Touch, target: &Value) -> Result<ExitCode, Failure> {
        if !touch.yes || touch.dry_run {
            let mut found = Vec::new();
            self.pages(touch, async |page| {
                found.extend(page.iter().map(|task| self.would_row(task)));
                Ok(())
            })
            .await?;
            if touch.dry_run {
                self.would(&found);
                return Ok(ExitCode::SUCCESS);
            }
            return Err(format!(
                "{} of {}: look with --dry-run, then say --yes",
                self.act.as_str(),
                operator::tasks(found.len())
            )
            .into());
        }
        self.write_down(target).await?;
        let queue = self.desk.queue().await;
        let (mut rows, mut all_done) = (Vec::new(), true);
        self.pages(touch, async |page| {
            for task in page {
                let (touched, row) = self.one(task.id, Some(&task), queue.as_ref()).await?;
                all_done &= !matches!(touched, Touched::Missing | Touched::Refused(_));
                rows.push(row);
            }
            Ok(())
        })
        .await?;
        self.did(&rows).await;
        Ok(code(all_done))
    }

    /// All that fit the filter and the act, page by page, the newest first.
    async fn pages(
        &self,
        touch: &Touch,
        mut see: impl AsyncFnMut(Vec<TaskSummary>) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let filter = touch.filter.for_store();
        let (mut left, mut before) = (touch.limit.unwrap_or(i64::MAX), None);
        while left > 0 {
            let limit = left.min(PAGE);
            let store = &self.desk.store;
            let page = store
                .list_tasks(&filter, Some(self.act), (before, limit))
                .await?;
            let count = i64::try_from(page.len()).unwrap_or(i64::MAX);
            before = page.last().map(|task| task.id);
            see(page).await?;
            if count < limit {
                break;
            }
            left -= count;
        }
        Ok(())
    }

    async fn write_down(&self, target: &Value) -> Result<(), Failure> {
        let command = format!("tasks {}", self.act.as_str());
        let by = (self.desk.operator.as_str(), command.as_str());
        Ok(self.desk.store.audit(self.audit, by, target).await?)
    }

    async fn one(
        &self,
        id: TaskId,
        known: Option<&TaskSummary>,
        queue: Option<&Queue>,
    ) -> Result<(Touched, Value), Failure> {
        let store = &self.desk.store;
        let act = Act {
            audit: self.audit,
            operator: &self.desk.operator,
            id,
        };
        let touched = match self.act {
            TaskAct::Cancel => store.operator_cancel(act).await?,
            TaskAct::Expire => {
                let keep = self.desk.config.cron.tombstone_keep;
                store.operator_expire(act, keep).await?
            }
            TaskAct::Requeue => store.operator_requeue(act).await?,
            TaskAct::Retry => {
                let repeat = Repeat {
                    new_id: new_id(),
                    force: self.force,
                };
                store.operator_repeat(act, repeat).await?
            }
        };
        self.tell(id, &touched, queue).await;
        let detail = match &touched {
            Touched::Refused(why) => Some(why.clone()),
            Touched::Repeated { acted, .. } if *acted > 0 => {
                Some(format!("{acted} finished steps act again"))
            }
            _ => None,
        };
        let new_id = match &touched {
            Touched::Repeated { new_id, .. } => Some(*new_id),
            Touched::Before { new_id, .. } => *new_id,
            _ => None,
        };
        let row = object([
            ("id", json!(id.to_string())),
            ("tool", json!(known.map(|task| &task.tool))),
            ("outcome", json!(touched.outcome())),
            ("new_id", json!(new_id.map(|id| id.to_string()))),
            ("detail", json!(detail)),
        ]);
        Ok((touched, row))
    }

    /// Makes it happen soon; it happens without as well.
    async fn tell(&self, id: TaskId, touched: &Touched, queue: Option<&Queue>) {
        let Some(redis) = queue else { return };
        let lane = |tool: &String, version: &i32| Lane {
            tool: tool.clone(),
            version: *version,
        };
        match touched {
            Touched::Stopping => redis.stop(id).await,
            Touched::Ended | Touched::Buried => redis.wake(id).await,
            Touched::Undoing { tool, version } => {
                self.desk.hint(queue, &lane(tool, version), id).await;
                redis.wake(id).await;
            }
            Touched::Due { tool, version } => {
                self.desk.hint(queue, &lane(tool, version), id).await;
            }
            Touched::Repeated {
                new_id,
                tool,
                version,
                ..
            } => self.desk.hint(queue, &lane(tool, version), *new_id).await,
            Touched::Missing | Touched::Refused(_) | Touched::Before { .. } => {}
        }
    }

    fn would(&self, rows: &[Value]) {
        let columns = [
            "id",
            "tool",
            "status",
            "phase",
            "age_seconds",
            "principal",
            "reason",
            "refused",
        ];
        self.desk.rows(&columns, rows);
        let possible = rows.iter().filter(|row| row.get("refused").is_none());
        self.sum(&format!("would {}", self.act.as_str()), possible.count());
    }

    async fn did(&self, rows: &[Value]) {
        self.desk
            .rows(&["id", "tool", "outcome", "new_id", "detail"], rows);
        let done = rows.iter().filter(|row| {
            let outcome = row["outcome"].as_str();
            !matches!(outcome, Some("refused" | "missing"))
        });
        self.sum(self.act.as_str(), done.count());
        let outcomes = rows.iter().filter_map(|row| row["outcome"].as_str());
        self.desk
            .end(self.audit, &operator::counted(outcomes))
            .await;
    }

    /// On standard error: standard output is for the rows.
    fn sum(&self, what: &str, count: usize) {
        eprintln!("{what}: {}", operator::tasks(count));
    }
}

/// Nothing was refused, and nothing missing?
fn code(all_done: bool) -> ExitCode {
    if all_done {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// The time in an id says when it was made, roughly; nothing is decided by it.
#[expect(
    clippy::disallowed_methods,
    reason = "the time in a task's id decides nothing"
)]
fn new_id() -> TaskId {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let now = now.unwrap_or(Duration::ZERO).as_millis();
    TaskId::new(u64::try_from(now).unwrap_or(0))
}
