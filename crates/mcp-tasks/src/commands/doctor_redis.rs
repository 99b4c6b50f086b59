//! The doctor's look at Redis: it carries hints, so what it loses costs time, never tasks.

use super::chain;
use super::doctor::Findings;
use super::operator::Desk;

/// Streams with consumer groups as we use them; XAUTOCLAIM as it is now.
const MAJOR_MIN: u32 = 7;

/// Looks at the server behind `redis.url`.
pub async fn look(desk: &Desk, findings: &mut Findings) {
    let queue = match queue::Queue::new(desk.config.redis.clone(), &desk.registry) {
        Ok(queue) => queue,
        Err(error) => {
            findings.fail("redis", chain(&error), "mend the settings");
            return;
        }
    };
    match queue.server_info().await {
        Ok(info) => judge(&info, findings),
        Err(error) => findings.fail(
            "redis",
            chain(&error),
            error.refusal().unwrap_or(
                "jobs wait for a look into Postgres every 2 s meanwhile: check redis.url and the server",
            ),
        ),
    }
}

/// By what the server says of itself (`INFO`).
fn judge(info: &str, findings: &mut Findings) {
    let field = |name: &str| {
        let mut lines = info.lines();
        let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        value.map(str::trim).unwrap_or_default()
    };
    let version = field("redis_version");
    let major = version
        .split('.')
        .next()
        .and_then(|n| n.parse::<u32>().ok());
    if major.is_none_or(|major| major < MAJOR_MIN) {
        findings.warn(
            "redis",
            format!("version {version}"),
            "use Redis 7 or newer: older ones are not tested",
        );
    } else {
        findings.ok("redis", format!("version {version}"));
    }
    if field("role") == "slave" {
        findings.fail(
            "redis role",
            "a replica, which takes no hints",
            "point redis.url at the primary",
        );
    }
    eviction(field("maxmemory_policy"), field("maxmemory"), findings);
    persistence(&field, findings);
    memory(field("used_memory"), field("maxmemory"), findings);
}

fn eviction(policy: &str, maxmemory: &str, findings: &mut Findings) {
    match policy {
        "noeviction" => findings.ok("redis eviction", policy),
        "" => findings.warn(
            "redis eviction",
            "the server does not say",
            "see that its maxmemory-policy is noeviction",
        ),
        _ if maxmemory == "0" => findings.warn(
            "redis eviction",
            format!("{policy}, without a limit of memory"),
            "set maxmemory-policy to noeviction before somebody sets a limit",
        ),
        _ => findings.fail(
            "redis eviction",
            format!("{policy}: hints vanish when memory runs short"),
            "set maxmemory-policy to noeviction, or give it a Redis of its own",
        ),
    }
}

fn persistence<'a>(field: &impl Fn(&str) -> &'a str, findings: &mut Findings) {
    let appends = field("aof_enabled") == "1";
    // With stop-writes-on-bgsave-error, the default, it refuses hints from then on.
    if field("rdb_last_bgsave_status") == "err" || field("aof_last_write_status") == "err" {
        findings.fail(
            "redis persistence",
            "the last save failed",
            "it may refuse hints now: look at its disk",
        );
    } else if appends {
        findings.ok("redis persistence", "append-only file");
    } else if field("config_save") == "off" {
        findings.warn(
            "redis persistence",
            "off: a restart loses all hints, which cron gives again within seconds",
            "set appendonly yes, where jobs shall not wait for that",
        );
    } else {
        findings.ok(
            "redis persistence",
            "snapshots: a restart loses the last hints, which cron gives again within seconds",
        );
    }
}

fn memory(used: &str, max: &str, findings: &mut Findings) {
    let (Ok(used), Ok(max)) = (used.parse::<u64>(), max.parse::<u64>()) else {
        return;
    };
    if max == 0 {
        return;
    }
    let percent = used.saturating_mul(100) / max;
    findings.measure(
        "redis memory",
        (&percent, &80, &95),
        format!("{percent} % used"),
        "at its limit it refuses hints: raise maxmemory, or see what fills it",
    );
}

#[cfg(test)]
mod tests {
    use super::super::doctor::Verdict;
    use super::*;

    fn worst(info: &str) -> Verdict {
        let mut findings = Findings::default();
        judge(info, &mut findings);
        findings.worst().unwrap()
    }

    #[test]
    fn a_server_is_judged_by_what_it_says() {
        let good = "redis_version:7.2.4\r\nrole:master\r\nmaxmemory:0\r\nmaxmemory_policy:noeviction\r\naof_enabled:1\r\n";
        assert_eq!(worst(good), Verdict::Ok);
        for (from, to, verdict) in [
            ("noeviction", "allkeys-lru", Verdict::Warn),
            (
                "maxmemory:0\r\nmaxmemory_policy:noeviction",
                "maxmemory:100\r\nmaxmemory_policy:allkeys-lru",
                Verdict::Fail,
            ),
            ("7.2.4", "6.2.1", Verdict::Warn),
            ("role:master", "role:slave", Verdict::Fail),
            ("aof_enabled:1", "rdb_last_bgsave_status:err", Verdict::Fail),
            ("aof_enabled:1", "config_save:3600 1", Verdict::Ok),
            ("aof_enabled:1", "config_save:off", Verdict::Warn),
            (
                "maxmemory:0",
                "used_memory:90\r\nmaxmemory:100",
                Verdict::Warn,
            ),
        ] {
            assert_eq!(worst(&good.replace(from, to)), verdict, "{to}");
        }
    }
}
