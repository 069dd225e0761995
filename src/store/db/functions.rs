//! Functions of SQL: the search and the order of names in lists of cues.

use rusqlite::Connection;
use rusqlite::functions::{Context, FunctionFlags};

use crate::domain::cue::list::{SearchedTexts, fold};

pub(in crate::store) fn define(connection: &Connection) -> rusqlite::Result<()> {
    let flags = FunctionFlags::SQLITE_UTF8
        | FunctionFlags::SQLITE_DETERMINISTIC
        | FunctionFlags::SQLITE_DIRECTONLY;
    connection
        .create_scalar_function("fold", 1, flags, |values| Ok(fold(values.get_raw(0).as_str()?)))?;
    connection.create_scalar_function("is_found", 7, flags, is_found)
}

fn is_found(values: &Context<'_>) -> rusqlite::Result<bool> {
    let text = |index| values.get_raw(index).as_str_or_null();
    let texts = SearchedTexts {
        id: values.get_raw(1).as_str()?,
        name: values.get_raw(2).as_str()?,
        slug: text(3)?,
        description: text(4)?,
        callback_url: text(5)?,
        tags: text(6)?,
    };
    Ok(texts.have(values.get_raw(0).as_str()?))
}
