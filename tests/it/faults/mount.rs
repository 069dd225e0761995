//! A small disk for a test, which can be full or read-only. Only root can mount one: for other users these tests are
//! skipped with a message, and fail in a full run.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::support::server::skip;

/// A file system in memory, unmounted on drop.
pub struct Disk {
    folder: TempDir,
}

impl Disk {
    /// A disk of this size, or `None` if this process may not mount one.
    #[track_caller]
    pub fn mount(size: &str) -> Option<Self> {
        let folder = TempDir::new().unwrap();
        let options = format!("size={size},mode=700");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &options, "cued-test"])
            .arg(folder.path())
            .output();
        let reason = match mounted {
            Ok(output) if output.status.success() => return Some(Self { folder }),
            Ok(output) => String::from_utf8_lossy(&output.stderr).trim().to_owned(),
            Err(error) => format!("mount: {error}"),
        };
        skip(&format!("no disk can be mounted: {reason}"));
        None
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    pub fn db(&self) -> PathBuf {
        self.path().join("cued.db")
    }

    /// Fills the disk to the last byte.
    pub fn fill(&self) {
        self.fill_but(0);
    }

    /// Leaves so many bytes free, rounded to the pages of memory.
    pub fn fill_but(&self, free: u64) {
        let mut filler = File::options().create(true).append(true).open(self.filler()).unwrap();
        for size in [65_536, 4_096, 1] {
            loop {
                match filler.write(&vec![0; size]) {
                    Ok(_) => {}
                    Err(error) if error.kind() == ErrorKind::StorageFull => break,
                    Err(error) => panic!("{error}"),
                }
            }
        }
        let filled = filler.metadata().unwrap().len();
        filler.set_len(filled.saturating_sub(free)).unwrap();
    }

    /// Frees the space used by [`Disk::fill`].
    pub fn free(&self) {
        fs::remove_file(self.filler()).unwrap();
    }

    /// Makes the disk read-only. No file on it may be open for writing.
    pub fn make_read_only(&self) {
        let status = Command::new("mount").args(["-o", "remount,ro"]).arg(self.path()).status().unwrap();
        assert!(status.success());
    }

    fn filler(&self) -> PathBuf {
        self.path().join("filler")
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Lazily, because a failing test may leave a file open.
        let unmounted = Command::new("umount").arg("-l").arg(self.path()).status();
        assert!(unmounted.is_ok_and(|status| status.success()) || std::thread::panicking());
    }
}
