//! What a gateway may write of a journal, and delete: rights on columns say what, triggers in which rows.

use bytes::Bytes;
use store::{
    Begin, Called, Claim, Created, Lookup, NewCallback, Open, Received, ToolPolicy, Write,
};

use crate::roles::{Processes, all_denied, as_role};
use crate::support::{HOUR, NO_WORK, claim_as, create, raw, step, token};

impl Processes {
    /// A job whose caller waits for it, taken by the worker.
    async fn running(&self) -> Claim {
        let policy = ToolPolicy::default();
        let created = create(&self.gateway, &self.alice, &policy, |new| {
            new.handed_out = false;
        });
        let Created::New(task) = created.await else {
            panic!("it is no new one")
        };
        claim_as(&self.worker, task.id, token()).await.unwrap()
    }

    /// A job with a step that is done, and one that runs and told a service where to call.
    async fn journaled(&self) -> (Claim, i64) {
        let worker = &self.worker;
        let claim = self.running().await;
        let new = NewCallback {
            key: "call".to_owned(),
            seq: 0,
            wait: HOUR,
            signed_by: "one".to_owned(),
            proves: Some(("call".to_owned(), Bytes::from_static(b"\"proven\""))),
        };
        let Open::Open(opened) = worker.open_callback(&claim, &new).await.unwrap() else {
            panic!("stopped")
        };
        for key in ["done", "call"] {
            let begun = worker.begin_step(&claim, step(key)).await.unwrap();
            let Begin::Act(permit) = begun else {
                panic!("{begun:?}")
            };
            if key == "done" {
                let done = worker.finish_step(&claim, permit, b"1").await.unwrap();
                assert_eq!(done, Write::Done);
            }
        }
        (claim, opened.expires_ms)
    }

    async fn steps(&self) -> Vec<String> {
        let sql = "SELECT key || ' ' || state || coalesce(' ' || convert_from(output, 'UTF8'), '') FROM steps ORDER BY 1";
        let rows = self.owner.query(sql, &[]).await.unwrap();
        rows.iter().map(|row| row.get(0)).collect()
    }
}

/// Of a journal the end of a step whose service called back, and no other.
#[tokio::test]
async fn a_gateway_writes_no_journal_and_puts_nothing_in_the_place_of_one() {
    let all = Processes::new().await;
    // As databases are where nobody took it away.
    let temporary = "GRANT TEMPORARY ON DATABASE tasks TO PUBLIC";
    all.owner.batch_execute(temporary).await.unwrap();
    let (claim, expires_ms) = all.journaled().await;
    let of_gateway = raw(&as_role(&all.url, "gateway")).await;
    let ends = "UPDATE tasks SET status = 'failed', error = '{}', phase = NULL, lease_until = NULL, \
                open_step = NULL, finished_at = now(), handed_out_at = NULL";
    let others = [
        "UPDATE steps SET output = '2' WHERE key = 'done'",
        "UPDATE steps SET state = 'started', output = NULL, finished_at = NULL WHERE key = 'done'",
        "UPDATE steps SET undo_state = 'finished' WHERE key = 'done'",
        "UPDATE steps SET state = 'finished', output = '2', finished_at = now() WHERE key = 'call'",
        // As the worker wrote it down, but nobody has called.
        "UPDATE steps SET state = 'finished', output = '\"proven\"', finished_at = now() WHERE key = 'call'",
        // Somebody has, and said nothing of this one.
        "BEGIN; UPDATE callbacks SET response = '{}', response_digest = 'd', received_at = now(); \
         UPDATE steps SET state = 'finished', output = '2', finished_at = now() WHERE key = 'call'",
        // Nor where somebody looks who was put in the place of those who were called.
        "BEGIN; CREATE TEMP TABLE callbacks (task_id uuid, step text, step_output bytea, received_at timestamptz); \
         INSERT INTO callbacks SELECT task_id, key, '2', now() FROM public.steps WHERE key = 'call'; \
         UPDATE steps SET state = 'finished', output = '2', finished_at = now() WHERE key = 'call'",
        "DELETE FROM tasks",
        &format!("BEGIN; {ends}; DELETE FROM tasks"),
    ];
    all_denied(&of_gateway, &others).await;
    assert_eq!(all.steps().await, ["call started", "done finished 1"]);

    let called = Called {
        id: claim.id(),
        key: "call",
        expires_ms,
    };
    let body = (&br#"{"text":"done"}"#[..], &[7; 32]);
    let received = all.gateway.receive_callback(called, body, None).await;
    assert!(matches!(received.unwrap(), Received::Kept(_)));
    let finished = ["call finished \"proven\"", "done finished 1"];
    assert_eq!(all.steps().await, finished);
    // Delivered with its call: what has a journal is left to cron.
    let done = all.worker.complete(&claim, b"{}", NO_WORK).await.unwrap();
    assert_eq!(done, Write::Done);
    all.gateway.delivered_inline(&[claim.id()]).await.unwrap();
    assert_eq!(all.steps().await, finished);
    assert_eq!(all.cron.purge(10, HOUR).await.unwrap(), 1);
    assert_eq!(all.steps().await, Vec::<String>::new());

    // What has none is gone at once; with a key it can be named, and stays.
    let plain = all.running().await;
    let done = all.worker.complete(&plain, b"{}", NO_WORK).await.unwrap();
    assert_eq!(done, Write::Done);
    all.gateway.delivered_inline(&[plain.id()]).await.unwrap();
    let gone = all.gateway.get(&all.alice, plain.id()).await.unwrap();
    assert!(matches!(gone, Lookup::Unknown));
    let policy = ToolPolicy::default();
    let keyed = create(&all.gateway, &all.alice, &policy, |new| {
        new.idempotency_key = Some("k");
    });
    assert!(matches!(keyed.await, Created::New(_)));
    let replaced = format!("BEGIN; {ends}; DELETE FROM tasks");
    all_denied(&of_gateway, &[&replaced]).await;
}
