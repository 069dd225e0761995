//! Whether a file is sound, asked before a server goes on with what a disk may have spoilt.

use std::path::Path;

use rusqlite::Connection;

use crate::store::db::open::error::OpenError;
use crate::store::db::open::open_to_look;

/// Bytes of a file that is read whole at a start: under a second on most disks.
const READ_WHOLE: i64 = 64 << 20;

/// Reads a file of up to 64 MB whole and makes sure that it is undamaged. Larger ones take too long: in them damage
/// shows where it is met.
///
/// # Errors
/// [`OpenError::Damaged`], among others; the file stays untouched.
pub fn check(path: &Path) -> Result<(), OpenError> {
    match look(&open_to_look(path)?).map_err(|error| OpenError::from_sqlite(path, error))?.as_str() {
        "ok" => Ok(()),
        damage => Err(OpenError::Damaged { path: path.to_owned(), source: damage.replace('\n', " ").into() }),
    }
}

/// SQLite's verdict.
fn look(file: &Connection) -> rusqlite::Result<String> {
    let figure = |pragma: &str| file.query_row(pragma, [], |row| row.get::<_, i64>(0));
    if figure("PRAGMA page_count")? * figure("PRAGMA page_size")? > READ_WHOLE {
        return Ok("ok".to_owned());
    }
    file.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))
}
