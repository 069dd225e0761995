//! The comparison of a file's schema with the one that this program writes. The version alone does not prove that they
//! are equal: another build may have used the same number.

use std::collections::BTreeSet;
use std::path::Path;

use rusqlite::Connection;

use crate::error::Result;
use crate::store::db::open::SCHEMA;
use crate::store::db::open::error::OpenError;
use crate::store::db::open::open_read_only;

// The tables `_litestream_lock` and `_litestream_seq` are those that Litestream creates in each database that it
// replicates: they are passed over, by their exact names, wherever they came to be: in the original, in a backup, in a
// restored replica.
//
// One line for each part of the schema. The SQL text itself is not compared: it contains comments, and differs when a
// migration added a column.
const PARTS: &str = "
    SELECT type || ' ' || name FROM sqlite_schema
     WHERE name NOT LIKE 'sqlite_%' AND NOT (type = 'table' AND name IN ('_litestream_lock', '_litestream_seq'))
    UNION ALL
    SELECT concat('column ', t.name, '.', c.name, ' ', c.type, iif(c.\"notnull\", ' NOT NULL', ''),
                  ' DEFAULT ' || c.dflt_value, iif(c.pk, ' PRIMARY KEY ' || c.pk, ''))
      FROM sqlite_schema t, pragma_table_xinfo(t.name) c
     WHERE t.type = 'table' AND t.name NOT LIKE 'sqlite_%' AND t.sql NOT LIKE 'CREATE VIRTUAL%'
       AND t.name NOT IN ('_litestream_lock', '_litestream_seq')
    UNION ALL
    SELECT concat('column ', c.seqno + 1, ' of index ', i.name, ': ', coalesce(c.name, 'an expression'),
                  iif(c.\"desc\", ' DESC', ''))
      FROM sqlite_schema i, pragma_index_xinfo(i.name) c
     WHERE i.type = 'index' AND c.key AND i.name NOT LIKE 'sqlite_%'";

/// Checks, before a server uses a file of the present version, that no part of the schema is missing. Additional parts
/// are harmless (other programs may store notes in a table of their own), except a column that rejects the rows of this
/// program. Takes one or two milliseconds: the expected schema is created in memory, and no row is read.
/// Errors: [`OpenError::SchemaMismatch`], among others. The file is unchanged.
pub fn check(path: &Path) -> std::result::Result<(), OpenError> {
    match mismatch(&open_read_only(path)?).map_err(|error| OpenError::from_sqlite(path, error))? {
        Some(difference) => Err(OpenError::SchemaMismatch { path: path.to_owned(), difference }),
        None => Ok(()),
    }
}

/// The first difference for which a server refuses the file.
pub(in crate::store) fn mismatch(file: &Connection) -> rusqlite::Result<Option<String>> {
    let (actual, expected) = (parts(file)?, expected_parts()?);
    let missing = expected.difference(&actual).next().map(|part| missing_message(part));
    let unexpected = || {
        let mut unexpected = actual.difference(&expected);
        unexpected.find(|part| is_required_column(part, &expected)).map(|part| unexpected_message(part))
    };
    Ok(missing.or_else(unexpected))
}

/// True if `part` is a column of an expected table, and is NOT NULL without a default: an INSERT that omits it fails.
fn is_required_column(part: &str, expected: &BTreeSet<String>) -> bool {
    let table = part.strip_prefix("column ").and_then(|column| column.split_once('.'));
    table.is_some_and(|(table, column)| {
        expected.contains(&format!("table {table}"))
            && column.contains(" NOT NULL")
            && !column.contains(" DEFAULT ")
    })
}

/// Messages for all missing parts, then for all unexpected ones.
pub fn differences(file: &Connection) -> Result<Vec<String>> {
    let (actual, expected) = (parts(file)?, expected_parts()?);
    let unexpected = actual.difference(&expected).map(|part| unexpected_message(part));
    Ok(expected.difference(&actual).map(|part| missing_message(part)).chain(unexpected).collect())
}

fn missing_message(part: &str) -> String {
    format!("missing {part}")
}

fn unexpected_message(part: &str) -> String {
    format!("unexpected {part}")
}

fn expected_parts() -> rusqlite::Result<BTreeSet<String>> {
    let connection = Connection::open_in_memory()?;
    connection.execute_batch(SCHEMA)?;
    parts(&connection)
}

fn parts(file: &Connection) -> rusqlite::Result<BTreeSet<String>> {
    file.prepare(PARTS)?.query_map([], |row| row.get(0))?.collect()
}
