//! The checkpoints of the write-ahead log while writes go on.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cued::store::Store;
use rusqlite::Connection;
use tempfile::TempDir;

const MEBIBYTE: usize = 1 << 20;

struct Opened {
    store: Store,
    path: PathBuf,
    written: usize,
    _folder: TempDir,
}

fn open() -> Opened {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cued.db");
    let store = Store::open(&path, Arc::new(|_| ())).unwrap();
    Opened { store, path, written: 0, _folder: folder }
}

impl Opened {
    /// Commits rows of 100 KB, a mebibyte in all.
    fn write_mebibyte(&mut self) {
        for _ in 0..10 {
            self.written += 1;
            let name = format!("{:06}{}", self.written, "x".repeat(MEBIBYTE / 10));
            let insert = "INSERT INTO meta (name, value) VALUES (?1, 1)";
            self.store.write(move |tx| Ok(tx.execute(insert, [name])?)).wait().unwrap();
        }
    }

    fn log(&self) -> PathBuf {
        let mut log = self.path.clone().into_os_string();
        log.push("-wal");
        log.into()
    }

    fn log_bytes(&self) -> usize {
        usize::try_from(fs::metadata(self.log()).unwrap().len()).unwrap()
    }

    /// How many times the log has started from its beginning: bytes 12 to 15 of its header.
    fn restarts(&self) -> u32 {
        let mut bytes = [0; 4];
        File::open(self.log()).unwrap().read_exact_at(&mut bytes, 12).unwrap();
        u32::from_be_bytes(bytes)
    }

    fn rows(&self) -> usize {
        rows(&Connection::open(&self.path).unwrap())
    }
}

fn rows(file: &Connection) -> usize {
    let count = "SELECT count(*) FROM meta WHERE name GLOB '0*'";
    usize::try_from(file.query_row(count, [], |row| row.get::<_, i64>(0)).unwrap()).unwrap()
}

#[test]
fn the_log_starts_again_while_writes_go_on_without_a_pause() {
    let mut opened = open();
    let first = opened.restarts();
    // Twice as much as the limit of the log: one that never starts again would exceed it.
    while opened.written < 1_500 {
        opened.write_mebibyte();
    }
    assert!(opened.restarts() > first + 1, "{} restarts", opened.restarts() - first);
    assert!(opened.log_bytes() < 80 * MEBIBYTE, "{} bytes", opened.log_bytes());
    assert_eq!(opened.rows(), opened.written);
}

#[test]
fn a_long_read_stops_neither_writes_nor_later_checkpoints() {
    let mut opened = open();
    opened.write_mebibyte();
    let reader = Connection::open(&opened.path).unwrap();
    reader.execute_batch("BEGIN").unwrap();
    let seen = rows(&reader);
    for _ in 0..90 {
        opened.write_mebibyte();
    }
    let during = opened.restarts();
    assert!(opened.log_bytes() > 80 * MEBIBYTE, "the reader still needs pages: the log keeps all later ones");
    assert_eq!(rows(&reader), seen, "the read sees its own snapshot");
    reader.execute_batch("COMMIT").unwrap();
    // The next checkpoint copies all, and one of the next commits starts the log again.
    while opened.restarts() == during {
        assert!(opened.written < 4_000, "the log never starts again");
        opened.write_mebibyte();
    }
    assert_eq!(opened.rows(), opened.written);
}

/// The file and its log are copied amid checkpoints, page by page, as a crash would leave them: the file may have pages of
/// any age, and the log has them all.
#[test]
fn a_crash_amid_a_checkpoint_loses_nothing() {
    let mut opened = open();
    let folder = TempDir::new().unwrap();
    let mut tried = 0;
    while tried < 12 {
        for _ in 0..4 {
            opened.write_mebibyte();
        }
        let (restarts, written) = (opened.restarts(), opened.written);
        let copy = folder.path().join(format!("{tried}.db"));
        fs::copy(&opened.path, &copy).unwrap();
        opened.write_mebibyte();
        let log = folder.path().join(format!("{tried}.db-wal"));
        fs::copy(opened.log(), &log).unwrap();
        // A log that has started again since belongs to a newer file.
        if opened.restarts() != restarts {
            continue;
        }
        assert_complete(&copy, written);
        tried += 1;
    }
}

fn assert_complete(path: &Path, written: usize) {
    let file = Connection::open(path).unwrap();
    assert!(rows(&file) >= written, "{} of {written} rows", rows(&file));
    let sound: String = file.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(sound, "ok");
}
