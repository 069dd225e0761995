//! A small disk of the test's own, which can be full or read-only. Only root can mount one: the tests of who is not
//! are left out, and say so.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

/// A file system in memory that is unmounted when it is dropped.
pub struct Disk {
    folder: TempDir,
}

impl Disk {
    /// One of this size, or none where this process may not mount.
    pub fn mount(size: &str) -> Option<Self> {
        let folder = TempDir::new().unwrap();
        let options = format!("size={size},mode=700");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &options, "cued-test"])
            .arg(folder.path())
            .output();
        match mounted {
            Ok(output) if output.status.success() => Some(Self { folder }),
            Ok(output) => {
                eprintln!("left out: no disk can be mounted: {}", String::from_utf8_lossy(&output.stderr));
                None
            }
            Err(error) => {
                eprintln!("left out: there is no mount: {error}");
                None
            }
        }
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    pub fn db(&self) -> PathBuf {
        self.path().join("cued.db")
    }

    /// Leaves not a byte free.
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

    /// Frees what [`Disk::fill`] took.
    pub fn free(&self) {
        fs::remove_file(self.filler()).unwrap();
    }

    /// Lets nobody write any more. Whoever has a file open for writing is in the way.
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
        // Lazily: a test that fails may leave a file open.
        let unmounted = Command::new("umount").arg("-l").arg(self.path()).status();
        assert!(unmounted.is_ok_and(|status| status.success()) || std::thread::panicking());
    }
}
