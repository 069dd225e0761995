//! The latest runs of a cue as letters: one of each run, newest last.

use jiff::Timestamp;

use crate::domain::execution::ExecutionStatus;

/// Most runs of a cue that are shown as letters: a strip of a table on a page has room for no more.
pub const MAX_RECENT_RUNS: u32 = 60;

/// The letter of an interval of missed runs.
const MISSED: char = 'm';

/// The letter of an execution: the first one of its status.
pub const fn letter_of(status: ExecutionStatus) -> char {
    match status {
        ExecutionStatus::Pending => 'p',
        ExecutionStatus::Delivering => 'd',
        ExecutionStatus::Retrying => 'r',
        ExecutionStatus::Success => 's',
        ExecutionStatus::Failed => 'f',
    }
}

/// The letters of the newest `count` runs, newest last. `executions` and the ends of the intervals of missed runs are
/// newest first; an interval is one letter, at the time of its last run.
pub fn letters(executions: &[(ExecutionStatus, Timestamp)], missed: &[Timestamp], count: usize) -> String {
    let (mut executions, mut missed) = (executions.iter().peekable(), missed.iter().peekable());
    let mut newest_first = Vec::with_capacity(count);
    while newest_first.len() < count {
        let is_missed = match (executions.peek(), missed.peek()) {
            (None, None) => break,
            (Some((_, run)), Some(missed)) => *missed > run,
            (None, Some(_)) => true,
            (Some(_), None) => false,
        };
        if is_missed {
            missed.next();
            newest_first.push(MISSED);
        } else {
            newest_first.extend(executions.next().map(|(status, _)| letter_of(*status)));
        }
    }
    newest_first.into_iter().rev().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn letters_are_newest_last_and_the_first_of_the_status() {
        let runs = ExecutionStatus::ALL.map(|status| (status, at(0)));
        assert_eq!(letters(&runs, &[], 60), "fsrdp");
        assert_eq!(letters(&runs, &[], 2), "dp");
        assert_eq!((letters(&runs, &[], 0), letters(&[], &[], 60)), (String::new(), String::new()));
        for status in ExecutionStatus::ALL {
            assert!(status.as_str().starts_with(letter_of(status)));
        }
    }

    #[test]
    fn an_interval_of_missed_runs_is_one_letter_at_its_end() {
        let runs = [(ExecutionStatus::Success, at(9)), (ExecutionStatus::Failed, at(3))];
        assert_eq!(letters(&runs, &[at(10), at(5), at(1)], 60), "mfmsm");
        assert_eq!(letters(&runs, &[at(10), at(5), at(1)], 3), "msm");
        assert_eq!(letters(&runs, &[at(9)], 60), "fms");
        assert_eq!(letters(&[], &[at(1), at(0)], 1), "m");
    }
}
