//! Deletes the rows of deleted cues and the history beyond `--retain`, then returns the free pages to the file system.
//! One small batch a pass, so that no other write waits long; writes nothing if there is nothing to delete.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::app::App;
use crate::domain::cue::retention::{Retention, RetentionClock, SETTLING_TIME};
use crate::domain::row_keys::{CueKey, ExecutionKey};
use crate::domain::time::saturating_sub;
use crate::engine::NextPass;
use crate::error::Result;
use crate::store::ReadTx;
use crate::store::maintenance::retention::{self, HistoryScan, PageUsage};

/// Interval at which executions that were too young or unfinished are read again. The oldest execution sets an earlier
/// deadline, so a round a day only catches those that finished late.
const ROUND_INTERVAL: SignedDuration = SignedDuration::from_hours(24);

/// Free pages that stay in the file for the next writes: at least this many (4 MiB), and this fraction of all pages.
/// A file that shrinks and grows again pays twice for every page.
const MIN_FREE_PAGES: i64 = 4_096;
const FREE_FRACTION: i64 = 16;

/// Executions deleted in one transaction, from as many histories as it takes. Measured with two runs kept of each cue:
/// one transaction per cue deleted 70 times more slowly than the scheduler created.
const BATCH: usize = 200;

/// Cues read in one batch after `--retain` was lowered. Most need no change, so the batch is larger.
const CUE_BATCH: i64 = 2_000;

/// Long histories whose progress is remembered: 160 kB.
const MAX_REMEMBERED: usize = 10_000;

#[derive(Debug, Default)]
pub struct RetentionSweeper {
    clock: RetentionClock,
    /// The key up to which expired executions are deleted, the newest creation up to there, and the start of the round.
    expired_up_to: ExecutionKey,
    newest: Timestamp,
    round: Option<Timestamp>,
    /// Progress of the round: the last key swept, by cue, of histories that take several batches. Otherwise a cue that
    /// nobody claims would be read from its beginning at every sweep. What finishes later is deleted in the next round.
    trimmed: BTreeMap<CueKey, ExecutionKey>,
    /// The cue up to which histories are queued after `--retain` was lowered; `None` once that is done.
    marking: Option<CueKey>,
    has_begun: bool,
    is_shrinking: bool,
}

struct CueHistory {
    cue_key: CueKey,
    deletable: Vec<ExecutionKey>,
    reached: ExecutionKey,
    /// All executions beyond the number to keep were read.
    is_read: bool,
}

impl RetentionSweeper {
    /// The time for which the clock has run without a jump. A test clock is moved on purpose.
    pub fn settled_for(&mut self, app: &App) -> Duration {
        if app.clock.is_test() {
            Duration::MAX
        } else {
            self.clock.settled_for(app.clock.now(), app.clock.monotonic())
        }
    }

    pub fn run_once(&mut self, app: &App) -> Result<NextPass> {
        let (now, retention) = (app.clock.now(), app.config.retention);
        if !self.has_begun {
            self.begin(app, retention)?;
        }
        let expired = retention
            .age
            .filter(|_| self.settled_for(app) >= SETTLING_TIME)
            .map(|age| saturating_sub(now, age));
        if let Some(after) = self.marking {
            return self.mark(app, retention, after);
        }
        self.start_round(now);
        if let Some(cue_key) = app.store.read_blocking(retention::first_deleted_cue)? {
            app.store.write_with_priority(move |tx| retention::erase_batch(tx, cue_key)).wait()?;
            return Ok(NextPass::Again);
        }
        let histories = app.store.read_blocking(|read| self.queued_histories(read, retention))?;
        if !histories.is_empty() {
            if let Some((cue_key, up_to)) = trim(app, retention, histories)? {
                if self.trimmed.len() >= MAX_REMEMBERED {
                    self.trimmed.clear();
                }
                self.trimmed.insert(cue_key, up_to);
            }
            return Ok(NextPass::Again);
        }
        let (after, mut newest) = (self.expired_up_to, self.newest);
        let scan = |expired| {
            let scan =
                |read: &ReadTx<'_>| retention::scan_expired(read, after, &mut newest, expired, now);
            app.store.read_blocking(scan)
        };
        let oldest = expired.map(scan).transpose()?.unwrap_or_default();
        if oldest.last_key.is_some() {
            (self.expired_up_to, self.newest) = (delete(app, &oldest)?, newest);
            return Ok(NextPass::Again);
        }
        if self.return_free_pages(app, app.store.read_blocking(retention::page_usage)?)? {
            return Ok(NextPass::Again);
        }
        // It may be past while the clock is not settled; the passes go on without a deadline.
        let expires =
            oldest.first_unexpired.and_then(|made| retention.expires(made)).filter(|at| *at > now);
        let next_round = self.round.and_then(|round| round.checked_add(ROUND_INTERVAL).ok());
        Ok(NextPass::At([expires, next_round].into_iter().flatten().min()))
    }

    /// Compares `--retain` with the value of the last start: histories that are too long by a lower value are not
    /// queued yet.
    fn begin(&mut self, app: &App, retention: Retention) -> Result<()> {
        let before = app.store.read_blocking(retention::retained_runs)?;
        let runs = retention.runs.map(i64::from);
        let keeps_less = runs.is_some_and(|runs| before.is_none_or(|before| runs < before));
        if keeps_less {
            self.marking = Some(CueKey::default());
        } else if runs != before {
            app.store
                .write_with_priority(move |tx| retention::set_retained_runs(tx, runs))
                .wait()?;
        }
        self.has_begun = true;
        Ok(())
    }

    fn start_round(&mut self, now: Timestamp) {
        // A round in the future began while the clock ran ahead.
        let is_over = |began: Timestamp| began > now || now.duration_since(began) >= ROUND_INTERVAL;
        if self.round.is_none_or(is_over) {
            (self.expired_up_to, self.newest, self.round) =
                (ExecutionKey::default(), Timestamp::MIN, Some(now));
            self.trimmed.clear();
        }
    }

    fn mark(&mut self, app: &App, retention: Retention, after: CueKey) -> Result<NextPass> {
        let runs = retention.runs.map(i64::from);
        let up_to = CueKey::new(after.number() + CUE_BATCH);
        let is_last = app.store.write_with_priority(move |tx| {
            retention::queue_cues(tx, after, up_to, runs.unwrap_or(i64::MAX))?;
            let is_last = retention::last_cue_key(tx)? <= up_to;
            if is_last {
                retention::set_retained_runs(tx, runs)?;
            }
            Ok(is_last)
        });
        self.marking = if is_last.wait()? { None } else { Some(up_to) };
        Ok(NextPass::Again)
    }

    /// Queued cues, as many as have a full batch of executions to delete between them. A transaction per cue would fall
    /// behind the scheduler when few runs are kept of each cue.
    fn queued_histories(&self, read: &ReadTx<'_>, retention: Retention) -> Result<Vec<CueHistory>> {
        let (mut histories, mut count) = (Vec::new(), 0);
        for cue_key in retention::queued_cues(read)? {
            let after = self.trimmed.get(&cue_key).copied().unwrap_or_default();
            let surplus = retention::surplus(read, cue_key, retention.runs)?.unwrap_or_default();
            let scan = retention::scan_history(read, cue_key, after, surplus)?;
            count += scan.deletable.len();
            let reached = scan.last_key.unwrap_or(after);
            let is_read = reached >= surplus;
            histories.push(CueHistory { cue_key, deletable: scan.deletable, reached, is_read });
            if !is_read || count >= BATCH {
                break;
            }
        }
        Ok(histories)
    }

    /// Returns some free pages to the file system if there are many. Returns whether it did.
    fn return_free_pages(&mut self, app: &App, usage: PageUsage) -> Result<bool> {
        let reserve = MIN_FREE_PAGES.max(usage.pages / FREE_FRACTION);
        let was_shrinking = self.is_shrinking;
        let has_many = usage.free > if was_shrinking { reserve } else { 2 * reserve };
        self.is_shrinking =
            has_many && app.store.write_with_priority(retention::release_free_pages).wait()? > 0;
        if was_shrinking
            && !self.is_shrinking
            && let Err(error) = app.store.checkpoint()
        {
            tracing::warn!(%error, "cannot shorten the database file yet; a later checkpoint does");
        }
        Ok(self.is_shrinking)
    }
}

/// Deletes the executions found in `histories` and removes finished cues from the queue. Returns the first unfinished
/// cue and the last key read.
fn trim(
    app: &App,
    retention: Retention,
    histories: Vec<CueHistory>,
) -> Result<Option<(CueKey, ExecutionKey)>> {
    let write = app.store.write_with_priority(move |tx| {
        let deletable: Vec<ExecutionKey> =
            histories.iter().flat_map(|history| &history.deletable).copied().collect();
        let mut done = retention::delete_executions(tx, &deletable)?;
        for history in &histories {
            if let Some(next) = history.deletable.get(done) {
                return Ok(Some((history.cue_key, next.previous())));
            }
            done -= history.deletable.len();
            let is_done = history.is_read
                && retention::remove_from_queue(
                    tx,
                    history.cue_key,
                    history.reached,
                    retention.runs,
                )?;
            if !is_done {
                return Ok(Some((history.cue_key, history.reached)));
            }
        }
        Ok(None)
    });
    write.wait()
}

/// Deletes the executions found in `scan`. Returns the key up to which that is done.
fn delete(app: &App, scan: &HistoryScan) -> Result<ExecutionKey> {
    let (keys, up_to) = (scan.deletable.clone(), scan.last_key.unwrap_or_default());
    if keys.is_empty() {
        return Ok(up_to);
    }
    let write = app.store.write_with_priority(move |tx| {
        let done = retention::delete_executions(tx, &keys)?;
        Ok(if done < keys.len() { keys[done].previous() } else { up_to })
    });
    write.wait()
}
