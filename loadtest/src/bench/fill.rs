//! Tables of any size, and `pgbench` scripts that do to them what our statements do. Both are made from
//! rows that the system itself wrote, so they stay right when the schema moves on.

use std::path::PathBuf;

use harness::{Error, Result};

use super::system::System;

/// Rows inserted by one statement.
const BATCH: u64 = 50_000;
/// A tool that nobody serves, of the same length as the one whose rows are copied: workers leave its
/// tasks alone.
pub const NOBODYS: &str = "chaos_other";

/// A row as columns and literals.
#[derive(Debug, Clone)]
pub struct Template {
    columns: Vec<Column>,
    created_at: String,
}

#[derive(Debug, Clone)]
struct Column {
    name: String,
    kind: String,
    literal: String,
}

/// The id of the filled row whose number this SQL says.
#[must_use]
pub fn id_of(n: &str) -> String {
    format!(
        "(lpad(to_hex(1700000000000 + {n}), 12, '0') || '70008' || \
         lpad(to_hex({n} * 2654435761 % 4294967296), 15, '0'))::uuid"
    )
}

/// A new id as ours are: time first, then chance.
const NEW_ID: &str = "(lpad(to_hex((extract(epoch FROM clock_timestamp()) * 1000)::bigint), 12, '0') || '7' || \
                      substr(md5(random()::text), 1, 3) || '8' || substr(md5(random()::text), 1, 15))::uuid";

/// The id of the filled row of this number.
#[must_use]
pub fn id(n: u64) -> String {
    let (time, chance) = (1_700_000_000_000 + n, n * 2_654_435_761 % 4_294_967_296);
    let digits = format!("{time:012x}70008{chance:015x}");
    format!(
        "{}-{}-{}-{}-{}",
        &digits[..8],
        &digits[8..12],
        &digits[12..16],
        &digits[16..20],
        &digits[20..]
    )
}

impl Template {
    /// Of this task.
    ///
    /// # Errors
    /// If there is no such task.
    pub async fn of(system: &System, task: &str) -> Result<Template> {
        let columns = system
            .sql(
                "SELECT column_name, udt_name FROM information_schema.columns \
                 WHERE table_schema = current_schema() AND table_name = 'tasks' AND is_generated = 'NEVER' \
                 ORDER BY ordinal_position",
            )
            .await?;
        let names: Vec<(String, String)> = columns
            .into_iter()
            .filter_map(|row| {
                let mut row = row.into_iter().flatten();
                Some((row.next()?, row.next()?))
            })
            .collect();
        // In a script a colon begins a variable, so times are written without any.
        let quoted = names.iter().map(|(name, kind)| match kind.as_str() {
            "timestamptz" => format!(
                "quote_nullable(to_char({name} AT TIME ZONE 'UTC', 'YYYYMMDD\"T\"HH24MISS.US') || 'Z')"
            ),
            _ => format!("quote_nullable({name}::text)"),
        });
        let list = quoted.collect::<Vec<_>>().join(", ");
        let found = system
            .sql(&format!("SELECT {list} FROM tasks WHERE id = '{task}'"))
            .await?;
        let values = found.into_iter().next();
        let values = values.ok_or_else(|| Error::Other(format!("there is no task {task}")))?;
        let columns: Vec<Column> = names
            .into_iter()
            .zip(values)
            .map(|((name, kind), literal)| Column {
                name,
                kind,
                literal: literal.unwrap_or_else(|| "NULL".to_owned()),
            })
            .collect();
        let created = columns.iter().find(|column| column.name == "created_at");
        let created_at = created
            .map(|column| column.literal.clone())
            .unwrap_or_default();
        Ok(Template {
            columns,
            created_at,
        })
    }

    /// The same row with another text in a column.
    #[must_use]
    pub fn with(mut self, column: &str, text: &str) -> Template {
        for found in self.columns.iter_mut().filter(|found| found.name == column) {
            found.literal = format!("'{}'", text.replace('\'', "''"));
        }
        self
    }

    /// The same row after its outcome reached somebody, which is noted some milliseconds later: a read
    /// of a row that says nothing of that writes.
    #[must_use]
    pub fn read(mut self) -> Template {
        for found in &mut self.columns {
            if found.name == "first_fetched_at" {
                found.literal.clone_from(&self.created_at);
            }
        }
        self
    }

    /// Inserts the filled rows `from` to `to`, both included.
    ///
    /// # Errors
    /// If Postgres refuses, e.g. because its disk is full.
    pub async fn fill(
        &self,
        system: &System,
        from: u64,
        to: u64,
        told: impl Fn(u64),
    ) -> Result<()> {
        let (names, values) = (self.names(), self.values(&id_of("n"), false));
        let mut next = from;
        while next <= to {
            let last = to.min(next + BATCH - 1);
            let sql = format!(
                "INSERT INTO tasks ({names}) SELECT {values} FROM generate_series({next}::bigint, {last}) n"
            );
            system.sql(&sql).await?;
            next = last + 1;
            told(last);
        }
        system.sql("VACUUM (ANALYZE) tasks").await?;
        system.settle().await
    }

    /// A script that inserts this row, each time with a new id and the times of now.
    ///
    /// # Errors
    /// If it can't be written.
    pub fn insert_script(&self, system: &System) -> Result<PathBuf> {
        let (names, values) = (self.names(), self.values(NEW_ID, true));
        let sql = format!("INSERT INTO tasks ({names}) VALUES ({values});\n");
        write(system, "insert.sql", &sql)
    }

    fn names(&self) -> String {
        let names = self.columns.iter().map(|column| column.name.as_str());
        names.collect::<Vec<_>>().join(", ")
    }

    fn values(&self, id: &str, moved: bool) -> String {
        let value = |column: &Column| match column.name.as_str() {
            "id" => id.to_owned(),
            _ if moved && column.kind == "timestamptz" && column.literal != "NULL" => format!(
                "now() + ({}::timestamptz - {}::timestamptz)",
                column.literal, self.created_at
            ),
            _ => format!("{}::{}", column.literal, column.kind),
        };
        self.columns
            .iter()
            .map(value)
            .collect::<Vec<_>>()
            .join(", ")
    }
}

/// A script that reads one of the filled rows `:first` to `:rows` by its id: what a read shows, and
/// nothing that a read has to check.
///
/// # Errors
/// If it can't be written.
pub fn select_script(system: &System, first: u64) -> Result<PathBuf> {
    let id = id_of(":n::bigint");
    let sql = format!(
        "\\set n random({first}, :rows)\n\
         SELECT id, status, status_message, created_at, last_updated_at, expires_at, input_requests, \
         result, error FROM tasks WHERE id = {id};\n"
    );
    write(system, "select.sql", &sql)
}

fn write(system: &System, name: &str, sql: &str) -> Result<PathBuf> {
    let path = system.dir().join(name);
    std::fs::write(&path, sql).map_err(Error::io(format!("write {}", path.display())))?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_ids() {
        assert_eq!(id(1), "018bcfe5-6801-7000-8000-00009e3779b1");
        assert_eq!(id(10_000_000).len(), 36);
        assert_eq!(NOBODYS.len(), "chaos_steps".len());
    }
}
