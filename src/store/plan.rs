//! For tests: how SQLite would go about a statement in a new file.

use rusqlite::{Connection, Result};

/// The steps of its plan.
pub fn steps(sql: &str) -> Result<Vec<String>> {
    let file = Connection::open_in_memory()?;
    file.execute_batch(include_str!("../../schema.sql"))?;
    let mut explain = file.prepare(&format!("EXPLAIN QUERY PLAN {sql}"))?;
    explain.raw_query().mapped(|row| row.get("detail")).collect()
}
