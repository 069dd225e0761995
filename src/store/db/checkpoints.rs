//! Checkpoints on a thread of their own. SQLite restarts the log only if all of it is copied when a write begins, which
//! the thread alone never reaches: the writer copies the last frames. A crash loses nothing: the log stays until all is
//! synced.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::JoinHandle;

use rusqlite::Connection;

use crate::error::Result;
use crate::store::db::open::{PAGE_BYTES, checkpoint_full, checkpoint_passive, open_existing};
use crate::system::panics;

/// Frames at which a checkpoint begins: 16 MiB. The 99th percentile of creates by 2 and 16 clients is 2.2 and 5.7 ms,
/// with 4 MiB it was 2.8 and 6.4. A larger log means a longer recovery.
const FIRST_FRAMES: u32 = frames_of(16 << 20);

/// Frames that the writer copies itself: 256 KiB, about what a full batch writes.
const LAST_FRAMES: u32 = frames_of(256 << 10);

/// Rounds of a checkpoint. Each leaves what is written during it, about a quarter under full load.
const MAX_ROUNDS: u32 = 5;

/// Frames between two checkpoints while a reader that still uses the log keeps it from starting again.
const RETRY_FRAMES: u32 = frames_of(1 << 20);

/// Size of the log at which the writer waits for the thread: 64 MiB, so that a slow disk cannot make it grow for ever.
const MAX_FRAMES: u32 = frames_of(64 << 20);

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a constant, at most 64 Ki"
)]
const fn frames_of(bytes: i64) -> u32 {
    (bytes / PAGE_BYTES) as u32
}

thread_local! {
    /// Frames in the log after the last commit of this thread's connection: SQLite's hook has no state of its own.
    static LOG_FRAMES: Cell<u32> = const { Cell::new(0) };
}

/// The writer's side: begins checkpoints and ends them. Dropped after the last commit.
pub(in crate::store::db) struct Checkpoints {
    path: PathBuf,
    shared: Arc<Shared>,
    copier: Option<JoinHandle<()>>,
    next: u32,
}

#[derive(Default)]
struct Shared {
    frames: AtomicU32,
    is_stopping: AtomicBool,
    /// The last checkpoint failed.
    has_failed: AtomicBool,
}

impl Checkpoints {
    pub fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), shared: Arc::default(), copier: None, next: FIRST_FRAMES }
    }

    /// Replaces SQLite's own checkpoints. `connection` is the writer's, and this its thread.
    pub fn observe(connection: &Connection) {
        connection.wal_hook(Some(|_, frames| {
            LOG_FRAMES.set(u32::try_from(frames).unwrap_or(0));
            Ok(())
        }));
    }

    /// Called after the results of a batch were sent.
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
            self.run(connection);
            self.next = frames.saturating_add(RETRY_FRAMES);
        }
    }

    /// For a write that has to be in the file itself before it is acknowledged.
    pub fn run_full(&self, connection: &Connection) {
        self.shared.record(checkpoint_full(connection));
    }

    /// On the writer's thread, which calls this rarely.
    fn run(&self, connection: &Connection) {
        self.shared.record(checkpoint_passive(connection).map(drop));
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
