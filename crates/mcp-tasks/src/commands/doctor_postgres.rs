//! The doctor's look at Postgres: the server, the way to it, and the schema.

use std::time::{Duration, SystemTime};

use store::{Error, Refusal, ServerFacts};

use super::chain;
use super::doctor::{Findings, PATIENCE};
use super::operator::{Desk, age};

/// The oldest that knows all that sessions are set to.
const VERSION_MIN: i32 = 140_000;
/// Nothing is decided by a process' own clock, but tokens and log lines are read by it.
const OFFSET: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));
/// While a transaction is open, no garbage that came after it can be collected.
const TRANSACTION: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(3600));
/// A standby that is behind loses so much when it takes over.
const LAG: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(300));
const LAG_BYTES: (i64, i64) = (64 << 20, 4 << 30);
/// Of two billion, at which Postgres refuses to write.
const XID_AGE: (i64, i64) = (500_000_000, 1_500_000_000);

/// Whether Postgres is there with a schema that this binary knows.
pub async fn look(desk: &Desk, findings: &mut Findings) -> bool {
    let store = desk.store.with_wait(PATIENCE);
    let began = local_clock();
    let facts = match store.server_facts().await {
        Ok(facts) => facts,
        Err(error) => {
            match error.refusal() {
                Some(refusal) => findings.fail("postgres", refusal.what(), refusal.todo()),
                None => findings.fail(
                    "postgres",
                    chain(&error),
                    "nothing works without it: check postgres.url, the server and the way to it",
                ),
            }
            return false;
        }
    };
    let ended = local_clock();
    if facts.version_num < VERSION_MIN {
        findings.fail("postgres", &facts.version, "use Postgres 14 or newer");
    } else {
        findings.ok("postgres", format!("version {}", facts.version));
    }
    // Through a pooler that breaks sessions nothing else can be asked in earnest.
    let knows = pooler(desk, findings).await && schema(desk, findings).await;
    if knows {
        rights(desk, findings).await;
        encryption(desk, findings).await;
    }
    clock(&facts, (began, ended), findings);
    durability(&facts, findings);
    transactions(&facts, findings);
    replication(&facts, findings);
    knows
}

async fn pooler(desk: &Desk, findings: &mut Findings) -> bool {
    let checked = desk.store.check_sessions().await;
    match &checked {
        Ok(()) => findings.ok("sessions", "every connection keeps its session"),
        Err(error) => findings.fail(
            "sessions",
            chain(error),
            "no process starts like this: use session pooling, or connect directly",
        ),
    }
    checked.is_ok()
}

async fn schema(desk: &Desk, findings: &mut Findings) -> bool {
    let store = desk.store.with_wait(PATIENCE);
    match store.check_schema().await {
        Ok(()) => {
            let release = store::migrate::release();
            findings.ok("schema", format!("fits this binary ({release})"));
            true
        }
        Err(Error::Schema(problem)) => {
            let todo = if problem.contains("mcp-tasks migrate") {
                "run `mcp-tasks migrate`"
            } else {
                "run a newer release of mcp-tasks: this one is too old for the schema"
            };
            findings.fail("schema", problem, todo);
            false
        }
        Err(error) => {
            let todo = error.refusal().map(Refusal::todo);
            let todo = todo.unwrap_or("it could not be asked: look at the server");
            findings.fail("schema", chain(&error), todo);
            false
        }
    }
}

async fn rights(desk: &Desk, findings: &mut Findings) {
    match desk.store.with_wait(PATIENCE).missing_rights().await {
        Ok(missing) if missing.is_empty() => findings.ok("rights", "the role may do everything"),
        Ok(missing) => {
            let missing: Vec<String> = missing.iter().map(ToString::to_string).collect();
            findings.fail(
                "rights",
                format!("the role lacks {}", missing.join("; ")),
                "grant that, or let the processes be the tables' owner",
            );
        }
        Err(error) => findings.fail("rights", chain(&error), "look at the server"),
    }
}

/// Whether the keys that rows need are here, and whether a rotation is over.
async fn encryption(desk: &Desk, findings: &mut Findings) {
    let store = desk.store.with_wait(PATIENCE);
    let needed = match store.sealed_by().await {
        Ok(needed) => needed,
        Err(error) => return findings.fail("encryption", chain(&error), "look at the server"),
    };
    let keys = store.encryption_keys();
    let rows =
        |sealed: &store::SealedBy| format!("{} tasks need key {:?}", sealed.tasks, sealed.key);
    for sealed in needed.iter().filter(|sealed| !sealed.here) {
        findings.fail(
            "encryption",
            format!("{}, which encryption.keys lacks", rows(sealed)),
            "they cannot be read or run until the key is there: add it again, at the end",
        );
    }
    let first = keys.first();
    let others = needed
        .iter()
        .filter(|sealed| sealed.here && Some(&sealed.key) != first);
    let others: Vec<String> = others.map(rows).collect();
    if !others.is_empty() {
        findings.warn(
            "encryption",
            others.join("; "),
            "a rotation is not over: cron wraps them by the first key, or run `mcp-tasks cron run rewrap`",
        );
    }
    match first {
        Some(_) if !desk.config.encryption.seal => {
            findings.ok(
                "encryption",
                "keys open what is sealed; new tasks are not sealed",
            );
        }
        Some(first) => findings.ok(
            "encryption",
            format!("new tasks are sealed with key {first:?}"),
        ),
        None if needed.is_empty() => findings.ok("encryption", "off"),
        None => {}
    }
}

fn clock(facts: &ServerFacts, (began, ended): (SystemTime, SystemTime), findings: &mut Findings) {
    let round_trip = ended.duration_since(began).unwrap_or_default();
    let here = began + round_trip / 2;
    let offset = match facts.now.duration_since(here) {
        Ok(ahead) => ahead,
        Err(behind) => behind.duration(),
    };
    // No more can be known than how long the question took.
    let offset = offset.saturating_sub(round_trip);
    findings.measure(
        "clock",
        (&offset, &OFFSET.0, &OFFSET.1),
        format!(
            "this machine and Postgres differ by {} ms",
            offset.as_millis()
        ),
        "leases are Postgres' and stay right, but tokens and logs are judged by local clocks: run NTP",
    );
}

fn durability(facts: &ServerFacts, findings: &mut Findings) {
    for (check, value) in [
        ("synchronous_commit", &facts.synchronous_commit),
        ("fsync", &facts.fsync),
        ("full_page_writes", &facts.full_page_writes),
    ] {
        if value == "off" {
            findings.fail(
                check,
                "off",
                "acknowledged tasks are lost with the machine: set it to on",
            );
        } else {
            findings.ok(check, value);
        }
    }
    if facts.autovacuum == "off" {
        findings.fail(
            "autovacuum",
            "off",
            "the tables grow without end: set it to on",
        );
    }
}

fn transactions(facts: &ServerFacts, findings: &mut Findings) {
    if facts.blind {
        findings.warn(
            "transactions",
            "this role does not see other roles' sessions",
            "grant it pg_read_all_stats to have them looked at",
        );
    }
    let oldest = facts.oldest_transaction.max(facts.oldest_prepared);
    let oldest = oldest.unwrap_or_default();
    findings.measure(
        "transactions",
        (&oldest, &TRANSACTION.0, &TRANSACTION.1),
        format!("the oldest is {} old", age(oldest.as_secs())),
        "garbage is not collected meanwhile: find it in pg_stat_activity or pg_prepared_xacts, and end it",
    );
    findings.measure(
        "freezing",
        (&facts.xid_age, &XID_AGE.0, &XID_AGE.1),
        format!("{} million transactions not frozen", facts.xid_age / 1_000_000),
        "vacuum does not keep up, and at two billion Postgres refuses to write: look for what holds it up",
    );
}

fn replication(facts: &ServerFacts, findings: &mut Findings) {
    if facts.idle_slots > 0 {
        findings.warn(
            "replication slots",
            format!("{} that nobody reads", facts.idle_slots),
            "their log is kept until the disk is full: start their readers, or drop them",
        );
    }
    if facts.standbys == 0 {
        findings.ok("replication", "no standby");
        return;
    }
    let (lag, bytes) = (facts.lag.0.unwrap_or_default(), facts.lag.1.unwrap_or(0));
    let worse = if lag >= LAG.1 || bytes >= LAG_BYTES.1 {
        2
    } else {
        i32::from(lag >= LAG.0 || bytes >= LAG_BYTES.0)
    };
    let synchronous = if facts.synchronous_standby_names.is_empty() {
        "commits wait for none"
    } else {
        "commits wait for one"
    };
    findings.measure(
        "replication",
        (&worse, &1, &2),
        format!(
            "{} standbys, {} and {bytes} bytes behind; {synchronous}",
            facts.standbys,
            age(lag.as_secs())
        ),
        "what is behind is lost in a failover: look at the standby and the way to it",
    );
}

/// The only place that compares clocks, because that is what it is asked for.
#[expect(
    clippy::disallowed_methods,
    reason = "the doctor compares this clock with Postgres'"
)]
fn local_clock() -> SystemTime {
    SystemTime::now()
}
