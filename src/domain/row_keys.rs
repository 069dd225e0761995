//! Keys of rows: the numbers that SQLite gives, with a name for each table.

pub type UserKey = i64;
