//! The bytes written to the disk: frames of the write-ahead log, and sectors of the block device.
//!
//! The log shows what commits cost, without the checkpoints. The device shows all of it, and what others write there.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use crate::bench::Result;
use crate::clock::Clock;

/// Between two looks at the log. It starts again from its beginning after megabytes, which takes longer.
const INTERVAL: Duration = Duration::from_millis(2);

/// The log is idle if it has not grown for this time.
const IDLE: Duration = Duration::from_millis(200);

/// The unit of the counters of block devices, whatever the device.
const SECTOR_BYTES: f64 = 512.0;

/// The headers of the log and of each frame in it, and the place of the salt in the latter.
const LOG_HEADER_BYTES: u64 = 32;
const FRAME_HEADER_BYTES: u64 = 24;
const SALT: std::ops::Range<usize> = 8..16;

/// Counts what is written to a database and its disk, from its creation on.
pub struct WriteMeter {
    log: Arc<LogCounts>,
    device: Option<PathBuf>,
}

/// The bytes written up to a moment. `None` where the system does not tell.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Written {
    pub log_bytes: Option<f64>,
    pub commits: Option<f64>,
    pub device_bytes: Option<f64>,
}

#[derive(Default)]
struct LogCounts {
    bytes: AtomicU64,
    commits: AtomicU64,
    is_known: AtomicBool,
}

impl WriteMeter {
    /// Starts to count. Ends when it is dropped.
    pub fn start(db: &Path) -> Result<Self> {
        let log = Arc::new(LogCounts::default());
        let (watched, db_path) = (Arc::downgrade(&log), db.to_owned());
        let beside = move |suffix| {
            let mut path = db_path.clone().into_os_string();
            path.push(suffix);
            PathBuf::from(path)
        };
        thread::Builder::new()
            .name("log-meter".to_owned())
            .spawn(move || count(&watched, &beside("-shm"), &beside("-wal")))?;
        Ok(Self { log, device: device_of(db) })
    }

    /// The bytes written so far.
    pub fn now(&self) -> Written {
        let is_known = self.log.is_known.load(Ordering::Relaxed);
        #[allow(clippy::cast_precision_loss)]
        let count = |of: &AtomicU64| is_known.then(|| of.load(Ordering::Relaxed) as f64);
        Written {
            log_bytes: count(&self.log.bytes),
            commits: count(&self.log.commits),
            device_bytes: self.device.as_deref().and_then(sectors).map(|sectors| sectors * SECTOR_BYTES),
        }
    }

    /// Waits until the log stops growing, and returns what has been written so far.
    pub fn when_idle(&self, clock: &Clock) -> Written {
        let mut before = self.now();
        loop {
            clock.sleep(IDLE);
            let now = self.now();
            if now.commits == before.commits {
                return now;
            }
            before = now;
        }
    }
}

impl Written {
    /// The bytes written since `before`.
    pub fn since(self, before: Self) -> Self {
        let less = |now: Option<f64>, before: Option<f64>| Some(now? - before?);
        Self {
            log_bytes: less(self.log_bytes, before.log_bytes),
            commits: less(self.commits, before.commits),
            device_bytes: less(self.device_bytes, before.device_bytes),
        }
    }
}

fn count(counts: &Weak<LogCounts>, index: &Path, log: &Path) {
    let (clock, mut last) = (Clock::system(), None);
    while let Some(counts) = counts.upgrade() {
        if let Some(now) = fs::read(index).ok().as_deref().and_then(LogState::parse) {
            let (bytes, commits) = last.map_or((0, 0), |last| now.since(last, log));
            counts.bytes.fetch_add(bytes, Ordering::Relaxed);
            counts.commits.fetch_add(commits, Ordering::Relaxed);
            counts.is_known.store(true, Ordering::Relaxed);
            last = Some(now);
        }
        drop(counts);
        clock.sleep(INTERVAL);
    }
}

/// The header of the index of a log, the file `-shm` (<https://www.sqlite.org/walformat.html>).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct LogState {
    /// Grows with each commit.
    changes: u32,
    page_bytes: u16,
    frames: u32,
    /// Another one each time the log starts from its beginning.
    salt: [u8; 8],
}

impl LogState {
    /// `None` while a commit changes the header.
    fn parse(index: &[u8]) -> Option<Self> {
        let (first, second) = (index.get(..48)?, index.get(48..96)?);
        let word = |at: usize| first.get(at..at + 4)?.try_into().ok().map(u32::from_ne_bytes);
        let page_bytes = first.get(14..16)?.try_into().ok().map(u16::from_ne_bytes)?;
        let state = Self {
            changes: word(8)?,
            page_bytes,
            frames: word(16)?,
            salt: first.get(32..40)?.try_into().ok()?,
        };
        (first == second && page_bytes > 0).then_some(state)
    }

    /// The bytes and the commits that the log got since `before`.
    fn since(self, before: Self, log: &Path) -> (u64, u64) {
        let frames = if self.salt == before.salt {
            u64::from(self.frames.saturating_sub(before.frames))
        } else {
            u64::from(self.frames) + before.frames_after(log).unwrap_or_default()
        };
        (frames * self.frame_bytes(), u64::from(self.changes.wrapping_sub(before.changes)))
    }

    fn frame_bytes(self) -> u64 {
        u64::from(self.page_bytes) + FRAME_HEADER_BYTES
    }

    /// The frames after these that have the same salt: those that were written before the log started again. The new ones
    /// overwrite it from its beginning.
    fn frames_after(self, log: &Path) -> std::io::Result<u64> {
        let (log, mut header, mut found) = (File::open(log)?, [0; FRAME_HEADER_BYTES as usize], 0);
        loop {
            let at = LOG_HEADER_BYTES + (u64::from(self.frames) + found) * self.frame_bytes();
            if log.read_at(&mut header, at)? < header.len() || header[SALT] != self.salt {
                return Ok(found);
            }
            found += 1;
        }
    }
}

/// The counters of the block device with this file; `None` for a file system that has none, such as one in memory.
fn device_of(path: &Path) -> Option<PathBuf> {
    let number = fs::metadata(path).ok()?.dev();
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    let counters = PathBuf::from(format!("/sys/dev/block/{major}:{minor}/stat"));
    counters.exists().then_some(counters)
}

/// The sectors written to a block device.
fn sectors(counters: &Path) -> Option<f64> {
    fs::read_to_string(counters).ok()?.split_whitespace().nth(6)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index(changes: u32, frames: u32, salt: u8) -> Vec<u8> {
        let mut header = [0; 48];
        header[8..12].copy_from_slice(&changes.to_ne_bytes());
        header[14..16].copy_from_slice(&1_024_u16.to_ne_bytes());
        header[16..20].copy_from_slice(&frames.to_ne_bytes());
        header[32..40].fill(salt);
        header.repeat(2)
    }

    #[test]
    fn the_growth_of_the_log_is_counted_across_its_new_beginnings() {
        let state = |changes, frames, salt| LogState::parse(&index(changes, frames, salt)).unwrap();
        let (folder, none) = (tempfile::tempdir().unwrap(), Path::new("/nowhere"));
        assert_eq!(state(3, 10, 1).since(state(1, 4, 1), none), (6 * 1_048, 2));
        assert_eq!(state(3, 10, 2).since(state(1, 400, 1), none), (10 * 1_048, 2));
        // Seven frames, of which the new log has overwritten two. The index was read when there were four.
        let log = folder.path().join("log");
        let frame = |salt: u8| [&[0; 8][..], &[salt; 8], &[0; 8 + 1_024]].concat();
        let frames: Vec<u8> = [2, 2, 1, 1, 1, 1, 1].map(frame).concat();
        fs::write(&log, [&[0; 32][..], &frames].concat()).unwrap();
        assert_eq!(state(3, 2, 2).since(state(1, 4, 1), &log), ((3 + 2) * 1_048, 2));
    }

    #[test]
    fn a_header_that_is_being_written_is_not_read() {
        let mut torn = index(3, 10, 1);
        torn[8] = 2;
        assert_eq!(LogState::parse(&torn), None);
        assert_eq!(LogState::parse(&[0; 96]), None, "no log yet");
        assert_eq!(LogState::parse(&[]), None);
    }
}
