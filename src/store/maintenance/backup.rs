//! Copies of a whole file, made beside a server that writes all the time, and put in the place of another one. Each is
//! held (see `hold`) and of one instant: SQLite reads it in one transaction, while its backup interface would begin
//! again with every write of another process.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use rusqlite::{Connection, ErrorCode, OpenFlags};
use thiserror::Error;

use crate::store::db::columns::millis;
use crate::store::db::open::error::{Cause, OpenError};
use crate::store::db::open::open_to_read;
use crate::store::db::open::paths::beside;
use crate::store::db::open::server_lock::ServerLock;

/// Steps of SQLite's machine between two looks at how far the copy is: some milliseconds.
const STEPS: i32 = 20_000;

/// What SQLite keeps beside a file, and plays into whatever file it finds under that name.
const LOGS: [&str; 3] = ["-wal", "-shm", "-journal"];

/// A file was not copied. The target is unchanged, and no partial copy is left.
#[derive(Debug, Error)]
pub enum CopyError {
    /// The source, or the file to be replaced, cannot be opened.
    #[error(transparent)]
    File(#[from] OpenError),
    #[error("{0} exists already")]
    Exists(PathBuf),
    /// The target does not exist, but files of a database that was there do.
    #[error("{0} is left over from a database of this name and would become part of the copy. Move it away")]
    LeftoverFiles(PathBuf),
    #[error("{0} cannot be restored from itself")]
    SourceIsTarget(PathBuf),
    /// `bytes` is the estimated size of the copy.
    #[error("the disk is full: {path} needs about {} MB; nothing of it is left behind", .bytes.div_ceil(1_000_000))]
    Full { path: PathBuf, bytes: u64 },
    #[error("{path} cannot be written: the file to copy is damaged: {source}")]
    SourceDamaged { path: PathBuf, source: rusqlite::Error },
    #[error("{path} cannot be written: {source}")]
    Failed { path: PathBuf, source: Cause },
}

/// Told how many of how many bytes are written, about.
pub type Progress = Box<dyn FnMut(u64, u64) + Send>;

/// Copies the database at `from`, which a server may be writing, to `to`, which must not exist. The copy is held since
/// `now`, or for longer where `from` is. Answers its bytes.
///
/// # Errors
/// See [`CopyError`].
pub fn copy(from: &Path, to: &Path, now: Timestamp, progress: Progress) -> Result<u64, CopyError> {
    refuse_taken(to)?;
    let source = open_to_read(from)?;
    let partial = PartialCopy::fill(&source, to, now, progress)?;
    refuse_taken(to)?;
    partial.publish()
}

/// What was under a name, and the name under which it is kept.
pub type MovedAside = (PathBuf, PathBuf);

/// Puts a copy of `backup` in the place of `to`, which no server may have, held since `now` or for longer. A file that
/// is there is refused, or with `replaces` kept aside, as is what a file that is not there any more has left behind.
/// Answers what is kept, and as what.
///
/// # Errors
/// See [`CopyError`].
pub fn restore(
    backup: &Path,
    to: &Path,
    now: Timestamp,
    replaces: bool,
    progress: Progress,
) -> Result<Vec<MovedAside>, CopyError> {
    let _lock = ServerLock::take(to)?;
    if is_same(backup, to) {
        return Err(CopyError::SourceIsTarget(to.to_owned()));
    }
    if !replaces {
        refuse_existing(to)?;
    }
    let source = open_to_read(backup)?;
    let partial = PartialCopy::fill(&source, to, now, progress)?;
    let kept = move_aside(to).map_err(|error| failed(to, error))?;
    partial.publish()?;
    Ok(kept)
}

/// Copies the connection's file, as it is now, to `to`, which nobody else uses. The copy is held since `now`, or for
/// longer where the file is.
///
/// # Errors
/// See [`CopyError`].
pub(in crate::store) fn snapshot(source: &Connection, to: &Path, now: Timestamp) -> Result<(), CopyError> {
    refuse_taken(to)?;
    PartialCopy::fill(source, to, now, Box::new(|_, _| ()))?.publish()?;
    Ok(())
}

/// Renames `from` to `path` with `suffix`, and a number where that name is taken, in a way that outlives a power cut.
/// Returns the new name.
pub(in crate::store) fn rename_beside(from: &Path, path: &Path, suffix: &str) -> io::Result<PathBuf> {
    let to = free_name(path, suffix);
    std::fs::rename(from, &to)?;
    sync_folder(&to)?;
    Ok(to)
}

/// A copy under a name that says that it is not finished. Dropped, it is gone.
struct PartialCopy<'a> {
    to: &'a Path,
    path: PathBuf,
    file: File,
    is_published: bool,
}

impl<'a> PartialCopy<'a> {
    fn fill(
        source: &Connection,
        to: &'a Path,
        held_since: Timestamp,
        progress: Progress,
    ) -> Result<Self, CopyError> {
        let partial = Self::open(to)?;
        let bytes = expected_bytes(source).map_err(|error| partial.failed(error, 0))?;
        let filled = vacuum_into(source, &partial.path, bytes, progress)
            .and_then(|()| hold(&partial.path, held_since))
            .map_err(|error| partial.failed(error, bytes));
        filled?;
        partial.file.sync_all().map_err(|error| failed(to, error))?;
        Ok(partial)
    }

    fn open(to: &'a Path) -> Result<Self, CopyError> {
        loop {
            // A name that nobody has: what is there is somebody's, or is being written by another process.
            let path = free_name(to, ".partial");
            match OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path) {
                Ok(file) => return Ok(Self { to, path, file, is_published: false }),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(failed(to, error)),
            }
        }
    }

    /// Gives the copy its name, in a way that outlives a power cut; answers its bytes.
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
            Some(ErrorCode::DatabaseCorrupt) => CopyError::SourceDamaged { path, source: error },
            _ => CopyError::Failed { path, source: error.into() },
        }
    }
}

impl Drop for PartialCopy<'_> {
    fn drop(&mut self) {
        if self.is_published {
            return;
        }
        for path in [&self.path, &beside(&self.path, "-journal")] {
            if let Err(error) = remove(path) {
                tracing::warn!("{} could not be removed: {error}", path.display());
            }
        }
    }
}

fn expected_bytes(source: &Connection) -> rusqlite::Result<u64> {
    let figure = |sql: &str| source.query_row(sql, [], |row| row.get::<_, i64>(0));
    let pages = figure("PRAGMA page_count")? - figure("PRAGMA freelist_count")?;
    Ok(u64::try_from(pages * figure("PRAGMA page_size")?).unwrap_or(0))
}

fn vacuum_into(source: &Connection, path: &Path, bytes: u64, mut progress: Progress) -> rusqlite::Result<()> {
    let written = path.to_owned();
    source.progress_handler(
        STEPS,
        Some(move || {
            let length = std::fs::metadata(&written).map_or(0, |file| file.len());
            progress(length.min(bytes), bytes);
            false
        }),
    )?;
    let name = path.to_str().ok_or_else(|| rusqlite::Error::InvalidPath(path.to_owned()))?;
    let done = source.execute("VACUUM INTO ?1", [name]);
    source.progress_handler(0, None::<fn() -> bool>)?;
    done.map(|_| ())
}

/// Marks the copy as held, before it has its name. One that is made of a copy that is held keeps the earlier instant.
fn hold(path: &Path, since: Timestamp) -> rusqlite::Result<()> {
    let access = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let copy = Connection::open_with_flags(path, access)?;
    // Nobody sees the file yet: one that is cut short is thrown away.
    copy.pragma_update(None, "journal_mode", "OFF")?;
    copy.pragma_update(None, "synchronous", "OFF")?;
    copy.execute(
        "INSERT INTO meta (name, value) VALUES ('held_since', ?1) ON CONFLICT DO NOTHING",
        [millis(since)],
    )?;
    copy.close().map_err(|(_, error)| error)
}

fn refuse_existing(path: &Path) -> Result<(), CopyError> {
    if is_there(path) { Err(CopyError::Exists(path.to_owned())) } else { Ok(()) }
}

/// Makes sure that nothing is there under this name: what a database has left behind would be played into another.
fn refuse_taken(path: &Path) -> Result<(), CopyError> {
    refuse_existing(path)?;
    match LOGS.map(|suffix| beside(path, suffix)).into_iter().find(|log| is_there(log)) {
        Some(log) => Err(CopyError::LeftoverFiles(log)),
        None => Ok(()),
    }
}

/// Moves a database out of the way, its write-ahead log with it: beside another file that log would be played into it.
/// A log alone is kept as well: the file that it belongs to may have been moved elsewhere.
fn move_aside(path: &Path) -> io::Result<Vec<MovedAside>> {
    let aside = free_name(path, ".replaced");
    let mut kept = Vec::new();
    for suffix in [""].into_iter().chain(LOGS) {
        let (from, to) = (beside(path, suffix), beside(&aside, suffix));
        match std::fs::rename(&from, &to) {
            Ok(()) => kept.push((from, to)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(kept)
}

fn remove(path: &Path) -> io::Result<()> {
    let removed = std::fs::remove_file(path);
    removed.or_else(|error| if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) })
}

fn is_there(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}

/// `path` with `suffix`, and with a number where that is taken, or what SQLite would keep beside it.
fn free_name(path: &Path, suffix: &str) -> PathBuf {
    let first = beside(path, suffix);
    let others = (2_u32..).map(|number| beside(path, &format!("{suffix}-{number}")));
    std::iter::once(first)
        .chain(others)
        .find(|name| refuse_taken(name).is_ok())
        .unwrap_or_else(|| beside(path, suffix))
}

fn is_same(one: &Path, other: &Path) -> bool {
    matches!((std::fs::canonicalize(one), std::fs::canonicalize(other)), (Ok(one), Ok(other)) if one == other)
}

/// Makes the name of a new file last.
fn sync_folder(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

fn failed(path: &Path, error: io::Error) -> CopyError {
    CopyError::Failed { path: path.to_owned(), source: error.into() }
}
