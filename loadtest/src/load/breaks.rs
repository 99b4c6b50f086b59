//! What a scenario breaks, in the words of the chaos harness.

use harness::config::Role;

use super::scenario::{Break, How};
use crate::fault::{Fault, Target, What};
use crate::schedule::{Numbers, Planned};

/// The plan of these breaks.
///
/// # Errors
/// If something is to be broken that there is not.
pub fn plan(breaks: &[Break], numbers: Numbers) -> Result<Vec<Planned>, String> {
    let mut plan = Vec::new();
    for planned in breaks {
        let target = target(&planned.target, numbers).map_err(|why| planned.told(&why))?;
        let what = match planned.how {
            How::Killed => What::Killed,
            How::Drained => What::Drained,
            How::Frozen => What::Frozen,
        };
        if what == What::Drained && matches!(target, Target::Postgres | Target::Redis) {
            return Err(planned.told("only our processes can be drained"));
        }
        plan.push(Planned {
            at: planned.at,
            fault: Fault {
                target,
                what,
                lasts: planned.lasts,
            },
        });
    }
    plan.sort_by_key(|planned| planned.at);
    Ok(plan)
}

fn target(name: &str, numbers: Numbers) -> Result<Target, String> {
    let roles = [
        ("gateway", Role::Gateway, numbers.gateways),
        ("worker", Role::Worker, numbers.workers),
        ("cron", Role::Cron, numbers.crons),
    ];
    match name {
        "postgres" => return Ok(Target::Postgres),
        "redis" => return Ok(Target::Redis),
        _ => {}
    }
    for (role_name, role, count) in roles {
        let number = name
            .strip_prefix(role_name)
            .and_then(|rest| rest.strip_prefix('-'));
        let number = number.and_then(|number| number.parse::<usize>().ok());
        match number {
            Some(number) if (1..=count).contains(&number) => {
                return Ok(Target::Node(role, number - 1));
            }
            Some(_) => {
                return Err(format!("there are {role_name}-1 to -{count}"));
            }
            None => {}
        }
    }
    Err("allowed are gateway-N, worker-N, cron-N, postgres and redis".to_owned())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn only_what_there_is_breaks() {
        let numbers = Numbers {
            gateways: 2,
            workers: 1,
            crons: 1,
        };
        let of = |target: &str, how| {
            let planned = Break {
                at: Duration::ZERO,
                target: target.to_owned(),
                how,
                lasts: Duration::ZERO,
                line: Some(7),
            };
            plan(&[planned], numbers)
        };
        let good = of("gateway-2", How::Killed).unwrap();
        assert_eq!(good[0].fault.target, Target::Node(Role::Gateway, 1));
        for wrong in ["gateway-3", "gateway-0", "gateway", "gate-1", ""] {
            let told = of(wrong, How::Killed).unwrap_err();
            assert!(
                told.starts_with(&format!("line 7: break of {wrong}: ")),
                "{told}"
            );
        }
        assert!(of("redis", How::Drained).is_err());
    }
}
