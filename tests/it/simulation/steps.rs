//! The steps of a simulation: a list that a seed determines before the run, so that a step can be left out without a
//! change to the others.

use std::fmt;

use crate::support::*;

/// One thing that happens. What it does in detail follows from its salt and the state that it meets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// Its place in the list of the seed.
    pub number: usize,
    pub action: Action,
    pub salt: u64,
    /// The disk refuses this commit of the step, counted from 1; 0 is none.
    pub failing_commit: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    // Users.
    Create,
    Patch,
    Pause,
    Resume,
    Delete,
    Fire,
    FireLater,
    Replay,
    Retry,
    Cancel,
    PauseAll,
    ResumeAll,
    Repeat,
    RotateSecret,
    RotateKey,
    AddKey,
    ChangePlan,
    Read,
    Verify,
    Reopen,
    Evidence,
    // Workers.
    Claim,
    ClaimNext,
    Extend,
    Heartbeat,
    RemoveWorker,
    Report,
    // The clock.
    Advance,
    AdvanceToRun,
    Jump,
    SetBack,
    // The engine.
    Pass,
    Schedule,
    Promote,
    Reap,
    Deliver,
    Notify,
    Sweep,
    // The process.
    Stop,
    Crash,
}

/// The actions with the weights of their frequency.
const WEIGHTS: [(Action, u64); 40] = [
    (Action::Create, 8),
    (Action::Patch, 5),
    (Action::Pause, 3),
    (Action::Resume, 4),
    (Action::Delete, 2),
    (Action::Fire, 4),
    (Action::FireLater, 3),
    (Action::Replay, 3),
    (Action::Retry, 2),
    (Action::Cancel, 2),
    (Action::PauseAll, 1),
    (Action::ResumeAll, 1),
    (Action::Repeat, 3),
    (Action::RotateSecret, 1),
    (Action::RotateKey, 1),
    (Action::AddKey, 1),
    (Action::ChangePlan, 2),
    (Action::Read, 4),
    (Action::Verify, 2),
    (Action::Reopen, 1),
    (Action::Evidence, 2),
    (Action::Claim, 3),
    (Action::ClaimNext, 5),
    (Action::Extend, 2),
    (Action::Heartbeat, 2),
    (Action::RemoveWorker, 1),
    (Action::Report, 6),
    (Action::Advance, 8),
    (Action::AdvanceToRun, 8),
    (Action::Jump, 2),
    (Action::SetBack, 1),
    (Action::Pass, 14),
    (Action::Schedule, 4),
    (Action::Promote, 2),
    (Action::Reap, 2),
    (Action::Deliver, 8),
    (Action::Notify, 2),
    (Action::Sweep, 2),
    (Action::Stop, 1),
    (Action::Crash, 1),
];

/// One step in this many meets a disk that refuses a commit.
const FAILING_COMMITS: u64 = 12;

/// The steps of a seed.
pub fn generate(seed: u64, count: usize) -> Vec<Step> {
    let mut random = Random::new(seed);
    (0..count)
        .map(|number| {
            let action = pick(&mut random);
            let is_refused = random.below(FAILING_COMMITS) == 0;
            let nth = 1 + random.below(3);
            Step {
                number,
                action,
                salt: random.next(),
                failing_commit: if is_refused { nth } else { 0 },
            }
        })
        .collect()
}

fn pick(random: &mut Random) -> Action {
    let mut left = random.below(WEIGHTS.iter().map(|(_, weight)| weight).sum());
    for (action, weight) in WEIGHTS {
        if left < weight {
            return action;
        }
        left -= weight;
    }
    Action::Pass
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "step {}: {:?}", self.number, self.action)?;
        match self.failing_commit {
            0 => Ok(()),
            nth => write!(f, ", commit {nth} fails"),
        }
    }
}
