//! What is asked alone has statements of its own, without lists. They write and answer what those for many do, and
//! refuse what those refuse: both are run here, in one transaction, so that both see the same time.

use tokio_postgres::{Client, SimpleQueryMessage};

use crate::statements::files;
use crate::support::World;

/// Alone, and with others.
const PAIRS: [(&str, &str); 4] = [
    ("create_one", "create"),
    ("claim_one", "claim_queued"),
    ("complete_one", "complete"),
    ("get_one", "get"),
];

const ALONE: &str = "00000000-0000-7000-8000-000000000001";
const MANY: &str = "00000000-0000-7000-8000-000000000002";
const TOKEN: &str = "00000000-0000-4000-8000-000000000003";

fn create(id: &str, optional: bool) -> String {
    let one = |some: &str| if optional { some } else { "NULL" }.to_owned();
    let (tenant, offered, context) = (one("'acme'"), one("'{\"q\":1}'"), one("'{\"t\":2}'"));
    let (ttl, ttl_max, epoch) = (one("60000"), one("90000"), one("'e1'"));
    let (alert, key, by) = (one("5000"), one("'\\x0102'"), one("'k1'"));
    format!(
        "ARRAY['{id}']::uuid[], ARRAY['iss'], ARRAY['sub'], ARRAY[{tenant}]::text[], ARRAY['report'], ARRAY[3], ARRAY['slow'], \
         ARRAY[7]::smallint[], ARRAY['{{\"a\":1}}']::bytea[], ARRAY['\\x00ff']::bytea[], ARRAY['{{}}']::bytea[], ARRAY[{offered}]::bytea[], \
         ARRAY[{context}]::bytea[], ARRAY[NULL]::text[], ARRAY['queued'], ARRAY[{ttl}]::bigint[], \
         ARRAY[{ttl_max}]::bigint[], ARRAY[4], ARRAY[30000]::bigint[], ARRAY[2000]::bigint[], ARRAY[{optional}], ARRAY[{epoch}]::text[], \
         ARRAY[{optional}], ARRAY[{alert}]::bigint[], ARRAY[{key}]::bytea[], ARRAY[{by}]::text[]"
    )
}

fn claim(id: &str) -> String {
    format!(
        "ARRAY['{id}']::uuid[], ARRAY['report'], ARRAY[4], ARRAY['{TOKEN}']::uuid[], ARRAY['w1'], 15000"
    )
}

fn complete(id: &str) -> String {
    format!(
        "ARRAY['{id}']::uuid[], ARRAY[1], ARRAY['{TOKEN}']::uuid[], ARRAY['{{\"r\":1}}']::bytea[], ARRAY[12]::bigint[], \
         ARRAY[true]"
    )
}

fn get(id: &str) -> String {
    format!("ARRAY['{id}']::uuid[], ARRAY['iss'], ARRAY['sub'], 7")
}

async fn prepared(world: &World) -> Client {
    let client = world.raw().await;
    for (name, sql) in files() {
        if PAIRS
            .iter()
            .any(|(one, many)| [*one, *many].contains(&&*name))
        {
            let prepare = format!("PREPARE q_{name} AS {sql}");
            client.batch_execute(&prepare).await.unwrap();
        }
    }
    client
}

/// The rows of a statement, as text, with the id taken out.
async fn rows(client: &Client, sql: &str) -> Vec<Vec<(String, Option<String>)>> {
    let messages = client.simple_query(sql).await.unwrap();
    let rows = messages.iter().filter_map(|message| match message {
        SimpleQueryMessage::Row(row) => Some(row),
        _ => None,
    });
    rows.map(|row| {
        let cells = row.columns().iter().enumerate().map(|(n, column)| {
            let text = row
                .get(n)
                .map(|text| text.replace(ALONE, "ID").replace(MANY, "ID"));
            (column.name().to_owned(), text)
        });
        cells.collect()
    })
    .collect()
}

/// Runs both, and again; how many rows they answered at first.
async fn both(client: &Client, pair: (&str, &str), arguments: impl Fn(&str) -> String) -> usize {
    let mut answered = Vec::new();
    for _ in 0..2 {
        let one = format!("EXECUTE q_{} ({})", pair.0, arguments(ALONE));
        let many = format!("EXECUTE q_{} ({})", pair.1, arguments(MANY));
        let (one, many) = (rows(client, &one).await, rows(client, &many).await);
        assert_eq!(one, many, "{pair:?}");
        answered.push(one.len());
        let row = |id: &str| format!("SELECT * FROM tasks WHERE id = '{id}'");
        let one = rows(client, &row(ALONE)).await;
        assert_eq!(one, rows(client, &row(MANY)).await, "what {pair:?} wrote");
    }
    answered[0]
}

const CREATE: (&str, &str) = PAIRS[0];
const CLAIM: (&str, &str) = PAIRS[1];
const COMPLETE: (&str, &str) = PAIRS[2];
const GET: (&str, &str) = PAIRS[3];

#[tokio::test(flavor = "multi_thread")]
async fn a_life_alone_is_a_life_among_others() {
    let world = World::new().await;
    let client = prepared(&world).await;
    for optional in [false, true] {
        client.batch_execute("BEGIN").await.unwrap();
        assert_eq!(both(&client, CREATE, |id| create(id, optional)).await, 1);
        assert_eq!(both(&client, GET, get).await, 1);
        assert_eq!(both(&client, CLAIM, claim).await, 1);
        assert_eq!(both(&client, COMPLETE, complete).await, 1);
        assert_eq!(both(&client, GET, get).await, 1);
        // One byte longer than is asked for.
        let longer = "UPDATE tasks SET result = '{\"r\":12}'";
        client.batch_execute(longer).await.unwrap();
        assert_eq!(both(&client, GET, get).await, 1);
        client.batch_execute("ROLLBACK").await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_refused_among_others_is_refused_alone() {
    const OF_CLAIMS: [&str; 9] = [
        "UPDATE tasks SET phase = 'running', lease_until = now(), claim_token = id",
        "UPDATE tasks SET run_at = now() + interval '1 ms'",
        "UPDATE tasks SET stop_requested_at = now(), stop_reason = 'cancelled'",
        "UPDATE tasks SET journaled = true",
        "UPDATE tasks SET lease_until = now()",
        "UPDATE tasks SET attempt = 200",
        "UPDATE tasks SET expires_at = now()",
        "UPDATE tasks SET tool = 'other'",
        "INSERT INTO tool_pauses (tool, jobs, changed_by) VALUES ('report', true, 'x')",
    ];
    const OF_RESULTS: [&str; 4] = [
        "UPDATE tasks SET phase = 'queued'",
        "UPDATE tasks SET attempt = 2",
        "UPDATE tasks SET claim_token = id",
        "UPDATE tasks SET open_step = 's'",
    ];
    const OF_READS: [&str; 2] = [
        "UPDATE tasks SET issuer = 'other'",
        "UPDATE tasks SET subject = 'other'",
    ];
    let world = World::new().await;
    let client = prepared(&world).await;
    for spoilt in OF_CLAIMS.into_iter().chain(OF_RESULTS).chain(OF_READS) {
        client.batch_execute("BEGIN").await.unwrap();
        both(&client, CREATE, |id| create(id, false)).await;
        let refused = if OF_CLAIMS.contains(&spoilt) {
            client.batch_execute(spoilt).await.unwrap();
            both(&client, CLAIM, claim).await
        } else {
            assert_eq!(both(&client, CLAIM, claim).await, 1);
            client.batch_execute(spoilt).await.unwrap();
            if OF_RESULTS.contains(&spoilt) {
                both(&client, COMPLETE, complete).await
            } else {
                // A row of `get` without a task is none of `get_one`, and is asked again.
                let row = format!("EXECUTE q_get_one ({})", get(ALONE));
                rows(&client, &row).await.len()
            }
        };
        assert_eq!(refused, 0, "{spoilt}");
        client.batch_execute("ROLLBACK").await.unwrap();
    }
}

/// Nobody waits for a row that somebody has locked.
#[tokio::test(flavor = "multi_thread")]
async fn a_lone_claim_of_a_locked_row_is_judged_elsewhere() {
    let world = World::new().await;
    let (client, other) = (prepared(&world).await, world.raw().await);
    let create = format!("EXECUTE q_create_one ({})", create(ALONE, false));
    assert_eq!(rows(&client, &create).await.len(), 1);
    let lock = "BEGIN; SELECT FROM tasks FOR NO KEY UPDATE";
    other.batch_execute(lock).await.unwrap();
    let patience = "SET statement_timeout = '2 s'";
    client.batch_execute(patience).await.unwrap();
    let claim = format!("EXECUTE q_claim_one ({})", claim(ALONE));
    assert_eq!(rows(&client, &claim).await.len(), 0);
    other.batch_execute("COMMIT").await.unwrap();
    assert_eq!(rows(&client, &claim).await.len(), 1);
}
