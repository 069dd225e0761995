//! Backup and restore of a whole file, also beside a server. Each copy is on hold. `VACUUM INTO` reads in one
//! transaction; SQLite's backup interface starts again after every write of another process.

use std::fs::{File, OpenOptions};
use std::io;
use std::ops::ControlFlow;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use rusqlite::{Connection, ErrorCode};
use thiserror::Error;

use crate::store::db::meta;
use crate::store::db::open::ServerLock;
use crate::store::db::open::{Cause, OpenError};
use crate::store::db::open::{open_existing, open_for_reading, sibling_path, sqlite_name};

/// Instructions of SQLite between two progress reports, which are also the moments at which a copy can be stopped: less
/// than a millisecond with usual rows, a second with the largest. Each report reads the size of the copy.
const PROGRESS_INTERVAL: i32 = 2_000;

/// The suffixes of SQLite's companion files. SQLite applies them to whatever database has their name.
const COMPANION_SUFFIXES: [&str; 3] = ["-wal", "-shm", "-journal"];

#[derive(Debug, Error)]
pub enum CopyError {
    #[error(transparent)]
    File(#[from] OpenError),
    #[error("{0} exists already")]
    Exists(PathBuf),
    #[error(
        "{0} is left over from a database of this name and would become part of the copy. Move it away"
    )]
    LeftoverFiles(PathBuf),
    #[error("{0} cannot be restored from itself")]
    SourceIsTarget(PathBuf),
    #[error("the disk is full: {path} needs about {} MB; the incomplete copy was deleted", .bytes.div_ceil(1_000_000))]
    Full { path: PathBuf, bytes: u64 },
    #[error("{path} cannot be written: the file to copy is damaged: {source}")]
    SourceCorrupt { path: PathBuf, source: rusqlite::Error },
    #[error("the copy to {0} was stopped")]
    Stopped(PathBuf),
    #[error("{path} cannot be written: {source}")]
    Failed { path: PathBuf, source: Cause },
}

/// Progress callback: bytes written so far, estimated total. The copy stops with an error if it returns `Break`.
pub type Progress = Box<dyn FnMut(u64, u64) -> ControlFlow<()> + Send>;

/// On hold since `now`, or since an earlier instant if `from` is on hold. Returns its size in bytes.
pub fn copy(from: &Path, to: &Path, now: Timestamp, progress: Progress) -> Result<u64, CopyError> {
    refuse_occupied(to)?;
    let source = open_for_reading(from)?;
    let partial = PartialCopy::create(&source, to, now, progress)?;
    // Another process may have created the target in the meantime.
    refuse_occupied(to)?;
    partial.publish()
}

pub type MovedAside = (PathBuf, PathBuf);

/// While no server uses `to`, which is refused if it exists, or renamed with `replace`, as are companion files without
/// a database. Returns the renamed files.
pub fn restore(
    backup: &Path,
    to: &Path,
    now: Timestamp,
    replace: bool,
    progress: Progress,
) -> Result<Vec<MovedAside>, CopyError> {
    let _lock = ServerLock::acquire(to)?;
    if is_same_file(backup, to) {
        return Err(CopyError::SourceIsTarget(to.to_owned()));
    }
    if !replace {
        refuse_existing(to)?;
    }
    let source = open_for_reading(backup)?;
    let partial = PartialCopy::create(&source, to, now, progress)?;
    change(&partial.path, meta::end_sessions).map_err(|error| partial.failed(error, 0))?;
    partial.file.sync_all().map_err(|error| failed(to, error))?;
    let renamed = move_aside(to).map_err(|error| failed(to, error))?;
    partial.publish()?;
    Ok(renamed)
}

/// `to` must not exist. On hold since `now`, or since an earlier instant if the file is.
pub(in crate::store) fn snapshot(
    source: &Connection,
    to: &Path,
    now: Timestamp,
) -> Result<(), CopyError> {
    refuse_occupied(to)?;
    PartialCopy::create(source, to, now, Box::new(|_, _| ControlFlow::Continue(())))?.publish()?;
    Ok(())
}

/// With a number if that name is occupied. The name survives a power failure. Returns the new path.
pub(in crate::store) fn rename_to_sibling(
    from: &Path,
    path: &Path,
    suffix: &str,
) -> io::Result<PathBuf> {
    let to = unused_name(path, suffix);
    std::fs::rename(from, &to)?;
    sync_folder(&to)?;
    Ok(to)
}

/// A copy named `.partial` until it is complete. If dropped before `publish`, it is deleted.
struct PartialCopy<'a> {
    to: &'a Path,
    path: PathBuf,
    file: File,
    is_published: bool,
}

impl<'a> PartialCopy<'a> {
    fn create(
        source: &Connection,
        to: &'a Path,
        held_since: Timestamp,
        progress: Progress,
    ) -> Result<Self, CopyError> {
        let partial = Self::create_file(to)?;
        let bytes = expected_bytes(source).map_err(|error| partial.failed(error, 0))?;
        let copied = vacuum_into(source, &partial.path, bytes, progress)
            .and_then(|()| change(&partial.path, |copy| meta::mark_held(copy, held_since)));
        copied.map_err(|error| partial.failed(error, bytes))?;
        match partial.file.sync_all().and_then(|()| partial.file.metadata()) {
            Ok(copied) if copied.len() > 0 => Ok(partial),
            Ok(_) => Err(failed(to, io::Error::other("the copy is empty"))),
            Err(error) => Err(failed(to, error)),
        }
    }

    fn create_file(to: &'a Path) -> Result<Self, CopyError> {
        loop {
            // An existing file of the name may belong to another program, or to a copy in progress.
            let path = unused_name(to, ".partial");
            match OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path)
            {
                Ok(file) => return Ok(Self { to, path, file, is_published: false }),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(failed(to, error)),
            }
        }
    }

    fn publish(mut self) -> Result<u64, CopyError> {
        let moved = std::fs::rename(&self.path, self.to).and_then(|()| {
            self.is_published = true;
            sync_folder(self.to)?;
            Ok(self.file.metadata()?.len())
        });
        moved.map_err(|error| failed(self.to, error))
    }

    fn failed(&self, error: rusqlite::Error, bytes: u64) -> CopyError {
        let path = self.to.to_owned();
        match error.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => CopyError::Full { path, bytes },
            Some(ErrorCode::OperationInterrupted) => CopyError::Stopped(path),
            Some(ErrorCode::DatabaseCorrupt) => CopyError::SourceCorrupt { path, source: error },
            _ => CopyError::Failed { path, source: error.into() },
        }
    }
}

impl Drop for PartialCopy<'_> {
    fn drop(&mut self) {
        if self.is_published {
            return;
        }
        for path in [&self.path, &sibling_path(&self.path, "-journal")] {
            if let Err(error) = std::fs::remove_file(path)
                && error.kind() != io::ErrorKind::NotFound
            {
                tracing::warn!(path = %path.display(), error = %error, "partial copy not removed");
            }
        }
    }
}

fn expected_bytes(source: &Connection) -> rusqlite::Result<u64> {
    let query = |sql: &str| source.query_row(sql, [], |row| row.get::<_, i64>(0));
    let pages = query("PRAGMA page_count")? - query("PRAGMA freelist_count")?;
    Ok(u64::try_from(pages * query("PRAGMA page_size")?).unwrap_or(0))
}

fn vacuum_into(
    source: &Connection,
    path: &Path,
    bytes: u64,
    mut progress: Progress,
) -> rusqlite::Result<()> {
    let copy = path.to_owned();
    source.progress_handler(
        PROGRESS_INTERVAL,
        Some(move || {
            let length = std::fs::metadata(&copy).map_or(0, |file| file.len());
            progress(length.min(bytes), bytes).is_break()
        }),
    )?;
    let path = sqlite_name(path);
    let name = path.to_str().ok_or_else(|| rusqlite::Error::InvalidPath(path.clone()))?;
    let done = source.execute("VACUUM INTO ?1", [name]);
    source.progress_handler(0, None::<fn() -> bool>)?;
    done.map(|_| ())
}

/// Changes a copy before the final rename. Durability is not needed: if this is interrupted, the partial copy is
/// discarded.
fn change<T>(
    path: &Path,
    change: impl FnOnce(&Connection) -> rusqlite::Result<T>,
) -> rusqlite::Result<()> {
    let copy = open_existing(path)?;
    copy.pragma_update(None, "journal_mode", "OFF")?;
    copy.pragma_update(None, "synchronous", "OFF")?;
    change(&copy)?;
    copy.close().map_err(|(_, error)| error)
}

fn refuse_existing(path: &Path) -> Result<(), CopyError> {
    if exists(path) { Err(CopyError::Exists(path.to_owned())) } else { Ok(()) }
}

/// Refuses a path at which a database or a companion file exists: SQLite would apply an old log to the new database.
fn refuse_occupied(path: &Path) -> Result<(), CopyError> {
    refuse_existing(path)?;
    let mut companions = COMPANION_SUFFIXES.iter().map(|suffix| sibling_path(path, suffix));
    match companions.find(|companion| exists(companion)) {
        Some(companion) => Err(CopyError::LeftoverFiles(companion)),
        None => Ok(()),
    }
}

/// SQLite would apply a log that stays to the new database. A log alone is kept too: its database may have been moved.
fn move_aside(path: &Path) -> io::Result<Vec<MovedAside>> {
    let aside = unused_name(path, ".replaced");
    let mut renamed = Vec::new();
    for suffix in [""].into_iter().chain(COMPANION_SUFFIXES) {
        let (from, to) = (sibling_path(path, suffix), sibling_path(&aside, suffix));
        match std::fs::rename(&from, &to) {
            Ok(()) => renamed.push((from, to)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(renamed)
}

/// Unlike `Path::exists`, true for a broken symbolic link too.
fn exists(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}

fn unused_name(path: &Path, suffix: &str) -> PathBuf {
    let first = sibling_path(path, suffix);
    let others = (2_u32..).map(|number| sibling_path(path, &format!("{suffix}-{number}")));
    std::iter::once(first)
        .chain(others)
        .find(|name| refuse_occupied(name).is_ok())
        .unwrap_or_else(|| sibling_path(path, suffix))
}

fn is_same_file(one: &Path, other: &Path) -> bool {
    matches!((std::fs::canonicalize(one), std::fs::canonicalize(other)), (Ok(one), Ok(other)) if one == other)
}

/// Flushes the folder of `path`, so that a new name in it survives a power failure.
fn sync_folder(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

fn failed(path: &Path, error: io::Error) -> CopyError {
    CopyError::Failed { path: path.to_owned(), source: error.into() }
}
