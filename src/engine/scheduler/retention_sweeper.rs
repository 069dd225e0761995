//! Takes away what is kept no longer: what deleted cues left behind, the history beyond `--retain`, the room that both
//! leave in the file. One small batch a pass, so that nobody waits for it; where there is nothing to take away nothing
//! is written.

use jiff::{SignedDuration, Timestamp};

use crate::app::App;
use crate::domain::cue::retention::Retention;
use crate::error::Result;
use crate::store::ReadTx;
use crate::store::maintenance::cue_deletion;
use crate::store::maintenance::retention;
use crate::store::maintenance::retention::{HistoryScan, PageUsage};

/// How often what was too young or not over, when its turn came, is looked at again.
const ROUND: SignedDuration = SignedDuration::from_hours(24);

/// Free pages that are left in the file for what comes next, at least, and as a part of all pages.
const SLACK: i64 = 4_096;
const SLACK_PART: i64 = 16;

/// Executions of several histories that are taken away together, at least.
const AT_A_TIME: usize = 200;

/// Cues looked at in one batch where less is kept than before.
const CUES: i64 = 2_000;

/// The sweeper between two passes.
#[derive(Debug, Default)]
pub struct RetentionSweeper {
    /// The execution up to which all that had expired is gone, and since when the round goes on.
    aged: i64,
    round: Option<Timestamp>,
    /// The marked cue whose history is looked at, and how far.
    trimming: Option<(i64, i64)>,
    /// How far the cues are marked, where less is kept of each than before; none once that is done.
    marking: Option<i64>,
    has_begun: bool,
    gives_back: bool,
    /// Giving pages back brought none: a file made by other means than ours.
    is_stiff: bool,
}

/// What a pass found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SweepOutcome {
    /// There may be more to do at once.
    Again,
    /// There is nothing to do until then.
    At(Option<Timestamp>),
}

/// The beginning of a marked cue's history.
struct CueHistory {
    cue_key: i64,
    /// Executions that may go.
    over: Vec<i64>,
    /// The last that was looked at.
    reached: i64,
    /// The newest that is too many.
    surplus: i64,
}

/// The first thing that there is to do.
enum SweepStep {
    /// What this cue has left behind is to be taken away.
    Erase(i64),
    /// The histories of these cues may have grown too long.
    Trim(Vec<CueHistory>),
    /// These are the oldest executions.
    Expire(HistoryScan),
    /// Nothing is to be taken away; this is the room in the file, and when the oldest execution was made.
    Rest(PageUsage, Option<Timestamp>),
}

impl RetentionSweeper {
    /// Does the next batch, if there is one.
    ///
    /// # Errors
    /// When the file cannot be read or written; what was left is there for the next pass.
    pub fn run_once(&mut self, app: &App) -> Result<SweepOutcome> {
        let (now, retention) = (app.clock.now(), app.config.retention);
        if !self.has_begun {
            self.begin(app, retention)?;
        }
        if let Some(after) = self.marking {
            return self.mark(app, retention, after);
        }
        self.start_round(now);
        match app.store.read_blocking(|read| self.look(read, retention, now))? {
            SweepStep::Erase(cue_key) => {
                app.store.write(move |tx| cue_deletion::erase(tx, cue_key)).wait()?;
            }
            SweepStep::Trim(histories) => self.trimming = trim(app, retention, histories)?,
            SweepStep::Expire(oldest) => self.aged = delete(app, &oldest)?,
            SweepStep::Rest(space, oldest) => {
                if !self.give_back(app, space)? {
                    let expires = oldest.and_then(|made| retention.expires(made));
                    return Ok(SweepOutcome::At([expires, self.next_round()].into_iter().flatten().min()));
                }
            }
        }
        Ok(SweepOutcome::Again)
    }

    /// Compares what is kept with what was kept before: histories that are too long now have no mark.
    fn begin(&mut self, app: &App, retention: Retention) -> Result<()> {
        let before = app.store.read_blocking(retention::runs_kept)?;
        let runs = retention.runs.map(i64::from);
        let keeps_less = runs.is_some_and(|runs| before.is_none_or(|before| runs < before));
        if keeps_less {
            self.marking = Some(0);
        } else if runs != before {
            app.store.write(move |tx| retention::set_runs_kept(tx, runs)).wait()?;
        }
        self.has_begun = true;
        Ok(())
    }

    fn start_round(&mut self, now: Timestamp) {
        if self.next_round().is_none_or(|next| next <= now) {
            (self.aged, self.round) = (0, Some(now));
        }
    }

    fn next_round(&self) -> Option<Timestamp> {
        self.round.and_then(|round| round.checked_add(ROUND).ok())
    }

    fn mark(&mut self, app: &App, retention: Retention, after: i64) -> Result<SweepOutcome> {
        let runs = retention.runs.map(i64::from);
        let is_last = app.store.write(move |tx| {
            retention::mark_all(tx, after, after + CUES, runs.unwrap_or(i64::MAX))?;
            let is_last = retention::last_cue(tx)? <= after + CUES;
            if is_last {
                retention::set_runs_kept(tx, runs)?;
            }
            Ok(is_last)
        });
        self.marking = if is_last.wait()? { None } else { Some(after + CUES) };
        Ok(SweepOutcome::Again)
    }

    fn look(&self, read: &ReadTx<'_>, retention: Retention, now: Timestamp) -> Result<SweepStep> {
        if let Some(cue_key) = cue_deletion::first(read)? {
            return Ok(SweepStep::Erase(cue_key));
        }
        let histories = self.look_at_marked(read, retention)?;
        if !histories.is_empty() {
            return Ok(SweepStep::Trim(histories));
        }
        let oldest = match retention.expired(now) {
            Some(expired) => retention::by_age(read, self.aged, expired)?,
            None => HistoryScan::default(),
        };
        Ok(match oldest.up_to {
            Some(_) => SweepStep::Expire(oldest),
            None => SweepStep::Rest(retention::space(read)?, oldest.young),
        })
    }

    /// Marked cues, as many as have a batch of executions to take away between them: where little is kept of each, a
    /// write of its own for every one of them would fall behind the runs that are made.
    fn look_at_marked(&self, read: &ReadTx<'_>, retention: Retention) -> Result<Vec<CueHistory>> {
        let (mut histories, mut found) = (Vec::new(), 0);
        for cue_key in retention::marked(read)? {
            let (_, after) = self.trimming.filter(|(cue, _)| *cue == cue_key).unwrap_or((cue_key, 0));
            let surplus = retention::surplus(read, cue_key, retention.runs)?.unwrap_or(0);
            let looked = retention::of_cue(read, cue_key, after, surplus)?;
            found += looked.over.len();
            let history =
                CueHistory { cue_key, over: looked.over, reached: looked.up_to.unwrap_or(after), surplus };
            let is_last = !history.is_whole() || found >= AT_A_TIME;
            histories.push(history);
            if is_last {
                break;
            }
        }
        Ok(histories)
    }

    /// Gives a few pages back, where many hold nothing; tells whether it did.
    fn give_back(&mut self, app: &App, space: PageUsage) -> Result<bool> {
        let slack = SLACK.max(space.pages / SLACK_PART);
        let has_given = self.gives_back;
        self.gives_back = !self.is_stiff && space.free > if has_given { slack } else { 2 * slack };
        if self.gives_back {
            self.is_stiff = app.store.write(retention::give_back).wait()? <= 0;
        } else if has_given && let Err(error) = app.store.checkpoint() {
            tracing::warn!("the file could not be shortened yet; that comes with later writes: {error}");
        }
        Ok(self.gives_back)
    }
}

impl CueHistory {
    /// Whether all of it was looked at that is too much.
    fn is_whole(&self) -> bool {
        self.reached >= self.surplus
    }
}

/// Takes away what may go of these histories, and the marks of those that are as they are to be; answers which is not
/// yet, and how far it is done.
fn trim(app: &App, retention: Retention, histories: Vec<CueHistory>) -> Result<Option<(i64, i64)>> {
    let write = app.store.write(move |tx| {
        let over: Vec<i64> = histories.iter().flat_map(|history| &history.over).copied().collect();
        let mut done = retention::delete(tx, &over)?;
        for history in &histories {
            if let Some(next) = history.over.get(done) {
                return Ok(Some((history.cue_key, next - 1)));
            }
            done -= history.over.len();
            let is_done = history.is_whole()
                && retention::unmark(tx, history.cue_key, history.reached, retention.runs)?;
            if !is_done {
                return Ok(Some((history.cue_key, history.reached)));
            }
        }
        Ok(None)
    });
    write.wait()
}

/// Takes away what may go of what was looked at; answers up to which execution that is done.
fn delete(app: &App, looked: &HistoryScan) -> Result<i64> {
    let (keys, up_to) = (looked.over.clone(), looked.up_to.unwrap_or(0));
    if keys.is_empty() {
        return Ok(up_to);
    }
    let write = app.store.write(move |tx| {
        let done = retention::delete(tx, &keys)?;
        Ok(if done < keys.len() { keys[done] - 1 } else { up_to })
    });
    write.wait()
}
