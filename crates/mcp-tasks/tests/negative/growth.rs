//! What must not grow with bad requests: rows, keys in Redis, files, memory.

use std::collections::BTreeMap;

use crate::stack::{SOON, Stack};

/// What the allocator may keep more of pages after the rounds that follow: less than one row's body
/// lost in each of them would take.
const RESIDENT_MAX: u64 = 16 * 1024 * 1024;
/// Connections of pools that may be open or not; one lost in a hundred requests would be more.
const FILES_MAX: usize = 10;

/// What is kept, in all tables and in Redis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    rows: BTreeMap<String, i64>,
    keys: i64,
}

impl Kept {
    pub async fn count(stack: &Stack) -> Self {
        let tables = "SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY 1";
        let mut rows = BTreeMap::new();
        for table in stack.database.rows(tables).await.unwrap() {
            let table = table[0].clone().unwrap();
            let count = format!("SELECT count(*) FROM \"{table}\"");
            rows.insert(table, stack.count(&count).await);
        }
        assert!(rows.len() > 5, "{rows:?}");
        let keys = stack.redis.number(&["DBSIZE"]).await.unwrap();
        Self { rows, keys }
    }

    /// Nothing was added, at the latest when what good callers left behind has settled.
    pub async fn stays(&self, stack: &Stack) {
        let now = async || Self::count(stack).await;
        let held =
            harness::wait::for_state("rows and keys as before", SOON, now, |now| now == self);
        if let Err(error) = held.await {
            panic!("{error}: {self:?} became {:?}", Self::count(stack).await);
        }
    }
}

/// What the gateways hold, as the kernel counts it.
#[derive(Clone, Copy, Debug)]
pub struct Held {
    resident: u64,
    files: usize,
}

impl Held {
    pub fn count(stack: &Stack) -> Self {
        let gateways = stack.cluster.gateways.iter();
        let mut held = Self {
            resident: 0,
            files: 0,
        };
        for pid in gateways.filter_map(harness::node::Node::pid) {
            let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
            let line = status.lines().find(|line| line.starts_with("VmRSS:"));
            let kib: u64 = line
                .and_then(|line| line.split_whitespace().nth(1))
                .and_then(|kib| kib.parse().ok())
                .unwrap();
            held.resident += kib * 1024;
            held.files += std::fs::read_dir(format!("/proc/{pid}/fd"))
                .unwrap()
                .count();
        }
        held
    }

    /// Compared with a round before.
    pub async fn stays(&self, stack: &Stack) {
        let now = Self::count(stack);
        assert!(
            now.resident < self.resident + RESIDENT_MAX,
            "{self:?} became {now:?}"
        );
        let files = async || Self::count(stack).files;
        let few = |files: &usize| *files <= self.files + FILES_MAX;
        harness::wait::for_state("files closed", SOON, files, few)
            .await
            .unwrap();
    }
}
