//! The checkpoints of the write-ahead log, by a thread of their own, while writes go on.
//!
//! A checkpoint copies the pages of the log into the file and syncs both, which takes as long as many commits. It needs
//! no lock that a write needs, so the thread makes it on a connection of its own. SQLite starts the log again from its
//! beginning only if the whole log has been copied when a write begins. The thread alone never gets there while writes
//! go on: each of its rounds leaves what was written meanwhile, less each time. The writer itself copies the last
//! frames, between two batches, which takes about as long as a commit.
//!
//! A crash at any point loses nothing: the frames stay in the log, and every page in the file that a checkpoint may have
//! left half-written is read from the log, until both are synced and the log starts again.

use std::cell::Cell;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;

use rusqlite::{Connection, OpenFlags};

use crate::locks::{Condvar, Mutex};
use crate::panics;
use crate::store::db::open::{PAGE_BYTES, checkpoint_passive};

/// Size of the log, in frames of a page each, at which a checkpoint begins: 16 MiB. A larger log means fewer checkpoints, and
/// a longer recovery after a crash. With 4 MiB the 99th percentile of creates by 2 and 16 clients was 2.8 and 6.4 ms, with
/// 16 MiB it is 2.2 and 5.7; reads take as long.
const FIRST_FRAMES: u32 = frames_of(16 << 20);

/// Frames that the writer copies itself: 256 KiB, about what a full batch writes.
const LAST_FRAMES: u32 = frames_of(256 << 10);

/// Rounds of a checkpoint. Each leaves what is written during it, about a quarter under full load.
const MAX_ROUNDS: u32 = 5;

/// Frames between two attempts to end a checkpoint. A reader that still uses the log when a write begins keeps it from
/// starting again.
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

/// The writer's side: asks for checkpoints and ends them. Dropped after the last commit.
pub(in crate::store::db) struct Checkpoints {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    plan: Plan,
    failure: Failure,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    phase: Phase,
    /// Frames in the log after the writer's last commit that was worth telling.
    frames: u32,
    /// The log has started again since the thread began its checkpoint, so that nothing of it is copied.
    has_restarted: bool,
    is_stopping: bool,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Phase {
    #[default]
    Idle,
    Requested,
    Running,
    /// The thread has copied what it could.
    Copied,
}

/// The writer's next step for a log of `frames`.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    Nothing,
    Request,
    /// Copies the last frames. Waits for the thread first if `must_wait`.
    End {
        must_wait: bool,
    },
}

/// The decisions of the writer, without threads and files.
struct Plan {
    /// Frames after the commit before.
    frames: u32,
    /// Frames from which something is to be done.
    next: u32,
}

impl Plan {
    const fn new() -> Self {
        Self { frames: 0, next: FIRST_FRAMES }
    }

    /// Returns true if the log has started again from its beginning.
    fn has_restarted(&mut self, frames: u32) -> bool {
        let has_restarted = frames < self.frames;
        self.frames = frames;
        if has_restarted {
            self.next = FIRST_FRAMES;
        }
        has_restarted
    }

    fn is_due(&self) -> bool {
        self.frames >= self.next
    }

    fn step(&self, phase: Phase) -> Step {
        match phase {
            _ if !self.is_due() => Step::Nothing,
            Phase::Idle => Step::Request,
            Phase::Requested | Phase::Running if self.frames < MAX_FRAMES => Step::Nothing,
            Phase::Requested | Phase::Running => Step::End { must_wait: true },
            Phase::Copied => Step::End { must_wait: false },
        }
    }

    fn ended(&mut self) {
        self.next = self.frames.saturating_add(RETRY_FRAMES);
    }
}

impl Checkpoints {
    /// Starts the thread on a connection of its own.
    pub fn start(path: &Path) -> std::io::Result<Self> {
        let access = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(path, access).map_err(std::io::Error::other)?;
        connection.pragma_update(None, "synchronous", "FULL").map_err(std::io::Error::other)?;
        let shared = Arc::new(Shared::default());
        let state = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("checkpoints".to_owned())
            .spawn(move || run(&connection, &state))?;
        Ok(Self { shared, thread: Some(thread), plan: Plan::new(), failure: Failure::default() })
    }

    /// Counts the frames of the log from now on, in place of SQLite's own checkpoints. `connection` is the writer's, and
    /// this its thread.
    pub fn observe(connection: &Connection) {
        connection.wal_hook(Some(|_, frames| {
            LOG_FRAMES.set(u32::try_from(frames).unwrap_or(0));
            Ok(())
        }));
    }

    /// Asks for a checkpoint of a log that has grown, or ends one, on the connection of the writer. Called after the
    /// results of a batch were sent.
    pub fn after_commit(&mut self, connection: &Connection) {
        let frames = LOG_FRAMES.get();
        let has_restarted = self.plan.has_restarted(frames);
        if !has_restarted && !self.plan.is_due() {
            return;
        }
        let mut state = self.shared.state.lock();
        state.frames = frames;
        if has_restarted {
            state.has_restarted = true;
            if state.phase == Phase::Copied {
                state.phase = Phase::Idle;
            }
        }
        match self.plan.step(state.phase) {
            Step::Nothing => {}
            Step::Request => {
                state.phase = Phase::Requested;
                self.shared.changed.notify_all();
            }
            Step::End { must_wait } => {
                while must_wait && matches!(state.phase, Phase::Requested | Phase::Running) {
                    state = self.shared.changed.wait(state);
                }
                state.phase = Phase::Idle;
                drop(state);
                self.failure.record(checkpoint_passive(connection).map(|_| ()));
                self.plan.ended();
            }
        }
    }
}

impl Drop for Checkpoints {
    fn drop(&mut self) {
        self.shared.state.lock().is_stopping = true;
        self.shared.changed.notify_all();
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("checkpoint thread panicked");
        }
    }
}

fn run(connection: &Connection, shared: &Shared) {
    let mut failure = Failure::default();
    loop {
        {
            let mut state = shared.state.lock();
            while state.phase != Phase::Requested && !state.is_stopping {
                state = shared.changed.wait(state);
            }
            if state.is_stopping {
                return;
            }
            state.phase = Phase::Running;
            state.has_restarted = false;
        }
        let copied = panics::catch("a checkpoint", || Ok(copy(connection, shared)?));
        failure.record(copied);
        let mut state = shared.state.lock();
        state.phase = if state.has_restarted { Phase::Idle } else { Phase::Copied };
        drop(state);
        shared.changed.notify_all();
    }
}

/// Copies the log in rounds, until little enough is left for the writer.
fn copy(connection: &Connection, shared: &Shared) -> rusqlite::Result<()> {
    for _ in 0..MAX_ROUNDS {
        let copied = checkpoint_passive(connection)?;
        let state = shared.state.lock();
        // The log may have started again: then it has fewer frames than were copied.
        if state.is_stopping || state.frames.saturating_sub(copied) <= LAST_FRAMES {
            break;
        }
    }
    Ok(())
}

/// Logs the first of a row of failures: a full disk would otherwise log one with each commit.
#[derive(Default)]
struct Failure {
    is_logged: bool,
}

impl Failure {
    fn record<E: std::fmt::Display>(&mut self, result: Result<(), E>) {
        match result {
            Ok(()) => self.is_logged = false,
            Err(error) if !self.is_logged => {
                self.is_logged = true;
                tracing::warn!(%error, "checkpoint failed; the write-ahead log keeps all writes and grows until one succeeds");
            }
            Err(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::store::db::checkpoints::{FIRST_FRAMES, MAX_FRAMES, Phase, Plan, RETRY_FRAMES, Step};

    fn plan_at(frames: u32) -> Plan {
        let mut plan = Plan::new();
        assert!(!plan.has_restarted(frames));
        plan
    }

    #[test]
    fn a_short_log_is_left_alone() {
        for phase in [Phase::Idle, Phase::Requested, Phase::Running, Phase::Copied] {
            assert_eq!(plan_at(FIRST_FRAMES - 1).step(phase), Step::Nothing);
        }
    }

    #[test]
    fn the_writer_asks_once_and_ends_what_the_thread_has_copied() {
        let plan = plan_at(FIRST_FRAMES);
        assert_eq!(plan.step(Phase::Idle), Step::Request);
        assert_eq!(plan.step(Phase::Requested), Step::Nothing);
        assert_eq!(plan.step(Phase::Running), Step::Nothing);
        assert_eq!(plan.step(Phase::Copied), Step::End { must_wait: false });
    }

    #[test]
    fn the_writer_waits_only_for_a_log_at_its_limit() {
        assert_eq!(plan_at(MAX_FRAMES - 1).step(Phase::Running), Step::Nothing);
        assert_eq!(plan_at(MAX_FRAMES).step(Phase::Running), Step::End { must_wait: true });
        assert_eq!(plan_at(MAX_FRAMES).step(Phase::Idle), Step::Request);
    }

    #[test]
    fn a_log_that_a_reader_keeps_from_starting_again_is_tried_again_after_more_frames() {
        let mut plan = plan_at(FIRST_FRAMES);
        plan.ended();
        assert!(!plan.has_restarted(FIRST_FRAMES + RETRY_FRAMES - 1));
        assert_eq!(plan.step(Phase::Idle), Step::Nothing);
        assert!(!plan.has_restarted(FIRST_FRAMES + RETRY_FRAMES));
        assert_eq!(plan.step(Phase::Idle), Step::Request);
        // Once the reader is gone, the log starts again, and the next checkpoint begins at its usual size.
        assert!(plan.has_restarted(12));
        assert_eq!(plan.step(Phase::Idle), Step::Nothing);
        assert!(!plan.has_restarted(FIRST_FRAMES));
        assert_eq!(plan.step(Phase::Idle), Step::Request);
    }
}
