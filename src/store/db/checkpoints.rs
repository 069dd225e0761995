//! The checkpoints of the write-ahead log, on a thread of their own while writes go on.
//!
//! A checkpoint copies the pages of the log into the file and syncs both, which takes as long as many commits. It needs
//! no lock that a write needs, so a thread makes it on its own connection. SQLite starts the log again from its beginning
//! only if the whole log has been copied when a write begins. The thread alone never gets there while writes go on: each
//! of its rounds leaves what was written during it, less each time. The writer copies the last frames between two batches,
//! which takes about as long as a commit.
//!
//! A crash at any point loses nothing: the frames stay in the log, and every page in the file that a checkpoint may have
//! left half-written is read from the log, until both are synced and the log starts again.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::JoinHandle;

use rusqlite::Connection;

use crate::error::Result;
use crate::panics;
use crate::store::db::open::{PAGE_BYTES, checkpoint_passive, open_existing};

/// Size of the log, in frames of a page each, at which a checkpoint begins: 16 MiB. A larger log means fewer checkpoints,
/// and a longer recovery after a crash. With 4 MiB the 99th percentile of creates by 2 and 16 clients was 2.8 and 6.4 ms,
/// with 16 MiB it is 2.2 and 5.7; reads take as long.
const FIRST_FRAMES: u32 = frames_of(16 << 20);

/// Frames that the writer copies itself: 256 KiB, about what a full batch writes.
const LAST_FRAMES: u32 = frames_of(256 << 10);

/// Rounds of a checkpoint. Each leaves what is written during it, about a quarter under full load.
const MAX_ROUNDS: u32 = 5;

/// Frames between two checkpoints while a reader that still uses the log keeps it from starting again.
const RETRY_FRAMES: u32 = frames_of(1 << 20);

/// Size of the log at which the writer waits for the thread: 64 MiB, so that a slow disk cannot make it grow for ever.
const MAX_FRAMES: u32 = frames_of(64 << 20);

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a constant, at most 64 Ki")]
const fn frames_of(bytes: i64) -> u32 {
    (bytes / PAGE_BYTES) as u32
}

thread_local! {
    /// Frames in the log after the last commit of this thread's connection. SQLite's hook is a plain function without
    /// state of its own.
    static LOG_FRAMES: Cell<u32> = const { Cell::new(0) };
}

/// The writer's side: begins checkpoints and ends them. Dropped after the last commit.
pub(in crate::store::db) struct Checkpoints {
    path: PathBuf,
    shared: Arc<Shared>,
    /// The thread that copies, or has copied, the log of the present checkpoint.
    copier: Option<JoinHandle<()>>,
    next: u32,
}

#[derive(Default)]
struct Shared {
    /// Frames in the log after the writer's last commit.
    frames: AtomicU32,
    is_stopping: AtomicBool,
    /// The last checkpoint failed.
    has_failed: AtomicBool,
}

impl Checkpoints {
    pub fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), shared: Arc::default(), copier: None, next: FIRST_FRAMES }
    }

    /// Counts the frames of the log from now on, in place of SQLite's own checkpoints. `connection` is the writer's, and
    /// this its thread.
    pub fn observe(connection: &Connection) {
        connection.wal_hook(Some(|_, frames| {
            LOG_FRAMES.set(u32::try_from(frames).unwrap_or(0));
            Ok(())
        }));
    }

    /// Begins a checkpoint of a log that has grown, or ends one, on the connection of the writer. Called after the results
    /// of a batch were sent.
    pub fn after_commit(&mut self, connection: &Connection) {
        let frames = LOG_FRAMES.get();
        if frames < self.shared.frames.swap(frames, Ordering::Relaxed) {
            // The log has started again, so the thread has nothing left to copy.
            self.next = FIRST_FRAMES;
            join(self.copier.take());
        }
        if frames < self.next {
            return;
        }
        let must_end = match &self.copier {
            Some(copier) => copier.is_finished() || frames >= MAX_FRAMES,
            None => self.start_copier().is_err(),
        };
        if must_end {
            join(self.copier.take());
            self.shared.record(checkpoint_passive(connection).map(drop));
            self.next = frames.saturating_add(RETRY_FRAMES);
        }
    }

    fn start_copier(&mut self) -> std::io::Result<()> {
        let (path, shared) = (self.path.clone(), Arc::clone(&self.shared));
        let run = move || shared.record(panics::catch("a checkpoint", || shared.copy(&path)));
        self.copier = Some(std::thread::Builder::new().name("checkpoints".to_owned()).spawn(run)?);
        Ok(())
    }
}

impl Drop for Checkpoints {
    fn drop(&mut self) {
        self.shared.is_stopping.store(true, Ordering::Relaxed);
        join(self.copier.take());
    }
}

fn join(copier: Option<JoinHandle<()>>) {
    if copier.is_some_and(|copier| copier.join().is_err()) {
        tracing::error!("checkpoint thread panicked");
    }
}

impl Shared {
    /// Copies the log in rounds, until little enough is left for the writer.
    fn copy(&self, path: &Path) -> Result<()> {
        let connection = open_existing(path)?;
        connection.pragma_update(None, "synchronous", "FULL")?;
        for _ in 0..MAX_ROUNDS {
            let copied = checkpoint_passive(&connection)?;
            // The log may have started again: then it has fewer frames than were copied.
            let left = self.frames.load(Ordering::Relaxed).saturating_sub(copied);
            if left <= LAST_FRAMES || self.is_stopping.load(Ordering::Relaxed) {
                break;
            }
        }
        Ok(())
    }

    /// Logs the first of a row of failures: a full disk would otherwise log one with each commit.
    fn record<E: std::fmt::Display>(&self, result: std::result::Result<(), E>) {
        let had_failed = self.has_failed.swap(result.is_err(), Ordering::Relaxed);
        if let Err(error) = result
            && !had_failed
        {
            tracing::warn!(%error, "checkpoint failed; the write-ahead log keeps all writes and grows until one succeeds");
        }
    }
}
