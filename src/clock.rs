//! The only reader of the time and the only sleeper: the system's clock, or a test clock that is moved by hand.
//!
//! Due is decided on the wall clock, waiting happens on the monotonic one: nothing here sleeps longer than
//! [`MAX_WAIT`] before the wall clock is looked at again, since a machine without a clock battery jumps.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use tokio::sync::watch;

/// The longest time that a thread waits before it looks at the wall clock again.
pub const MAX_WAIT: Duration = Duration::from_secs(5);

/// The program's time. Instants are whole milliseconds, rounded down, so that nothing is ever early.
#[derive(Debug)]
pub struct Clock {
    source: ClockSource,
    started: Instant,
    started_at: Timestamp,
}

#[derive(Debug)]
enum ClockSource {
    System,
    Manual { now: Mutex<Timestamp>, on_purpose: bool },
}

impl Clock {
    /// The machine's own clock.
    #[must_use]
    pub fn system() -> Self {
        Self::starting(ClockSource::System)
    }

    /// A clock that stands still at `start`, or at the present when none is given, until [`Clock::set`].
    #[must_use]
    pub fn test(start: Option<Timestamp>) -> Self {
        Self::by_hand(start.unwrap_or_else(Timestamp::now), true)
    }

    /// A clock that is set by hand as a machine's is by its operator or by NTP: its moves are jumps.
    #[must_use]
    pub fn manual(start: Timestamp) -> Self {
        Self::by_hand(start, false)
    }

    fn by_hand(start: Timestamp, on_purpose: bool) -> Self {
        let now = Mutex::new(whole_millisecond(start));
        Self::starting(ClockSource::Manual { now, on_purpose })
    }

    fn starting(source: ClockSource) -> Self {
        Self { source, started: Instant::now(), started_at: Timestamp::now() }
    }

    /// The present instant.
    pub fn now(&self) -> Timestamp {
        whole_millisecond(self.now_precise())
    }

    /// Time since the program started, which no step of the wall clock disturbs. It runs under a test clock too.
    pub fn monotonic(&self) -> Duration {
        self.started.elapsed()
    }

    /// When the program started, as the machine's clock then said, under a test clock too.
    pub fn started_at(&self) -> Timestamp {
        self.started_at
    }

    /// Whether this is a test clock: what it passes when it is moved falls due in order.
    pub fn is_test(&self) -> bool {
        matches!(self.source, ClockSource::Manual { on_purpose: true, .. })
    }

    /// Moves a clock that is moved by hand to `to`; the system's clock is left alone.
    pub fn set(&self, to: Timestamp) {
        if let ClockSource::Manual { now, .. } = &self.source {
            *lock(now) = whole_millisecond(to);
        }
    }

    /// Waits until `notifier` has rung since `seen`, `deadline` has come, or [`MAX_WAIT`] is over.
    ///
    /// On a test clock a deadline never comes by itself: whoever moves the clock rings.
    pub fn wait(&self, notifier: &Notifier, seen: u64, deadline: Option<Timestamp>) {
        notifier.wait(seen, self.time_to(deadline).min(MAX_WAIT));
    }

    /// Pauses the calling thread for `pause`, for a retry after a fault of the machine.
    pub fn sleep(&self, pause: Duration) {
        std::thread::sleep(pause.min(MAX_WAIT));
    }

    fn time_to(&self, deadline: Option<Timestamp>) -> Duration {
        match (deadline, &self.source) {
            (Some(deadline), ClockSource::System) => {
                // The exact present, so that a deadline is not missed by the fraction that `now` drops.
                Duration::try_from(deadline.duration_since(self.now_precise())).unwrap_or(Duration::ZERO)
            }
            _ => MAX_WAIT,
        }
    }

    /// The present instant as exactly as the machine tells it, for measuring: everything else works with
    /// [`Clock::now`].
    pub fn now_precise(&self) -> Timestamp {
        match &self.source {
            ClockSource::System => Timestamp::now(),
            ClockSource::Manual { now, .. } => *lock(now),
        }
    }
}

/// `at` without what is finer than a millisecond, rounded towards the past.
#[must_use]
pub fn whole_millisecond(at: Timestamp) -> Timestamp {
    let below = at.as_nanosecond().rem_euclid(1_000_000);
    // Only the very first representable instants could underflow; they stay as they are.
    at.checked_sub(SignedDuration::from_nanos(i64::try_from(below).unwrap_or(0))).unwrap_or(at)
}

/// A counter that threads and tasks wait on. Take [`Notifier::generation`] before looking at the work that it announces, so
/// that a ring in between is never lost.
#[derive(Debug)]
pub struct Notifier {
    count: Mutex<u64>,
    changed: Condvar,
    listeners: watch::Sender<u64>,
}

impl Default for Notifier {
    fn default() -> Self {
        Self { count: Mutex::new(0), changed: Condvar::new(), listeners: watch::Sender::new(0) }
    }
}

impl Notifier {
    /// How often the bell has rung.
    pub fn generation(&self) -> u64 {
        *lock(&self.count)
    }

    /// Wakes everyone who waits.
    pub fn notify(&self) {
        let mut count = lock(&self.count);
        *count += 1;
        self.changed.notify_all();
        self.listeners.send_replace(*count);
    }

    /// For tasks: a receiver that changes with every ring from now on.
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.listeners.subscribe()
    }

    fn wait(&self, seen: u64, longest: Duration) {
        let count = lock(&self.count);
        // A time-out is as good a reason to return as a ring: the caller looks again either way.
        drop(self.changed.wait_timeout_while(count, longest, |count| *count == seen));
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing that can panic runs under these locks, so a poisoned one still guards a sound value.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn now_is_a_whole_millisecond_and_never_early() {
        let at: Timestamp = "2026-01-01T00:00:00.0019Z".parse().unwrap();
        assert_eq!(Clock::test(Some(at)).now().to_string(), "2026-01-01T00:00:00.001Z");
    }

    #[test]
    fn rounding_goes_towards_the_past_before_1970_too() {
        let at: Timestamp = "1969-12-31T23:59:59.9995Z".parse().unwrap();
        assert_eq!(whole_millisecond(at).to_string(), "1969-12-31T23:59:59.999Z");
    }

    #[test]
    fn a_notification_between_read_and_wait_is_not_lost() {
        let (clock, notifier) = (Clock::system(), Notifier::default());
        let seen = notifier.generation();
        notifier.notify();
        let before = clock.monotonic();
        clock.wait(&notifier, seen, None);
        assert!(clock.monotonic() - before < MAX_WAIT);
    }

    #[test]
    fn a_wait_ends_at_its_deadline_and_not_before() {
        let (clock, notifier) = (Clock::system(), Notifier::default());
        let deadline = clock.now() + SignedDuration::from_millis(20);
        clock.wait(&notifier, notifier.generation(), Some(deadline));
        assert!(clock.now() >= deadline);
    }
}
