//! The responses without an end of one connection, and whether their client still reads.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use crate::config::HttpLimits;
use crate::http::server::stream_executor::StreamReset;

/// The streams of a connection by their numbers.
#[derive(Debug, Default)]
pub struct OpenStreams {
    streams: BTreeMap<u64, OpenStream>,
    next: u64,
}

#[derive(Debug)]
struct OpenStream {
    progress: Progress,
    /// Ends this stream alone; `None` on HTTP/1.1, where its connection is closed.
    reset: Option<StreamReset>,
}

#[derive(Debug, Clone, Copy)]
enum Progress {
    /// Everything was written, and the next part was asked for. It comes within a beat.
    Asked(Instant),
    /// Parts wait to be written.
    Unwritten { since: Instant, parts: usize },
}

impl OpenStreams {
    /// Adds the stream of the request that runs, and returns its number.
    pub fn begin(&mut self) -> u64 {
        self.next += 1;
        let stream = OpenStream { progress: Progress::Asked(Instant::now()), reset: StreamReset::current() };
        self.streams.insert(self.next, stream);
        self.next
    }

    pub fn end(&mut self, number: u64) {
        self.streams.remove(&number);
    }

    /// Records that hyper asks for the next part: HTTP/2 asks only while the window of the peer permits one.
    pub fn asked(&mut self, number: u64) {
        if let Some(OpenStream { progress: progress @ Progress::Asked(_), .. }) =
            self.streams.get_mut(&number)
        {
            *progress = Progress::Asked(Instant::now());
        }
    }

    /// Records that hyper has got a part.
    pub fn part_taken(&mut self, number: u64) {
        if let Some(OpenStream { progress, .. }) = self.streams.get_mut(&number) {
            *progress = match *progress {
                Progress::Asked(_) => Progress::Unwritten { since: Instant::now(), parts: 1 },
                Progress::Unwritten { since, parts } => Progress::Unwritten { since, parts: parts + 1 },
            };
        }
    }

    /// Records that a part is written.
    pub fn part_written(&mut self, number: u64) {
        if let Some(OpenStream { progress, .. }) = self.streams.get_mut(&number) {
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
        self.streams.values().map(|stream| stream.progress.stuck_at(limits)).min()
    }

    /// Ends the stuck streams that can end alone. Returns `true` if no other one is stuck.
    pub fn reset_stuck(&mut self, limits: &HttpLimits) -> bool {
        let now = Instant::now();
        self.streams.retain(|_, stream| match &stream.reset {
            Some(reset) if stream.progress.stuck_at(limits) <= now => {
                reset.reset();
                false
            }
            _ => true,
        });
        self.stuck_at(limits).is_none_or(|stuck_at| stuck_at > now)
    }
}

impl Progress {
    fn stuck_at(self, limits: &HttpLimits) -> Instant {
        match self {
            Self::Asked(at) => at + limits.beat_interval + beat_delay(limits),
            Self::Unwritten { since, .. } => since + limits.response_time,
        }
    }
}

/// A beat begins with a check of the key, which a busy database delays.
fn beat_delay(limits: &HttpLimits) -> Duration {
    limits.response_time
}
