//! Paths of the files that belong to a database: its log, its lock, its copies.

use std::path::{Path, PathBuf};

/// The path of a file beside `path` that is named after it.
pub(in crate::store) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// The path with links followed, so that two names of one file meet at one lock.
pub(in crate::store) fn resolved(path: &Path) -> PathBuf {
    std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}
