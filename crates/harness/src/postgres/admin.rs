//! Statements sent to a server outside any pool: databases made and dropped, and a look at a table.

use tokio_postgres::{NoTls, SimpleQueryMessage};

use super::Postgres;
use crate::error::{Error, Result};
use crate::ports::random;

/// Runs SQL (one or several statements) on a connection of its own and returns the rows as text,
/// as `psql` would show them.
///
/// # Errors
/// [`Error::Postgres`] if the server can't be reached or refuses.
pub async fn rows(url: &str, sql: &str) -> Result<Vec<Vec<Option<String>>>> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    let query = client.simple_query(sql);
    // The connection only moves while it is polled; it ends by itself when the server goes away.
    let messages = tokio::select! {
        messages = query => messages?,
        ended = connection => {
            ended?;
            return Err(Error::Failed { what: "postgres closed the connection".into(), log: None });
        }
    };
    let rows = messages.into_iter().filter_map(|message| match message {
        SimpleQueryMessage::Row(row) => Some(
            (0..row.len())
                .map(|column| row.get(column).map(str::to_owned))
                .collect(),
        ),
        _ => None,
    });
    Ok(rows.collect())
}

impl Postgres {
    /// Makes an empty database if it is not there yet, and returns its URL.
    ///
    /// # Errors
    /// [`Error::Postgres`] if the server refuses.
    pub async fn create_database(&self, name: &str) -> Result<String> {
        let admin = self.url("postgres");
        let there = format!(
            "SELECT 1 FROM pg_database WHERE datname = {}",
            literal(name)
        );
        if rows(&admin, &there).await?.is_empty() {
            rows(&admin, &format!("CREATE DATABASE {}", identifier(name))).await?;
        }
        Ok(self.url(name))
    }

    /// Makes a database with a random name as a copy of `template` (which nobody may be connected
    /// to), and returns its URL. Takes some 50 ms where migrations take seconds.
    ///
    /// # Errors
    /// [`Error::Postgres`] if the server refuses.
    pub async fn create_database_from_template(&self, template: &str) -> Result<String> {
        let name = format!("test_{:016x}", random()?);
        let sql = format!(
            "CREATE DATABASE {} TEMPLATE {}",
            identifier(&name),
            identifier(template)
        );
        rows(&self.url("postgres"), &sql).await?;
        Ok(self.url(&name))
    }

    /// Drops a database, ending its sessions.
    ///
    /// # Errors
    /// [`Error::Postgres`] if the server refuses.
    pub async fn drop_database(&self, name: &str) -> Result<()> {
        let sql = format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", identifier(name));
        rows(&self.url("postgres"), &sql).await.map(drop)
    }
}

fn identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}
