//! For tests: how SQLite goes about a statement in a new file.

use rusqlite::Connection;
use rusqlite::types::Null;

use crate::store::db::open::SCHEMA;

/// Each step of the plan for `sql`.
pub fn plan(sql: &str) -> Vec<String> {
    let connection = Connection::open_in_memory().unwrap();
    connection.execute_batch(SCHEMA).unwrap();
    let mut explain = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
    let blanks = vec![Null; explain.parameter_count()];
    let steps = explain.query_map(rusqlite::params_from_iter(blanks), |row| row.get("detail")).unwrap();
    steps.map(Result::unwrap).collect()
}
