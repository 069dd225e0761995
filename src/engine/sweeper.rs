//! Takes away what is kept no longer: what deleted cues left behind, the history beyond `--retain`, the room that both
//! leave in the file. One small batch a pass, so that nobody waits for it; where there is nothing to take away nothing
//! is written.

use jiff::{SignedDuration, Timestamp};

use crate::app::App;
use crate::domain::retention::Retention;
use crate::error::Result;
use crate::store::retention::{self, Looked, Space};
use crate::store::{Read, removal};

/// How often what was too young or not over, when its turn came, is looked at again.
const ROUND: SignedDuration = SignedDuration::from_hours(24);

/// Free pages that are left in the file for what comes next, at least, and as a part of all pages.
const SLACK: i64 = 4_096;
const SLACK_PART: i64 = 16;

/// Cues looked at in one batch where less is kept than before.
const CUES: i64 = 2_000;

/// The sweeper between two passes.
#[derive(Debug, Default)]
pub struct Sweeper {
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
pub enum Next {
    /// There may be more to do at once.
    Again,
    /// There is nothing to do until then.
    At(Option<Timestamp>),
}

/// The first thing that there is to do.
enum Work {
    /// What this cue has left behind is to be taken away.
    Erase(i64),
    /// The history of this cue may have grown too long.
    Trim(i64),
    /// These are the oldest executions.
    Expire(Looked),
    /// Nothing is to be taken away; this is the room in the file, and when the oldest execution was made.
    Rest(Space, Option<Timestamp>),
}

impl Sweeper {
    /// Does the next batch, if there is one.
    ///
    /// # Errors
    /// When the file cannot be read or written; what was left is there for the next pass.
    pub fn pass(&mut self, app: &App) -> Result<Next> {
        let (now, retention) = (app.clock.now(), app.settings.retention);
        if !self.has_begun {
            self.begin(app, retention)?;
        }
        if let Some(after) = self.marking {
            return self.mark(app, retention, after);
        }
        self.start_round(now);
        let (after, expired) = (self.aged, retention.expired(now));
        match app.store.look(|read| look(read, after, expired))? {
            Work::Erase(cue_key) => {
                app.store.write(move |tx| removal::erase(tx, cue_key)).wait()?;
            }
            Work::Trim(cue_key) => self.trim(app, retention, cue_key)?,
            Work::Expire(oldest) => self.aged = delete(app, &oldest)?,
            Work::Rest(space, oldest) => {
                if !self.give_back(app, space)? {
                    let expires = oldest.and_then(|made| retention.expires(made));
                    return Ok(Next::At([expires, self.next_round()].into_iter().flatten().min()));
                }
            }
        }
        Ok(Next::Again)
    }

    /// Compares what is kept with what was kept before: histories that are too long now have no mark.
    fn begin(&mut self, app: &App, retention: Retention) -> Result<()> {
        let before = app.store.look(retention::runs_kept)?;
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

    fn mark(&mut self, app: &App, retention: Retention, after: i64) -> Result<Next> {
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
        Ok(Next::Again)
    }

    fn trim(&mut self, app: &App, retention: Retention, cue_key: i64) -> Result<()> {
        let (_, after) = self.trimming.filter(|(cue, _)| *cue == cue_key).unwrap_or((cue_key, 0));
        let runs = retention.runs;
        let (looked, surplus) = app.store.look(|read| {
            let surplus = retention::surplus(read, cue_key, runs)?.unwrap_or(0);
            Ok((retention::of_cue(read, cue_key, after, surplus)?, surplus))
        })?;
        if looked.up_to.is_some() {
            let reached = delete(app, &looked)?;
            self.trimming = Some((cue_key, reached));
        } else {
            let looked_up_to = surplus.max(after);
            let is_done =
                app.store.write(move |tx| retention::unmark(tx, cue_key, looked_up_to, runs)).wait()?;
            self.trimming = if is_done { None } else { Some((cue_key, after)) };
        }
        Ok(())
    }

    /// Gives a few pages back, where many hold nothing; tells whether it did.
    fn give_back(&mut self, app: &App, space: Space) -> Result<bool> {
        let slack = SLACK.max(space.pages / SLACK_PART);
        let has_given = self.gives_back;
        self.gives_back = !self.is_stiff && space.free > if has_given { slack } else { 2 * slack };
        if self.gives_back {
            self.is_stiff = app.store.write(retention::give_back).wait()? <= 0;
        } else if has_given && let Err(error) = app.store.put_log_back() {
            tracing::warn!("the file could not be shortened yet; that comes with later writes: {error}");
        }
        Ok(self.gives_back)
    }
}

fn look(read: &Read<'_>, after: i64, expired: Option<Timestamp>) -> Result<Work> {
    if let Some(cue_key) = removal::first(read)? {
        return Ok(Work::Erase(cue_key));
    }
    if let Some(cue_key) = retention::first_marked(read)? {
        return Ok(Work::Trim(cue_key));
    }
    let oldest = expired.map_or(Ok(Looked::default()), |expired| retention::by_age(read, after, expired))?;
    Ok(match oldest.up_to {
        Some(_) => Work::Expire(oldest),
        None => Work::Rest(retention::space(read)?, oldest.young),
    })
}

/// Takes away what may go of what was looked at; answers up to which execution that is done.
fn delete(app: &App, looked: &Looked) -> Result<i64> {
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
