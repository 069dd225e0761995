//! For unit tests: an empty database in memory, and SQLite's plan for a statement on it.

use rusqlite::Connection;
use rusqlite::types::Null;

use crate::store::db::open::schema::SCHEMA;

/// An empty database with the schema of a new file.
pub fn memory_database() -> Connection {
    let connection = Connection::open_in_memory().unwrap();
    connection.execute_batch(SCHEMA).unwrap();
    connection
}

/// The steps of SQLite's plan for `sql` on an empty database, with every parameter null.
pub fn plan(sql: &str) -> Vec<String> {
    let connection = memory_database();
    let mut explain = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
    let nulls = vec![Null; explain.parameter_count()];
    let steps = explain.query_map(rusqlite::params_from_iter(nulls), |row| row.get("detail")).unwrap();
    steps.map(Result::unwrap).collect()
}
