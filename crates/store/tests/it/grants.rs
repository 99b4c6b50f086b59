//! `migrate --roles`: the rights of the processes' roles, given by the tables' owner.

use harness::postgres::Postgres;
use store::migrate::grant_roles;

use crate::support::{config, migrate, raw, store};

/// A user with some of what it takes, on a schema that is its own.
async fn owner(server: &Postgres, database: &str, rights: &str) -> String {
    let url = server.create_database(database).await.unwrap();
    let admin = raw(&url).await;
    let make = format!(
        "CREATE ROLE {database} LOGIN {rights}; ALTER DATABASE {database} OWNER TO {database};
         ALTER SCHEMA public OWNER TO {database}"
    );
    admin.batch_execute(&make).await.unwrap();
    let url = url.replace("postgres@", &format!("{database}@"));
    migrate(url.clone()).await.unwrap();
    url
}

#[tokio::test]
async fn the_owner_gives_roles_their_rights_from_several_places_at_once() {
    let server = Postgres::temporary().await.unwrap();
    // Who may not make roles is told what to do.
    let url = owner(&server, "narrow", "").await;
    let refused = grant_roles(&config(&url)).await.unwrap_err().to_string();
    assert!(
        refused.contains("CREATEROLE") && refused.contains("mcp_tasks_gateway"),
        "{refused}"
    );

    let able = owner(&server, "able", "CREATEROLE").await;
    let same = config(&able);
    tokio::try_join!(grant_roles(&same), grant_roles(&same), grant_roles(&same)).unwrap();
    let make = "CREATE ROLE worker LOGIN IN ROLE mcp_tasks_worker";
    raw(&able).await.batch_execute(make).await.unwrap();
    let worker = store(config(&able.replace("able@", "worker@")));
    worker.check_schema().await.unwrap();
    assert_eq!(worker.missing_rights().await.unwrap(), Vec::new());

    // Now that the roles are there, whoever owns the tables may grant.
    grant_roles(&config(&url)).await.unwrap();
}
