//! The only module that reads the time or sleeps: the system's clock, or a test clock that is advanced by request.
//!
//! Due work is decided on the wall clock; waiting uses the monotonic one. A thread waits at most [`MAX_WAIT`] before it
//! reads the wall clock again, because a machine without a battery-backed clock jumps. A jump far ahead is not believed
//! at once, here and not in the scheduler: no date in the file, signature or limit comes from it.

use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use rustix::time::{ClockId, clock_gettime};
use tokio::sync::watch;

use crate::domain::schedule::wall_clock::WallClock;
use crate::system::locks::{Condvar, Mutex};

/// The longest time that a thread waits before it reads the wall clock again. It bounds how late a run can be after the
/// clock was set forward; shorter values would wake an idle machine more often.
pub const MAX_WAIT: Duration = Duration::from_secs(5);

/// `systemd-timesyncd` sets the time of this file to that of the clock whenever it has synchronized it.
const SYNCHRONIZED: &str = "/run/systemd/timesync/synchronized";

/// The program's time. Instants are whole milliseconds, rounded down, so that no run is early.
#[derive(Debug)]
pub struct Clock {
    source: ClockSource,
    wall_clock: Mutex<WallClock>,
    started: Instant,
    started_at: Timestamp,
}

#[derive(Debug)]
enum ClockSource {
    System,
    Manual { time: Mutex<ManualTime>, is_test: bool },
}

#[derive(Debug, Clone, Copy)]
struct ManualTime {
    wall: Timestamp,
    elapsed: Duration,
}

/// The time since the boot of a machine with a manual clock, at the start of the program: its clock was set long ago.
const MANUAL_UPTIME: Duration = Duration::from_secs(3_600);

impl Clock {
    pub fn system() -> Self {
        Self::with_source(ClockSource::System)
    }

    /// A clock that stays at `start`, or at the current time, until [`Clock::set`]. Moving it forward fires the runs in
    /// between, in order (contract §10).
    pub fn test(start: Option<Timestamp>) -> Self {
        Self::standing_at(start.unwrap_or_else(Timestamp::now), true)
    }

    /// A clock that stands still and whose changes count as jumps, like those of an operator or of NTP. Time passes by
    /// [`Clock::elapse`].
    pub fn manual(start: Timestamp) -> Self {
        Self::standing_at(start, false)
    }

    fn standing_at(start: Timestamp, is_test: bool) -> Self {
        let time = ManualTime { wall: whole_millisecond(start), elapsed: Duration::ZERO };
        Self::with_source(ClockSource::Manual { time: Mutex::new(time), is_test })
    }

    fn with_source(source: ClockSource) -> Self {
        let clock = Self {
            source,
            wall_clock: Mutex::default(),
            started: Instant::now(),
            started_at: Timestamp::now(),
        };
        // What the clock shows at the start is believed.
        clock.accept();
        clock
    }

    pub fn now(&self) -> Timestamp {
        whole_millisecond(self.now_precise())
    }

    /// As [`Clock::now`], but under a test clock the real time passes too. For the limits on people: one that a
    /// standing clock never ends would lock a developer out of the page.
    pub fn now_moving(&self) -> Timestamp {
        let now = self.now();
        if !self.is_test() {
            return now;
        }
        whole_millisecond(now.checked_add(self.monotonic()).unwrap_or(now))
    }

    /// Time since the program started, independent of changes of the wall clock. It advances under a test clock too.
    pub fn monotonic(&self) -> Duration {
        let elapsed = match &self.source {
            ClockSource::System => Duration::ZERO,
            ClockSource::Manual { time, .. } => time.lock().elapsed,
        };
        self.started.elapsed() + elapsed
    }

    /// The start of the program by the system's clock, under a test clock too.
    pub fn started_at(&self) -> Timestamp {
        self.started_at
    }

    pub fn is_test(&self) -> bool {
        matches!(self.source, ClockSource::Manual { is_test: true, .. })
    }

    /// Sets a test or manual clock to `to`. The system's clock is never set.
    pub fn set(&self, to: Timestamp) {
        if let ClockSource::Manual { time, .. } = &self.source {
            time.lock().wall = whole_millisecond(to);
        }
    }

    /// Lets time pass on a test or manual clock, whatever it shows.
    pub fn elapse(&self, span: Duration) {
        if let ClockSource::Manual { time, .. } = &self.source {
            let mut time = time.lock();
            time.wall = whole_millisecond(time.wall.checked_add(span).unwrap_or(time.wall));
            time.elapsed += span;
        }
    }

    /// Sets the newest instant that the file knows. While the clock is behind it, a jump ahead is believed at once.
    pub fn set_last_seen(&self, last_seen: Timestamp) {
        self.wall_clock.lock().set_newest(last_seen);
    }

    /// Believes what the system's clock shows, as at the start.
    pub fn accept(&self) {
        let (wall, uptime) = self.system_time();
        let mut wall_clock = self.wall_clock.lock();
        wall_clock.set_newest(wall);
        wall_clock.believe(wall, uptime);
    }

    /// What the system's clock shows while that is not believed.
    pub fn doubted(&self) -> Option<Timestamp> {
        self.now_precise();
        self.wall_clock.lock().doubted()
    }

    /// Waits until `notifier` is past generation `seen`, `deadline` is reached, or [`MAX_WAIT`] is over.
    ///
    /// A test clock never reaches a deadline by itself: whoever sets it notifies.
    pub fn wait(&self, notifier: &Notifier, seen: u64, deadline: Option<Timestamp>) {
        notifier.wait(seen, self.time_until(deadline).min(MAX_WAIT));
    }

    /// Waits until `notifier` is past generation `seen`, or for `at_most` and [`MAX_WAIT`], under a test clock too.
    pub fn wait_at_most(&self, notifier: &Notifier, seen: u64, at_most: Duration) {
        notifier.wait(seen, at_most.min(MAX_WAIT));
    }

    pub fn sleep(&self, pause: Duration) {
        std::thread::sleep(pause.min(MAX_WAIT));
    }

    fn time_until(&self, deadline: Option<Timestamp>) -> Duration {
        match (deadline, &self.source) {
            (Some(deadline), ClockSource::System) => {
                // The precise present, because the fraction that `now` drops would end the wait too late.
                Duration::try_from(deadline.duration_since(self.now_precise()))
                    .unwrap_or(Duration::ZERO)
            }
            _ => MAX_WAIT,
        }
    }

    /// With the resolution of the system's clock.
    pub fn now_precise(&self) -> Timestamp {
        let (wall, uptime) = self.system_time();
        if self.is_test() {
            return wall;
        }
        self.wall_clock.lock().read(wall, uptime, |after| self.is_synchronized_after(after))
    }

    /// What the system's clock shows, and the time since the boot of the machine.
    fn system_time(&self) -> (Timestamp, Duration) {
        match &self.source {
            ClockSource::System => (Timestamp::now(), uptime()),
            ClockSource::Manual { time, .. } => {
                let ManualTime { wall, elapsed } = *time.lock();
                (wall, MANUAL_UPTIME + elapsed)
            }
        }
    }

    fn is_synchronized_after(&self, at: Timestamp) -> bool {
        let synchronized =
            || Timestamp::try_from(std::fs::metadata(SYNCHRONIZED).ok()?.modified().ok()?).ok();
        matches!(self.source, ClockSource::System)
            && synchronized().is_some_and(|synchronized| synchronized > at)
    }
}

/// The time since the boot, with that of sleep.
fn uptime() -> Duration {
    #[cfg(target_os = "linux")]
    let clock = ClockId::Boottime;
    #[cfg(not(target_os = "linux"))]
    let clock = ClockId::Monotonic;
    Duration::try_from(clock_gettime(clock)).unwrap_or_default()
}

pub fn whole_millisecond(at: Timestamp) -> Timestamp {
    let below = at.as_nanosecond().rem_euclid(1_000_000);
    // Only the first representable instants can underflow; they stay unrounded.
    at.checked_sub(SignedDuration::from_nanos(i64::try_from(below).unwrap_or(0))).unwrap_or(at)
}

/// A counter that threads and tasks wait on. A waiter reads [`Notifier::generation`] before it looks for work, so that
/// a notification in between is not lost.
#[derive(Debug, Default)]
pub struct Notifier {
    count: Mutex<u64>,
    changed: Condvar,
    subscribers: watch::Sender<u64>,
}

impl Notifier {
    pub fn generation(&self) -> u64 {
        *self.count.lock()
    }

    pub fn notify(&self) {
        let mut count = self.count.lock();
        *count += 1;
        self.changed.notify_all();
        self.subscribers.send_replace(*count);
    }

    /// Returns a receiver for tasks; its value changes with every later notification.
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.subscribers.subscribe()
    }

    fn wait(&self, seen: u64, timeout: Duration) {
        drop(self.changed.wait_timeout_while(self.count.lock(), timeout, |count| *count == seen));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_are_rounded_down_to_whole_milliseconds() {
        for (at, expected) in [
            ("2026-01-01T00:00:00.0019Z", "2026-01-01T00:00:00.001Z"),
            ("1969-12-31T23:59:59.9995Z", "1969-12-31T23:59:59.999Z"),
        ] {
            assert_eq!(Clock::test(at.parse().ok()).now().to_string(), expected);
        }
    }

    #[test]
    fn people_wait_for_a_test_clock_no_longer_than_in_reality() {
        let at: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let (test, manual) = (Clock::test(Some(at)), Clock::manual(at));
        while test.now_moving() == at {
            std::thread::yield_now();
        }
        assert!(test.now_moving() > at && test.now() == at);
        test.set(at + Duration::from_hours(1));
        assert!(test.now_moving() > at + Duration::from_hours(1));
        assert_eq!(manual.now_moving(), at);
    }

    #[test]
    fn a_wait_ends_at_its_deadline_or_by_a_notification_before_it() {
        let (clock, notifier) = (Clock::system(), Notifier::default());
        let seen = notifier.generation();
        notifier.notify();
        let before = clock.monotonic();
        clock.wait(&notifier, seen, None);
        assert!(clock.monotonic() - before < MAX_WAIT);
        let deadline = clock.now() + SignedDuration::from_millis(20);
        clock.wait(&notifier, notifier.generation(), Some(deadline));
        assert!(clock.now() >= deadline);
    }
}
