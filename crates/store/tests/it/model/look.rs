//! All that can be seen of the database, in the words of the model; and time, which only the test
//! moves.

use std::collections::BTreeMap;

use tokio_postgres::{Client, SimpleQueryMessage, SimpleQueryRow};
use uuid::Uuid;

use super::opened::RowKey;
use super::real::{NO, Real};
use super::state::{Minutes, or_none};
use crate::support::YES;

/// What is seen of a database.
#[derive(Debug)]
pub struct Seen {
    /// As [`Model::shown`].
    pub shown: BTreeMap<String, String>,
    /// When each task was last updated, µs by the test's clock.
    pub updated: BTreeMap<usize, i64>,
}

/// Keys of a JSON object.
pub fn keys(object: &[u8]) -> Vec<String> {
    let object: serde_json::Map<String, serde_json::Value> =
        serde_json::from_slice(object).unwrap();
    let mut keys: Vec<String> = object.into_iter().map(|(key, _)| key).collect();
    keys.sort();
    keys
}

/// Moves every time in the database, whatever columns there are, by `$1` minutes into the past.
pub async fn pass_time(client: &Client) -> String {
    let sql = "SELECT format('UPDATE %I SET %s;', table_name,
            string_agg(format('%1$I = %1$I - interval ''$1 minutes''', column_name), ', '))
        FROM information_schema.columns
        WHERE table_schema = 'public' AND data_type = 'timestamp with time zone'
          AND table_name IN ('tasks', 'steps', 'inputs', 'idempotency_keys', 'tombstones')
        GROUP BY table_name";
    let rows = client.query(sql, &[]).await.unwrap();
    let updates: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
    assert_eq!(updates.len(), 5, "{updates:?}");
    updates.concat()
}

/// Everything that the model knows of, one statement a table.
const LOOK: &str = "
    SELECT 'task', id, status, phase, stop_reason, attempt, claim_token, tries, journaled,
        open_step, has_undo, pending_status, rounds, handed_out_at IS NOT NULL,
        first_fetched_at IS NOT NULL, status_message, encode(result, 'hex'),
        encode(error, 'hex'), encode(input_requests, 'hex'),
        round(extract(epoch FROM expires_at - now()) / 60),
        round(extract(epoch FROM lease_until - now()) / 60),
        round(extract(epoch FROM input_deadline_at - now()) / 60),
        round(extract(epoch FROM run_at - now()) / 60),
        round(extract(epoch FROM held_until - now()) / 60),
        round(work_ms_used / 60000.0),
        (extract(epoch FROM last_updated_at) * 1000000)::bigint, alerted_at IS NOT NULL,
        encode(data_key, 'hex')
    FROM tasks;
    SELECT 'step', task_id, key, seq, state, undo_state, undo_tries FROM steps ORDER BY key;
    SELECT 'input', task_id, key, seq, encode(response, 'hex'), answered_by,
        round(extract(epoch FROM deadline_at - now()) / 60)
    FROM inputs ORDER BY key;
    SELECT 'key', task_id, key FROM idempotency_keys;
    SELECT 'tombstone', task_id, final_status, round(extract(epoch FROM purge_at - now()) / 60)
    FROM tombstones";

/// A text column, `-` for NULL, booleans as Rust prints them.
fn text(row: &SimpleQueryRow, at: usize) -> String {
    match row.get(at) {
        None => "-".to_owned(),
        Some("t") => "true".to_owned(),
        Some("f") => "false".to_owned(),
        Some(text) => text.to_owned(),
    }
}

impl Real {
    /// All that can be seen; `now` is what the test's clock says.
    pub async fn look(&self, now: Minutes) -> Seen {
        let messages = self.client().simple_query(LOOK).await.unwrap();
        let slots = self.by_id();
        let mut keys: BTreeMap<usize, RowKey> = BTreeMap::new();
        let mut seen = Seen {
            shown: BTreeMap::new(),
            updated: BTreeMap::new(),
        };
        let mut parts: BTreeMap<(usize, &str), Vec<String>> = BTreeMap::new();
        for message in &messages {
            let SimpleQueryMessage::Row(row) = message else {
                continue;
            };
            let slot = slots[row.get(1).unwrap()];
            let minutes = |at: usize| match row.get(at) {
                None => "-".to_owned(),
                Some(text) => (text.parse::<i64>().unwrap() + now).to_string(),
            };
            match row.get(0).unwrap() {
                "task" => {
                    parts.entry((slot, "steps")).or_default();
                    parts.entry((slot, "inputs")).or_default();
                    let updated: i64 = row.get(25).unwrap().parse().unwrap();
                    seen.updated.insert(slot, updated + now * 60_000_000);
                    let key = self.row_key(row.get(1).unwrap(), row.get(27));
                    for (name, text) in task(row, &key, &minutes) {
                        seen.shown.insert(format!("{slot}.{name}"), text);
                    }
                    keys.insert(slot, key);
                }
                "step" => {
                    let [key, seq, state, undo, tries] = [2, 3, 4, 5, 6].map(|at| text(row, at));
                    let said = format!("{key}#{seq} {state} {undo} {tries}");
                    parts.entry((slot, "steps")).or_default().push(said);
                }
                "input" => {
                    let [key, seq, who] = [2, 3, 5].map(|at| text(row, at));
                    let response = row
                        .get(4)
                        .map(|hex| keys[&slot].open(("inputs.response", &key), hex));
                    let said = match response.as_deref() {
                        None => format!("{key}#{seq} by {}", minutes(6)),
                        Some(YES) => format!("{key}#{seq} Yes of {who}"),
                        Some(NO) => format!("{key}#{seq} No of {who}"),
                        Some(other) => panic!("{other}"),
                    };
                    parts.entry((slot, "inputs")).or_default().push(said);
                }
                "key" => {
                    let key = format!("key {}", text(row, 2));
                    seen.shown.insert(key, slot.to_string());
                }
                _ => {
                    let said = format!("{} until {}", text(row, 2), minutes(3));
                    seen.shown.insert(format!("tombstone {slot}"), said);
                }
            }
        }
        for ((slot, name), mut said) in parts {
            said.sort();
            seen.shown.insert(format!("{slot}.{name}"), said.join(", "));
        }
        seen
    }
}

fn failure(error: &str) -> String {
    let error: serde_json::Value = serde_json::from_str(error).unwrap();
    let data = &error["data"];
    let step = data["step"].as_str().unwrap_or("-");
    let failed: Vec<&str> = data["undoFailed"]
        .as_array()
        .map(|steps| {
            steps
                .iter()
                .map(|step| step["step"].as_str().unwrap())
                .collect()
        })
        .unwrap_or_default();
    format!(
        "{} {step} [{}]",
        data["reason"].as_str().unwrap(),
        failed.join(" ")
    )
}

fn task(
    row: &SimpleQueryRow,
    key: &RowKey,
    minutes: &dyn Fn(usize) -> String,
) -> Vec<(&'static str, String)> {
    let token = row
        .get(6)
        .map(|token| token.parse::<Uuid>().unwrap().as_u128());
    let value = |column, at| Some(key.open((column, ""), row.get(at)?));
    let result = value("tasks.result", 16).map(|json| serde_json::from_str::<String>(&json));
    let result = result.map(Result::unwrap);
    let asked = value("tasks.input_requests", 18);
    let asked = asked.map(|object| keys(object.as_bytes()).join(" "));
    let error = row.get(17).map(|hex| key.open_error(hex));
    let (status, phase) = (text(row, 2), text(row, 3));
    let mut fields = vec![
        ("status", status),
        ("phase", phase.clone()),
        ("stop", text(row, 4)),
        ("expires", minutes(19)),
        ("attempt", text(row, 5)),
        ("token", or_none(token)),
        ("tries", text(row, 7)),
        ("work", text(row, 24)),
        ("journaled", text(row, 8)),
        ("open", text(row, 9)),
        ("undo", text(row, 10)),
        ("pending", text(row, 11)),
        ("rounds", text(row, 12)),
        ("asked", or_none(asked)),
        ("handed", text(row, 13)),
        ("fetched", text(row, 14)),
        ("judged", text(row, 26)),
        ("result", or_none(result)),
        ("failure", or_none(error.as_deref().map(failure))),
    ];
    if phase != "-" {
        fields.push(("lease", minutes(20)));
        fields.push(("deadline", minutes(21)));
        fields.push(("run_at", minutes(22)));
        fields.push(("held", minutes(23)));
    }
    if phase != "-" && phase != "undoing" {
        fields.push(("message", key.open_text(&text(row, 15))));
    }
    fields
}
