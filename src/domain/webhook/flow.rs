//! Flows: the attempts of all cues of an account with one key keep within a number at once, and within a rate (contract
//! §4.16).

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use crate::domain::time::{saturating_add, saturating_sub};

/// As long as the longest host and port.
pub const MAX_KEY: usize = 260;
pub const MAX_PARALLELISM: i64 = 64;
pub const MAX_PER_MINUTE: i64 = 6_000;

/// At least one of the limits is set. Serializes to the JSON of the API.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Flow {
    pub key: String,
    pub parallelism: Option<u32>,
    pub per_minute: Option<u32>,
}

impl Flow {
    /// The fairness key of its executions: below 0, so that it is never that of a host.
    pub fn destination_hash(&self) -> i64 {
        -1 - key_hash(&self.key)
    }
}

/// From 0.
pub fn key_hash(key: &str) -> i64 {
    // FNV-1a.
    let hash = key.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    });
    // Folded to 32 bits, because it is part of an index entry of every queued execution.
    i64::from((hash >> 32) as u32 ^ hash as u32)
}

pub fn is_flow(destination: i64) -> bool {
    destination < 0
}

/// The state of a flow: the strictest limits of its cues, and the planned start of its latest attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FlowState {
    pub parallelism: Option<u32>,
    pub per_minute: Option<u32>,
    pub last_at: Option<Timestamp>,
}

/// A start that comes late, because the scheduler woke up late, lets the next ones come earlier by up to this time: 0.5 %
/// of a minute, so that no minute has 1 % more than the rate.
const MAX_CATCH_UP: SignedDuration = SignedDuration::from_millis(300);

/// Slower flows do not catch up: their next starts would come too close to each other.
const SLOW_INTERVAL: SignedDuration = SignedDuration::from_millis(250);

impl FlowState {
    /// The instant from which the rate allows another attempt.
    pub fn turn(&self, now: Timestamp) -> Option<Timestamp> {
        let interval = self.interval()?;
        // A start in the future comes from a clock that was set back since.
        self.last_at.filter(|last| *last <= now).map(|last| saturating_add(last, interval))
    }

    pub fn has_room(&self, under_way: usize) -> bool {
        self.parallelism.is_none_or(|most| (under_way as u64) < u64::from(most))
    }

    /// Counts an attempt that starts at `now`.
    pub fn start(&mut self, now: Timestamp) {
        let catch_up = match self.interval() {
            Some(interval) if interval < SLOW_INTERVAL => MAX_CATCH_UP,
            _ => SignedDuration::ZERO,
        };
        let earliest = saturating_sub(now, catch_up);
        self.last_at = Some(self.turn(now).map_or(earliest, |turn| turn.max(earliest)).min(now));
    }

    fn interval(&self) -> Option<SignedDuration> {
        self.per_minute
            .map(|per_minute| SignedDuration::from_micros(60_000_000 / i64::from(per_minute)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn starts_within(seconds: i64, per_minute: u32, wakes_late_by: SignedDuration) -> usize {
        let begin = Timestamp::UNIX_EPOCH;
        let end = saturating_add(begin, SignedDuration::from_secs(seconds));
        let mut flow = FlowState { per_minute: Some(per_minute), ..FlowState::default() };
        let (mut now, mut starts) = (begin, 0);
        while now < end {
            match flow.turn(now).filter(|turn| *turn > now) {
                Some(turn) => now = saturating_add(turn, wakes_late_by),
                None => {
                    flow.start(now);
                    starts += 1;
                }
            }
        }
        starts
    }

    #[test]
    fn a_flow_keeps_its_rate_within_a_hundredth_also_if_it_wakes_up_late() {
        for late in [0, 1, 3].map(SignedDuration::from_millis) {
            for per_minute in [1, 10, 60, 240, 600, 6_000] {
                let starts = starts_within(60, per_minute, late);
                let most = per_minute as usize + 1 + per_minute as usize / 100;
                let least = per_minute as usize - per_minute as usize / 80;
                assert!(
                    (least..=most).contains(&starts),
                    "{per_minute} a minute, {late:?} late: {starts}"
                );
            }
        }
    }

    #[test]
    fn a_clock_that_was_set_back_does_not_hold_up_a_flow() {
        let now = Timestamp::UNIX_EPOCH;
        let later = saturating_add(now, SignedDuration::from_hours(1));
        let mut flow = FlowState { per_minute: Some(60), last_at: Some(later), parallelism: None };
        assert_eq!(flow.turn(now), None);
        flow.start(now);
        assert_eq!(flow.turn(now), Some(saturating_add(now, SignedDuration::from_secs(1))));
    }
}
