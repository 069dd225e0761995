//! Helpers for unit tests: an empty in-memory database, and SQLite's query plans on it.

use rusqlite::Connection;
use rusqlite::types::Null;

use crate::store::db::open::schema::SCHEMA;

/// An empty database with the current schema.
pub fn memory_database() -> Connection {
    let connection = Connection::open_in_memory().unwrap();
    connection.execute_batch(SCHEMA).unwrap();
    connection
}

/// The number of texts and blobs in `sql` of which SQLite reads the length and not the content.
pub fn lengths_read(sql: &str) -> usize {
    // OPFLAG_BYTELENARG of SQLite's source: the column is read for `octet_length` alone.
    const LENGTH_ONLY: i64 = 0xC0;
    let connection = memory_database();
    let mut explain = connection.prepare(&format!("EXPLAIN {sql}")).unwrap();
    let nulls = vec![Null; explain.parameter_count()];
    let steps = explain.query_map(rusqlite::params_from_iter(nulls), |row| {
        Ok(row.get::<_, String>("opcode")? == "Column" && row.get::<_, i64>("p5")? == LENGTH_ONLY)
    });
    steps.unwrap().filter(|step| *step.as_ref().unwrap()).count()
}

/// The steps of SQLite's query plan for `sql` on an empty database, with all parameters null.
pub fn plan(sql: &str) -> Vec<String> {
    let connection = memory_database();
    let mut explain = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
    let nulls = vec![Null; explain.parameter_count()];
    let steps = explain.query_map(rusqlite::params_from_iter(nulls), |row| row.get("detail")).unwrap();
    steps.map(Result::unwrap).collect()
}
