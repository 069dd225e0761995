//! Backups in a folder, with names that sort by their time. Files with other names are none of them.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

use crate::store::maintenance::backup::{CopyError, Progress, copy};

const NAME: &str = "cued-%Y%m%dT%H%M%SZ.db";
const SECOND: SignedDuration = SignedDuration::from_secs(1);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredBackup {
    pub name: String,
    pub bytes: u64,
    pub created_at: Timestamp,
}

/// A second backup of the same second has the name of the next one. Errors: as [`copy`].
pub fn create(
    db: &Path,
    folder: &Path,
    now: Timestamp,
    progress: Progress,
) -> Result<StoredBackup, CopyError> {
    let mut named = now;
    while folder.join(name_at(named)).try_exists().is_ok_and(|exists| exists) {
        named = named.checked_add(SECOND).unwrap_or(Timestamp::MAX);
    }
    let name = name_at(named);
    let bytes = copy(db, &folder.join(&name), now, progress)?;
    let created_at = time_of(&name).unwrap_or(now);
    Ok(StoredBackup { name, bytes, created_at })
}

/// Newest first.
pub fn list(folder: &Path) -> io::Result<Vec<StoredBackup>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        let Some(created_at) = time_of(&name) else { continue };
        match entry.metadata() {
            Ok(file) if file.is_file() => {
                found.push(StoredBackup { name, bytes: file.len(), created_at })
            }
            Ok(_) => {}
            // Deleted in the meantime.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    found.sort_unstable_by_key(|backup| std::cmp::Reverse(backup.created_at));
    Ok(found)
}

/// Deletes all but the newest `keep` backups, and never the one of the name `made`. Returns how many.
pub fn delete_old(folder: &Path, keep: usize, made: &str) -> io::Result<usize> {
    let old: Vec<StoredBackup> =
        list(folder)?.into_iter().skip(keep).filter(|backup| backup.name != made).collect();
    for backup in &old {
        delete(folder, &backup.name)?;
    }
    Ok(old.len())
}

/// Returns false if there is no such backup.
pub fn delete(folder: &Path, name: &str) -> io::Result<bool> {
    let Some(path) = path_of(folder, name) else { return Ok(false) };
    found(fs::remove_file(path)).map(|removed| removed.is_some())
}

/// Opens a backup and returns its size. `None` if there is no such backup.
pub fn open(folder: &Path, name: &str) -> io::Result<Option<(File, u64)>> {
    let Some(path) = path_of(folder, name) else { return Ok(None) };
    let Some(file) = found(File::open(path))? else { return Ok(None) };
    let bytes = file.metadata()?.len();
    Ok(Some((file, bytes)))
}

/// `None` for any name that no backup has, such as a path, and for anything but a file.
fn path_of(folder: &Path, name: &str) -> Option<PathBuf> {
    time_of(name)?;
    let path = folder.join(name);
    path.symlink_metadata().is_ok_and(|file| file.is_file()).then_some(path)
}

fn found<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        other => other.map(Some),
    }
}

fn name_at(time: Timestamp) -> String {
    time.strftime(NAME).to_string()
}

fn time_of(name: &str) -> Option<Timestamp> {
    let time = DateTime::strptime(NAME, name).ok()?.to_zoned(TimeZone::UTC).ok()?.timestamp();
    // The parser also takes shorter numbers and blanks.
    (name_at(time) == name).then_some(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_backups_have_a_time() {
        let name = "cued-20261126T165900Z.db";
        assert_eq!(time_of(name).unwrap().to_string(), "2026-11-26T16:59:00Z");
        assert_eq!(name_at("2026-11-26T16:59:00.999Z".parse().unwrap()), name);
        for other in [
            "",
            "cued.db",
            "cued-20261126T165900Z.db ",
            " cued-20261126T165900Z.db",
            "cued-20261126T165900Z.db.partial",
            "cued-2026112 T165900Z.db",
            "cued-20261326T165900Z.db",
            "cued-20261126T16590Z.db",
            "../cued-20261126T165900Z.db",
            "CUED-20261126T165900Z.DB",
            "cued-20261126T165960Z.db",
        ] {
            assert_eq!(time_of(other), None, "{other}");
        }
    }
}
