//! The folder of the outcome files of one worker process.
//!
//! The process holds a lock on the folder itself: cleaners of temporary files honour it, and without it the folder is
//! one that a killed worker has left behind, which the next worker removes.

use std::fs::{self, DirEntry, File, Metadata, OpenOptions, Permissions};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;
use std::time::Duration;

use tempfile::{Builder, TempDir, TempPath};

use crate::locks::Mutex;

/// The beginning of the names of the folders.
const PREFIX: &str = "cued-outcomes-";

/// A folder without a lock may belong to a worker that starts: it locks the folder after it has made it.
const MIN_AGE: Duration = Duration::from_secs(3600);

/// The folder of this process. It is removed by [`OutcomeFolder::remove`].
#[derive(Debug)]
pub struct OutcomeFolder(Mutex<LockedFolder>);

#[derive(Debug)]
struct LockedFolder {
    folder: TempDir,
    _lock: File,
}

impl OutcomeFolder {
    /// Creates the folder in the temporary folder of the system, and removes those that killed workers of the same user
    /// have left there.
    ///
    /// # Errors
    /// If the temporary folder is missing, full, or not writable.
    pub fn create() -> io::Result<Self> {
        Self::create_in(&std::env::temp_dir())
    }

    fn create_in(parent: &Path) -> io::Result<Self> {
        let own = LockedFolder::create(parent)?;
        if let Err(error) = remove_stale(parent, &own.folder.path().metadata()?) {
            tracing::debug!(%error, "cannot look for folders of earlier workers");
        }
        Ok(Self(Mutex::new(own)))
    }

    /// Creates an empty file that only this user can read. It is removed with the returned value.
    ///
    /// # Errors
    /// As [`OutcomeFolder::create`].
    pub fn new_file(&self) -> io::Result<TempPath> {
        let mut own = self.0.lock();
        match own.new_file() {
            // A cleaner of temporary files has removed the folder.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let parent = own.folder.path().parent().map(Path::to_owned).unwrap_or_default();
                *own = LockedFolder::create(&parent)?;
                own.new_file()
            }
            file => file,
        }
    }

    /// Removes the folder at the end of the worker. Threads that hold it may be left behind.
    pub fn remove(&self) {
        let own = self.0.lock();
        if let Err(error) = fs::remove_dir_all(own.folder.path())
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(%error, folder = %own.folder.path().display(), "the folder of the outcome files is left behind");
        }
    }
}

impl LockedFolder {
    fn create(parent: &Path) -> io::Result<Self> {
        let owner_only = Permissions::from_mode(0o700);
        let folder = Builder::new().prefix(PREFIX).permissions(owner_only).tempdir_in(parent)?;
        let lock = File::open(folder.path())?;
        // A file system without locks: then nothing removes the folder of a killed worker.
        if let Err(error) = lock.try_lock() {
            tracing::debug!(%error, "the folder of the outcome files cannot be locked");
        }
        Ok(Self { folder, _lock: lock })
    }

    fn new_file(&self) -> io::Result<TempPath> {
        let builder = Builder::new().prefix("cued-outcome-").suffix(".json").tempfile_in(self.folder.path());
        Ok(builder?.into_temp_path())
    }
}

/// Removes the folders of workers that were killed.
fn remove_stale(parent: &Path, own: &Metadata) -> io::Result<()> {
    for entry in fs::read_dir(parent)? {
        let entry = entry?;
        let is_candidate = entry.file_name().as_bytes().starts_with(PREFIX.as_bytes());
        if is_candidate && let Err(error) = remove_if_stale(&entry, own) {
            tracing::debug!(%error, folder = %entry.path().display(), "the folder of an earlier worker stays");
        }
    }
    Ok(())
}

fn remove_if_stale(entry: &DirEntry, own: &Metadata) -> io::Result<()> {
    let path = entry.path();
    // A symbolic link is not followed: another user may have made it.
    let flags = libc::O_DIRECTORY | libc::O_NOFOLLOW;
    let folder = OpenOptions::new().read(true).custom_flags(flags).open(&path)?;
    let metadata = folder.metadata()?;
    // The times of both folders are those of the file system.
    let age = own.modified()?.duration_since(metadata.modified()?).unwrap_or_default();
    if metadata.uid() == own.uid() && age >= MIN_AGE && folder.try_lock().is_ok() {
        fs::remove_dir_all(&path)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    fn age(path: &Path) {
        let old = SystemTime::now() - MIN_AGE - Duration::from_secs(60);
        File::open(path).unwrap().set_modified(old).unwrap();
    }

    fn names(parent: &Path) -> usize {
        fs::read_dir(parent).unwrap().count()
    }

    #[test]
    fn an_old_folder_without_its_worker_is_removed_and_others_stay() {
        let parent = tempfile::tempdir().unwrap();
        let living = OutcomeFolder::create_in(parent.path()).unwrap();
        age(living.0.lock().folder.path());
        let [killed, young, foreign] = ["cued-outcomes-killed", "cued-outcomes-young", "other"].map(|name| {
            fs::create_dir(parent.path().join(name)).unwrap();
            parent.path().join(name)
        });
        fs::write(killed.join("cued-outcome-1.json"), "").unwrap();
        age(&killed);
        age(&foreign);
        std::os::unix::fs::symlink(&foreign, parent.path().join("cued-outcomes-link")).unwrap();
        let next = OutcomeFolder::create_in(parent.path()).unwrap();
        assert!(!killed.exists() && young.exists() && foreign.exists());
        assert!(living.new_file().unwrap().exists());
        next.remove();
        assert_eq!(names(parent.path()), 4);
    }

    #[test]
    fn only_its_user_can_read_the_folder_and_its_files_end_with_it() {
        let parent = tempfile::tempdir().unwrap();
        let folder = OutcomeFolder::create_in(parent.path()).unwrap();
        let file = folder.new_file().unwrap();
        let mode = |path: &Path| path.metadata().unwrap().mode() & 0o777;
        assert_eq!((mode(file.parent().unwrap()), mode(&file)), (0o700, 0o600));
        folder.remove();
        assert_eq!(names(parent.path()), 0);
        // Another program may remove it too.
        assert!(folder.new_file().unwrap().exists());
        assert_eq!(names(parent.path()), 1);
    }
}
