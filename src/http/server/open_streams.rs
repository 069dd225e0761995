//! The responses without an end of one connection, and whether their client still reads.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use crate::config::HttpLimits;

/// The streams of a connection by their numbers.
#[derive(Debug, Default)]
pub struct OpenStreams {
    streams: BTreeMap<u64, Progress>,
    next: u64,
}

#[derive(Debug, Clone, Copy)]
enum Progress {
    /// Everything was written, and the next part was asked for. It comes within a beat.
    Asked(Instant),
    /// Parts wait to be written.
    Unwritten { since: Instant, parts: usize },
}

impl OpenStreams {
    /// Adds a stream and returns its number.
    pub fn begin(&mut self) -> u64 {
        self.next += 1;
        self.streams.insert(self.next, Progress::Asked(Instant::now()));
        self.next
    }

    pub fn end(&mut self, number: u64) {
        self.streams.remove(&number);
    }

    /// Records that hyper asks for the next part: HTTP/2 asks only while the window of the peer permits one.
    pub fn asked(&mut self, number: u64) {
        if let Some(progress @ Progress::Asked(_)) = self.streams.get_mut(&number) {
            *progress = Progress::Asked(Instant::now());
        }
    }

    /// Records that hyper has got a part.
    pub fn part_taken(&mut self, number: u64) {
        if let Some(progress) = self.streams.get_mut(&number) {
            *progress = match *progress {
                Progress::Asked(_) => Progress::Unwritten { since: Instant::now(), parts: 1 },
                Progress::Unwritten { since, parts } => Progress::Unwritten { since, parts: parts + 1 },
            };
        }
    }

    /// Records that a part is written.
    pub fn part_written(&mut self, number: u64) {
        if let Some(progress) = self.streams.get_mut(&number) {
            *progress = match *progress {
                Progress::Unwritten { parts, .. } if parts > 1 => {
                    Progress::Unwritten { since: Instant::now(), parts: parts - 1 }
                }
                _ => Progress::Asked(Instant::now()),
            };
        }
    }

    /// The time at which a client that reads would have taken something; `None` without a stream.
    pub fn stuck_at(&self, limits: &HttpLimits) -> Option<Instant> {
        let stuck_at = |progress: &Progress| match progress {
            Progress::Asked(at) => *at + limits.beat_interval + beat_delay(limits),
            Progress::Unwritten { since, .. } => *since + limits.response_time,
        };
        self.streams.values().map(stuck_at).min()
    }
}

/// A beat begins with a check of the key, which a busy database delays.
fn beat_delay(limits: &HttpLimits) -> Duration {
    limits.response_time
}
