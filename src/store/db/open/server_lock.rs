//! The locks that prevent a second server on a database file.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, fcntl_lock};

use crate::store::db::open::error::OpenError;
use crate::store::db::open::{resolved, sibling_path};

/// A locked file next to the database, named after it, that contains the process id of the server, and a lock on the
/// database itself: somebody may delete the first one.
#[derive(Debug)]
pub struct ServerLock {
    // A lock lasts as long as its open file. The operating system releases it however the process ends.
    database: Option<File>,
    _file: File,
    path: PathBuf,
}

impl ServerLock {
    /// Acquires the locks of the database at `path`. No connection of this process may be open to it.
    /// Errors: [`OpenError::InUse`] with the process that has it, [`OpenError::LinkedLock`] if the lock file is a
    /// link, or [`OpenError::Unusable`] if it cannot be created.
    pub fn acquire(path: &Path) -> Result<Self, OpenError> {
        let lock_path = sibling_path(&resolved(path), ".lock");
        let failed = |error: std::io::Error| OpenError::unusable(path, error);
        loop {
            let mut file = open_lock(&lock_path).map_err(|error| match error.raw_os_error() {
                Some(libc::ELOOP) => OpenError::LinkedLock { lock: lock_path.clone() },
                _ => failed(error),
            })?;
            let metadata = file.metadata().map_err(failed)?;
            if !metadata.is_file() || metadata.nlink() > 1 {
                return Err(OpenError::LinkedLock { lock: lock_path });
            }
            match file.try_lock() {
                Ok(()) if is_same_file(&file, &lock_path) => {
                    file.set_len(0).map_err(failed)?;
                    writeln!(file, "{}", std::process::id()).map_err(failed)?;
                    let mut lock = Self { database: None, _file: file, path: lock_path };
                    lock.database = lock_database(path)?;
                    return Ok(lock);
                }
                // The previous holder removed the file between the open and the lock: try again with a new file.
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

/// Opens or creates the lock file. Does not follow a symbolic link: the process id would be written to any file of the
/// user that runs the server, if another user may create files in the folder.
fn open_lock(path: &Path) -> std::io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(path)
}

/// Locks the database at `path` with flock(2). `None` if there is none yet, or if its file system has no such lock
/// beside those of SQLite. The lock belongs to the file, so it also holds between containers that mount it. The locks
/// of SQLite are those of fcntl(2), which on a disk of Linux do not conflict with it. NFS, SMB, 9p and other systems
/// make one of the other, so that SQLite could lock nothing any more: there the lock file alone protects the database.
/// A process loses all its fcntl locks on a file when it closes any descriptor of it. This one is therefore opened
/// before the first connection and closed after the last.
fn lock_database(path: &Path) -> Result<Option<File>, OpenError> {
    let file = match OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(OpenError::unusable(path, error)),
    };
    let probe = |operation| fcntl_lock(&file, operation).map_err(std::io::Error::from);
    let locked = match file.try_lock() {
        Ok(()) => probe(FlockOperation::NonBlockingLockShared).and_then(|()| probe(FlockOperation::Unlock)),
        Err(TryLockError::WouldBlock) => {
            return Err(OpenError::InUse { path: path.to_owned(), process: None });
        }
        Err(TryLockError::Error(error)) => Err(error),
    };
    if let Err(error) = locked {
        let path = path.display();
        tracing::warn!(%path, %error, "database file not locked: do not delete its .lock file while a server runs");
        return Ok(None);
    }
    Ok(Some(file))
}

fn is_same_file(file: &File, path: &Path) -> bool {
    match (file.metadata(), std::fs::symlink_metadata(path)) {
        (Ok(file), Ok(at_path)) => (file.dev(), file.ino()) == (at_path.dev(), at_path.ino()),
        _ => false,
    }
}

impl Drop for ServerLock {
    fn drop(&mut self) {
        // Before the lock file goes: a server that starts then finds both free.
        self.database = None;
        // A lock file that remains is harmless: without the lock on it, the next server can acquire it.
        if let Err(error) = std::fs::remove_file(&self.path) {
            tracing::debug!(path = %self.path.display(), error = %error, "lock file not removed");
        }
    }
}
