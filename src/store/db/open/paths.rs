//! Paths of the files that belong to a database: the write-ahead log, the lock, copies.

use std::path::{Path, PathBuf};

/// `path` with `suffix` appended to the file name.
pub(in crate::store) fn sibling_path(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// `path` with symbolic links resolved, so that two names of one file lead to the same lock and log.
pub(in crate::store) fn resolved(path: &Path) -> PathBuf {
    std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}
