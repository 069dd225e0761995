//! Empties the database between two tests (contract §10).

use rusqlite::config::DbConfig;

use crate::error::Result;
use crate::store::WriteTx;

/// All that belongs to accounts. `meta` and `backlog` have rows that a new file has too.
const TABLES: &str = "SELECT name FROM sqlite_schema
    WHERE type = 'table' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' AND name NOT IN ('meta', 'backlog')";

/// What the operator has set over HTTP goes too. The instants of the clock stay, and the hold of a copy.
const RESET: &str = "UPDATE backlog SET count = 0; DELETE FROM meta WHERE name = 'registration'";

/// Triggers and references are off meanwhile: with them SQLite deletes row by row, without them page by page.
pub fn empty(tx: &WriteTx<'_>) -> Result<()> {
    let guards = [DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, DbConfig::SQLITE_DBCONFIG_ENABLE_FKEY];
    let set =
        |is_on| guards.into_iter().try_for_each(|guard| tx.set_db_config(guard, is_on).map(drop));
    let emptied = set(false).map_err(Into::into).and_then(|()| delete_all(tx));
    set(true)?;
    emptied
}

fn delete_all(tx: &WriteTx<'_>) -> Result<()> {
    for table in tx.all::<String>(TABLES, ())? {
        tx.execute(&format!("DELETE FROM {table}"), [])?;
    }
    Ok(tx.execute_batch(RESET)?)
}
