//! The rules by which a command is terminated, is killed, and its run is over.

use std::time::Duration;

/// Between SIGTERM and SIGKILL.
const TERM_PAUSE: Duration = Duration::from_secs(10);

/// The time in which output is read after the command has ended. A process that it left behind may hold the pipes for ever.
const DRAIN: Duration = Duration::from_secs(2);

/// Between two checks whether a terminated group still has processes: the system has no notification for that.
const GROUP_POLL: Duration = Duration::from_millis(50);

/// The reason why a command is ended before it ends by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    TimedOut,
    /// The worker stops.
    Stopped,
    /// The execution is no longer this worker's.
    Lost,
}

/// The observed state of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Observation {
    pub now: Duration,
    /// The reason why it is to end.
    pub requested: Option<Cause>,
    /// It is not to be waited for.
    pub is_urgent: bool,
    pub has_exited: bool,
    /// Its output has not ended.
    pub is_open: bool,
    /// Processes of its group exist. Only checked after the exit of one that was ended.
    pub has_group: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Wait until something happens, or until this instant.
    Wait(Option<Duration>),
    /// Send SIGTERM to the group.
    Terminate,
    /// Send SIGKILL to the group.
    Kill,
    /// The run is over.
    Finish,
}

#[derive(Debug)]
pub struct Life {
    deadline: Duration,
    cause: Option<Cause>,
    kill_at: Duration,
    is_killed: bool,
    exited_at: Option<Duration>,
}

impl Life {
    #[must_use]
    pub fn new(now: Duration, timeout: Duration) -> Self {
        let deadline = now.saturating_add(timeout);
        Self { deadline, cause: None, kill_at: Duration::MAX, is_killed: false, exited_at: None }
    }

    /// The reason why it is ended, if it did not end by itself.
    #[must_use]
    pub fn cause(&self) -> Option<Cause> {
        self.cause
    }

    /// The next step.
    pub fn next(&mut self, observed: Observation) -> Action {
        let now = observed.now;
        if observed.has_exited {
            let drained_at = *self.exited_at.get_or_insert(now) + DRAIN;
            return self.after_exit(observed, drained_at);
        }
        let Some(_) = self.cause else {
            self.cause = observed.requested.or((now >= self.deadline).then_some(Cause::TimedOut));
            if self.cause.is_none() {
                return Action::Wait(Some(self.deadline));
            }
            self.kill_at = now + TERM_PAUSE;
            return Action::Terminate;
        };
        if self.is_killed {
            return Action::Wait(None);
        }
        if now < self.kill_at && !observed.is_urgent {
            return Action::Wait(Some(self.kill_at));
        }
        self.is_killed = true;
        Action::Kill
    }

    fn after_exit(&mut self, observed: Observation, drained_at: Duration) -> Action {
        let now = observed.now;
        // Processes that a command leaves behind by itself stay; those of a command that was ended end with it.
        if self.cause.is_some() && !self.is_killed && observed.has_group {
            if now < self.kill_at && !observed.is_urgent {
                return Action::Wait(Some((now + GROUP_POLL).min(self.kill_at)));
            }
            self.is_killed = true;
            self.exited_at = Some(now);
            return Action::Kill;
        }
        if !observed.is_open || now >= drained_at { Action::Finish } else { Action::Wait(Some(drained_at)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(seconds: u64) -> Observation {
        let now = Duration::from_secs(seconds);
        Observation {
            now,
            requested: None,
            is_urgent: false,
            has_exited: false,
            is_open: true,
            has_group: true,
        }
    }

    fn wait(seconds: u64) -> Action {
        Action::Wait(Some(Duration::from_secs(seconds)))
    }

    fn life() -> Life {
        Life::new(Duration::from_secs(100), Duration::from_secs(60))
    }

    #[test]
    fn a_command_that_ends_by_itself_finishes_with_its_output() {
        let mut life = life();
        assert_eq!(life.next(at(100)), wait(160));
        assert_eq!(life.next(Observation { has_exited: true, ..at(110) }), wait(112));
        assert_eq!(life.next(Observation { has_exited: true, is_open: false, ..at(111) }), Action::Finish);
        assert_eq!(life.cause(), None);
    }

    #[test]
    fn a_process_that_holds_the_output_open_is_waited_for_two_seconds() {
        let mut life = life();
        assert_eq!(life.next(Observation { has_exited: true, ..at(110) }), wait(112));
        assert_eq!(life.next(Observation { has_exited: true, ..at(112) }), Action::Finish);
    }

    #[test]
    fn a_command_that_ignores_sigterm_is_killed_after_ten_seconds() {
        let mut life = life();
        assert_eq!(life.next(at(160)), Action::Terminate);
        assert_eq!(life.next(at(161)), wait(170));
        assert_eq!(life.next(at(170)), Action::Kill);
        assert_eq!(life.next(at(171)), Action::Wait(None));
        assert_eq!(life.next(Observation { has_exited: true, is_open: false, ..at(172) }), Action::Finish);
        assert_eq!(life.cause(), Some(Cause::TimedOut));
    }

    #[test]
    fn what_is_left_of_the_group_has_its_ten_seconds_too() {
        let mut life = life();
        let left = |seconds| Observation { has_exited: true, is_open: false, ..at(seconds) };
        assert_eq!(life.next(Observation { requested: Some(Cause::Lost), ..at(110) }), Action::Terminate);
        assert_eq!(life.next(left(111)), Action::Wait(Some(Duration::from_millis(111_050))));
        assert_eq!(life.next(left(120)), Action::Kill);
        assert_eq!(life.next(left(120)), Action::Finish);
        assert_eq!(life.cause(), Some(Cause::Lost));
    }

    #[test]
    fn an_empty_group_is_not_waited_for() {
        let mut life = life();
        assert_eq!(life.next(Observation { requested: Some(Cause::Stopped), ..at(110) }), Action::Terminate);
        let gone = Observation { has_exited: true, is_open: false, has_group: false, ..at(111) };
        assert_eq!(life.next(gone), Action::Finish);
    }

    #[test]
    fn an_urgent_end_is_no_later_than_its_signal() {
        let mut life = life();
        let urgent = Observation { requested: Some(Cause::Stopped), is_urgent: true, ..at(110) };
        assert_eq!([life.next(urgent), life.next(urgent)], [Action::Terminate, Action::Kill]);
    }
}
