//! The lock against a second server on a file.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use crate::store::db::open::error::OpenError;
use crate::store::db::open::paths::{beside, resolved};

/// The lock that one server holds on a database file: a file beside it that names the process.
#[derive(Debug)]
pub struct ServerLock {
    // The lock lives as long as the open file; the operating system lets it go with the process, however it ends.
    _file: File,
    path: PathBuf,
}

impl ServerLock {
    /// Takes the lock of the database at `path`, or says which process has it.
    ///
    /// # Errors
    /// [`OpenError::InUse`], or [`OpenError::Unusable`] when the lock file cannot be made.
    pub fn take(path: &Path) -> Result<Self, OpenError> {
        let lock_path = beside(&resolved(path), ".lock");
        let failed = |error: std::io::Error| OpenError::unusable(path, error);
        loop {
            let mut file = open_lock(&lock_path).map_err(failed)?;
            match file.try_lock() {
                Ok(()) if is_the_file_at(&file, &lock_path) => {
                    file.set_len(0).map_err(failed)?;
                    writeln!(file, "{}", std::process::id()).map_err(failed)?;
                    return Ok(Self { _file: file, path: lock_path });
                }
                // Its holder removed it between our opening and our locking it: there is a new one to take.
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => {
                    let mut text = String::new();
                    file.read_to_string(&mut text).map_err(failed)?;
                    return Err(OpenError::InUse {
                        path: path.to_owned(),
                        process: text.trim().parse().ok(),
                    });
                }
                Err(TryLockError::Error(error)) => return Err(failed(error)),
            }
        }
    }
}

fn open_lock(path: &Path) -> std::io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)
}

fn is_the_file_at(file: &File, path: &Path) -> bool {
    match (file.metadata(), std::fs::metadata(path)) {
        (Ok(ours), Ok(there)) => (ours.dev(), ours.ino()) == (there.dev(), there.ino()),
        _ => false,
    }
}

impl Drop for ServerLock {
    fn drop(&mut self) {
        // A lock file that stays behind is harmless: what counts is the lock, not the file.
        if let Err(error) = std::fs::remove_file(&self.path) {
            tracing::debug!("{} could not be removed: {error}", self.path.display());
        }
    }
}
