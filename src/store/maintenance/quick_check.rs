//! The check for corruption before a server uses a file.

use std::path::Path;

use rusqlite::Connection;

use crate::store::db::open::error::OpenError;
use crate::store::db::open::open_read_only;

/// Size up to which a file is checked completely (contract §1.5): that takes less than a second on most disks. In a
/// larger file, corruption shows when the affected page is read (see `db::corruption`).
const MAX_FULL_CHECK_BYTES: i64 = 64 << 20;

/// Checks the whole file for corruption if it has at most 64 MiB.
/// Errors: [`OpenError::Corrupt`], among others. The file is unchanged.
pub fn check(path: &Path) -> Result<(), OpenError> {
    match run(&open_read_only(path)?).map_err(|error| OpenError::from_sqlite(path, error))?.as_str() {
        "ok" => Ok(()),
        problem => {
            Err(OpenError::Corrupt { path: path.to_owned(), source: problem.replace('\n', " ").into() })
        }
    }
}

/// The first problem that SQLite finds, or `ok`.
fn run(file: &Connection) -> rusqlite::Result<String> {
    let query = |pragma: &str| file.query_row(pragma, [], |row| row.get::<_, i64>(0));
    if query("PRAGMA page_count")? * query("PRAGMA page_size")? > MAX_FULL_CHECK_BYTES {
        return Ok("ok".to_owned());
    }
    file.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))
}
