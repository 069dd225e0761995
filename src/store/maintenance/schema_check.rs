//! Whether the tables of a file are those that this program writes, whatever its version says.

use std::collections::BTreeSet;
use std::path::Path;

use rusqlite::Connection;

use crate::error::Result;
use crate::store::db::open::error::OpenError;
use crate::store::db::open::open_to_look;
use crate::store::db::open::schema::SCHEMA;

// By what can be asked of a schema, not by its text: a comment, or a column that a later step added, makes no difference.
const PARTS: &str = "
    SELECT type || ' ' || name FROM sqlite_schema WHERE name NOT LIKE 'sqlite_%'
    UNION ALL
    SELECT concat('column ', t.name, '.', c.name, ' ', c.type, iif(c.\"notnull\", ' NOT NULL', ''),
                  ' DEFAULT ' || c.dflt_value, iif(c.pk, ' PRIMARY KEY ' || c.pk, ''))
      FROM sqlite_schema t, pragma_table_xinfo(t.name) c
     WHERE t.type = 'table' AND t.name NOT LIKE 'sqlite_%' AND t.sql NOT LIKE 'CREATE VIRTUAL%'
    UNION ALL
    SELECT concat('column ', c.seqno + 1, ' of index ', i.name, ': ', coalesce(c.name, 'an expression'),
                  iif(c.\"desc\", ' DESC', ''))
      FROM sqlite_schema i, pragma_index_xinfo(i.name) c
     WHERE i.type = 'index' AND c.key AND i.name NOT LIKE 'sqlite_%'";

/// Makes sure, before a server goes on with a file of the present version, that it has all that the schema has. What
/// there is beside it harms nobody (other programs keep their notes in a table of their own), but for a column that we
/// would not fill. It takes a millisecond or two, for the schema is made in memory and no row is read.
///
/// # Errors
/// [`OpenError::SchemaMismatch`], among others; the file stays untouched.
pub fn check(path: &Path) -> std::result::Result<(), OpenError> {
    match mismatch(&open_to_look(path)?).map_err(|error| OpenError::from_sqlite(path, error))? {
        Some(difference) => Err(OpenError::SchemaMismatch { path: path.to_owned(), difference }),
        None => Ok(()),
    }
}

/// The first difference for which a server refuses the file.
pub(in crate::store) fn mismatch(file: &Connection) -> rusqlite::Result<Option<String>> {
    let (there, wanted) = (parts(file)?, wanted()?);
    let lacking = wanted.difference(&there).next().map(|part| lacks(part));
    let asking = || there.difference(&wanted).find(|part| asks_more(part, &wanted)).map(|part| is_more(part));
    Ok(lacking.or_else(asking))
}

/// Whether a part is a column of one of our tables that every new row would have to fill.
fn asks_more(part: &str, wanted: &BTreeSet<String>) -> bool {
    let table = part.strip_prefix("column ").and_then(|column| column.split_once('.'));
    table.is_some_and(|(table, column)| {
        wanted.contains(&format!("table {table}"))
            && column.contains(" NOT NULL")
            && !column.contains(" DEFAULT ")
    })
}

/// What the schema lacks, and what there is beside it.
///
/// # Errors
/// When the file cannot be read.
pub fn differences(file: &Connection) -> Result<Vec<String>> {
    let (there, wanted) = (parts(file)?, wanted()?);
    let more = there.difference(&wanted).map(|part| is_more(part));
    Ok(wanted.difference(&there).map(|part| lacks(part)).chain(more).collect())
}

fn lacks(part: &str) -> String {
    format!("there is no {part}")
}

fn is_more(part: &str) -> String {
    format!("{part} is none of cued's")
}

fn wanted() -> rusqlite::Result<BTreeSet<String>> {
    let ours = Connection::open_in_memory()?;
    ours.execute_batch(SCHEMA)?;
    parts(&ours)
}

fn parts(file: &Connection) -> rusqlite::Result<BTreeSet<String>> {
    file.prepare(PARTS)?.query_map([], |row| row.get(0))?.collect()
}
