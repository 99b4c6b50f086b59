//! `mcp-tasks doctor`: whether what the system stands on is fit for it, and what to do where not.

use std::process::ExitCode;
use std::time::Duration;

use serde_json::{Value, json};

use super::operator::{self, Options, Output, object, table};
use super::{
    Failure, doctor_alerts, doctor_auth, doctor_fleet, doctor_postgres, doctor_redis, doctor_tools,
};
use crate::out::outln;

/// Postgres and Redis are waited for so long.
pub const PATIENCE: Duration = Duration::from_secs(3);

/// What the doctor must be told.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Gateways, workers and crons together, for the sum of their pools; else the workers that are
    /// alive, one gateway and one cron are counted.
    #[arg(long)]
    processes: Option<u32>,
    #[command(flatten)]
    operator: Options,
}

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// As it should be.
    Ok,
    /// It works, and somebody should look.
    Warn,
    /// It does not work, or acknowledged tasks may be lost.
    Fail,
}

/// One line.
#[derive(Clone, Debug)]
pub struct Finding {
    /// What was looked at.
    check: &'static str,
    verdict: Verdict,
    /// What was seen.
    seen: String,
    /// What to do.
    advice: Option<&'static str>,
}

/// All findings so far.
#[derive(Default)]
pub struct Findings(Vec<Finding>);

impl Findings {
    /// As it should be.
    pub fn ok(&mut self, check: &'static str, seen: impl Into<String>) {
        self.add(check, Verdict::Ok, seen, None);
    }

    /// Somebody should look.
    pub fn warn(&mut self, check: &'static str, seen: impl Into<String>, advice: &'static str) {
        self.add(check, Verdict::Warn, seen, Some(advice));
    }

    /// It does not work.
    pub fn fail(&mut self, check: &'static str, seen: impl Into<String>, advice: &'static str) {
        self.add(check, Verdict::Fail, seen, Some(advice));
    }

    /// A measure with two bounds.
    pub fn measure<T: PartialOrd>(
        &mut self,
        check: &'static str,
        (value, warn, fail): (&T, &T, &T),
        seen: impl Into<String>,
        advice: &'static str,
    ) {
        let verdict = if value >= fail {
            Verdict::Fail
        } else if value >= warn {
            Verdict::Warn
        } else {
            Verdict::Ok
        };
        let advice = (verdict != Verdict::Ok).then_some(advice);
        self.add(check, verdict, seen, advice);
    }

    /// The worst of them; `None` = nothing was looked at.
    pub fn worst(&self) -> Option<Verdict> {
        self.0.iter().map(|finding| finding.verdict).max()
    }

    fn add(
        &mut self,
        check: &'static str,
        verdict: Verdict,
        seen: impl Into<String>,
        advice: Option<&'static str>,
    ) {
        self.0.push(Finding {
            check,
            verdict,
            seen: seen.into(),
            advice,
        });
    }
}

/// Looks at everything; exit code 1 if something does not work.
///
/// # Errors
/// When the settings cannot be used. What cannot be reached is a finding.
pub fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    operator::run(&arguments.operator, false, async |desk| {
        let mut findings = Findings::default();
        if doctor_postgres::look(desk, &mut findings).await {
            doctor_fleet::look(desk, arguments.processes, &mut findings).await?;
        }
        doctor_redis::look(desk, &mut findings).await;
        doctor_auth::look(desk, &mut findings).await;
        doctor_tools::look(desk, &mut findings).await;
        doctor_alerts::look(desk, &mut findings).await;
        print(desk.output, &findings.0);
        Ok(match findings.worst() {
            Some(Verdict::Fail) | None => ExitCode::FAILURE,
            Some(Verdict::Ok | Verdict::Warn) => ExitCode::SUCCESS,
        })
    })
}

fn print(output: Output, findings: &[Finding]) {
    let rows = findings.iter().map(|finding| {
        let verdict = match finding.verdict {
            Verdict::Ok => "ok",
            Verdict::Warn => "warn",
            Verdict::Fail => "fail",
        };
        object([
            ("verdict", json!(verdict)),
            ("check", json!(finding.check)),
            ("seen", json!(finding.seen)),
            ("advice", json!(finding.advice)),
        ])
    });
    let rows: Vec<Value> = rows.collect();
    if output == Output::Json {
        outln!("{:#}", Value::Array(rows));
        return;
    }
    // One line each, and below it what to do: both are sentences, and longer than a cell.
    let heads = table(&["verdict", "check"], &rows);
    for (head, finding) in heads.lines().skip(1).zip(findings) {
        outln!("{head:<30}  {}", finding.seen);
        if let Some(advice) = finding.advice {
            outln!("{:<30}  -> {advice}", "");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_measure_is_judged_by_its_bounds() {
        let mut findings = Findings::default();
        for value in [9, 10, 20] {
            findings.measure("x", (&value, &10, &20), "seen", "do");
        }
        let verdicts: Vec<Verdict> = findings.0.iter().map(|finding| finding.verdict).collect();
        assert_eq!(verdicts, [Verdict::Ok, Verdict::Warn, Verdict::Fail]);
        assert!(findings.0[0].advice.is_none() && findings.0[1].advice.is_some());
    }
}
