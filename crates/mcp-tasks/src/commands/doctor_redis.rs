//! The doctor's look at Redis, or at the servers of its cluster: it carries hints, so what it loses costs time, never tasks.

use queue::{Part, Servers};

use super::chain;
use super::doctor::Findings;
use super::operator::Desk;

/// Streams with consumer groups as we use them; XAUTOCLAIM as it is now.
const MAJOR_MIN: u32 = 7;

/// Looks at the server behind `redis.url`, or at those of its cluster.
pub async fn look(desk: &Desk, findings: &mut Findings) {
    let queue = match queue::Queue::new(desk.config.redis.clone(), &desk.registry) {
        Ok(queue) => queue,
        Err(error) => {
            findings.fail("redis", chain(&error), "mend the settings");
            return;
        }
    };
    match queue.servers().await {
        Ok(servers) => judge_all(&servers, findings),
        Err(error) => Seen::new(None, findings).not_reachable(&error),
    }
}

fn judge_all(servers: &Servers, findings: &mut Findings) {
    for server in &servers.servers {
        let mut seen = Seen::new(server.at.as_deref(), findings);
        match &server.info {
            Ok(info) => seen.judge(info),
            Err(error) => seen.not_reachable(error),
        }
        if let Some(part) = server.part {
            seen.keeps(part);
        }
    }
    if servers.homeless > 0 {
        findings.fail(
            "redis cluster",
            format!("nobody keeps {} of the shards", servers.homeless),
            "see that all slots are covered: redis-cli --cluster check",
        );
    }
}

/// What one server shows.
struct Seen<'a> {
    /// Tells it from others of its cluster.
    at: String,
    findings: &'a mut Findings,
}

impl<'a> Seen<'a> {
    fn new(at: Option<&str>, findings: &'a mut Findings) -> Self {
        let at = at.map_or_else(String::new, |at| format!("{at}: "));
        Self { at, findings }
    }

    fn ok(&mut self, check: &'static str, seen: &str) {
        self.findings.ok(check, format!("{}{seen}", self.at));
    }

    fn warn(&mut self, check: &'static str, seen: &str, advice: &'static str) {
        self.findings
            .warn(check, format!("{}{seen}", self.at), advice);
    }

    fn fail(&mut self, check: &'static str, seen: &str, advice: &'static str) {
        self.findings
            .fail(check, format!("{}{seen}", self.at), advice);
    }

    fn not_reachable(&mut self, error: &queue::Error) {
        let advice = error.refusal().unwrap_or(
            "jobs wait for a look into Postgres every 2 s meanwhile: check redis.url and the server",
        );
        self.fail("redis", &chain(error), advice);
    }

    /// What a server of a cluster is there for.
    fn keeps(&mut self, part: Part) {
        let says = format!("shards {}, replicas {}", part.shards, part.replicas);
        if part.replicas == 0 {
            let advice = "give it a replica: while it is away, hints of its shards do not flow";
            self.warn("redis cluster", &says, advice);
        } else {
            self.ok("redis cluster", &says);
        }
    }

    /// By what the server says of itself (`INFO`, and `CLUSTER INFO`).
    fn judge(&mut self, info: &str) {
        let field = |name: &str| {
            let mut lines = info.lines();
            let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            value.map(str::trim).unwrap_or_default()
        };
        let version = field("redis_version");
        let says = format!("version {version}");
        let major = version
            .split('.')
            .next()
            .and_then(|n| n.parse::<u32>().ok());
        if major.is_none_or(|major| major < MAJOR_MIN) {
            self.warn(
                "redis",
                &says,
                "use Redis 7 or newer: older ones are not tested",
            );
        } else {
            self.ok("redis", &says);
        }
        if field("role") == "slave" {
            self.fail(
                "redis role",
                "a replica, which takes no hints",
                "point redis.url at the primary",
            );
        }
        match (field("cluster_enabled"), field("cluster_state")) {
            (_, "ok") | ("" | "0", "") => {}
            (_, "") => self.fail(
                "redis cluster",
                "it is one, and nobody said so",
                "set redis.cluster = true",
            ),
            (_, state) => self.fail(
                "redis cluster",
                &format!("its state is {state}"),
                "it takes no hints: see redis-cli --cluster check",
            ),
        }
        self.eviction(field("maxmemory_policy"), field("maxmemory"));
        self.persistence(&field);
        self.memory(field("used_memory"), field("maxmemory"));
    }

    fn eviction(&mut self, policy: &str, maxmemory: &str) {
        match policy {
            "noeviction" => self.ok("redis eviction", policy),
            "" => self.warn(
                "redis eviction",
                "the server does not say",
                "see that its maxmemory-policy is noeviction",
            ),
            _ if maxmemory == "0" => self.warn(
                "redis eviction",
                &format!("{policy}, without a limit of memory"),
                "set maxmemory-policy to noeviction before somebody sets a limit",
            ),
            _ => self.fail(
                "redis eviction",
                &format!("{policy}: hints vanish when memory runs short"),
                "set maxmemory-policy to noeviction, or give it a Redis of its own",
            ),
        }
    }

    fn persistence<'i>(&mut self, field: &impl Fn(&str) -> &'i str) {
        let appends = field("aof_enabled") == "1";
        // With stop-writes-on-bgsave-error, the default, it refuses hints from then on.
        if field("rdb_last_bgsave_status") == "err" || field("aof_last_write_status") == "err" {
            self.fail(
                "redis persistence",
                "the last save failed",
                "it may refuse hints now: look at its disk",
            );
        } else if appends {
            self.ok("redis persistence", "append-only file");
        } else if field("config_save") == "off" {
            self.warn(
                "redis persistence",
                "off: a restart loses all hints, which cron gives again within seconds",
                "set appendonly yes, where jobs shall not wait for that",
            );
        } else {
            self.ok(
                "redis persistence",
                "snapshots: a restart loses the last hints, which cron gives again within seconds",
            );
        }
    }

    fn memory(&mut self, used: &str, max: &str) {
        let (Ok(used), Ok(max)) = (used.parse::<u64>(), max.parse::<u64>()) else {
            return;
        };
        if max == 0 {
            return;
        }
        let percent = used.saturating_mul(100) / max;
        self.findings.measure(
            "redis memory",
            (&percent, &80, &95),
            format!("{}{percent} % used", self.at),
            "at its limit it refuses hints: raise maxmemory, or see what fills it",
        );
    }
}

#[cfg(test)]
mod tests {
    use super::super::doctor::Verdict;
    use super::*;

    fn worst(info: &str) -> Verdict {
        let mut findings = Findings::default();
        Seen::new(None, &mut findings).judge(info);
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
            (
                "role:master",
                "role:master\r\ncluster_enabled:1",
                Verdict::Fail,
            ),
            (
                "role:master",
                "role:master\r\ncluster_enabled:1\r\ncluster_state:ok",
                Verdict::Ok,
            ),
            (
                "role:master",
                "role:master\r\ncluster_enabled:1\r\ncluster_state:fail",
                Verdict::Fail,
            ),
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
