//! The state that every module shares: the store, the clock, the notifiers, the statistics and the settings.

use std::io;
use std::net::IpAddr;
use std::sync::atomic::{AtomicI64, Ordering, fence};
use std::sync::{Arc, OnceLock};

use jiff::{SignedDuration, Timestamp};

use crate::billing::Provider;
use crate::billing::stripe::Stripe;
use crate::clock::{Clock, Notifier};
use crate::config::Config;
use crate::domain::account::device_login::MAX_POLLS;
use crate::domain::account::plan::{CALL_WINDOW, MAX_UNCONFIRMED_CALLS};
use crate::domain::account::rate_limit::{RATE_WITHOUT_KEY, RateKey, SlidingWindows};
use crate::domain::account::session::{MAX_FAILED_SIGN_INS, SIGN_IN_WINDOW};
use crate::domain::account::user::{MAX_REGISTRATIONS, REGISTRATION_WINDOW};
use crate::domain::notification::alert::RunningTests;
use crate::domain::notification::event::EventSink;
use crate::domain::row_keys::UserKey;
use crate::domain::schedule::catch_up::Outage;
use crate::domain::schedule::wall_clock::{ClockFault, is_behind};
use crate::domain::test_call::{TestCall, TestCallLimits, TestCallResult};
use crate::domain::webhook::echo::EchoStore;
use crate::events::Events;
use crate::mail::limit::MailLimits;
use crate::mail::queue::LoginMailer;
use crate::metrics::engine::EngineStats;
use crate::metrics::{Family, Histogram, TIME};
use crate::store::accounts::users::KeyOwners;
use crate::store::db::{meta, open};
use crate::store::{CommitListeners, OpenError, Store, WakeSet};
use crate::system::locks::Mutex;
use crate::system::random::ExecutionIdSource;

/// The calls of users, by row key.
pub type CallLimiter = Arc<Mutex<SlidingWindows<UserKey>>>;

/// The test calls of users. Shared with the threads that make them.
pub type TestCallLimiter = Arc<Mutex<TestCallLimits>>;

/// Makes a test call on another thread, which passes the result to the second argument, or drops that if it panics. The
/// engine does; the requests that ask for it know only this. Errors: the system gives no thread.
pub type TestCaller = Box<dyn Fn(TestCall, OnResult) -> io::Result<()> + Send + Sync>;

pub type OnResult = Box<dyn FnOnce(TestCallResult) + Send>;

/// The running program, shared by every thread.
pub struct App {
    pub store: Store,
    pub clock: Clock,
    pub notifiers: Arc<Notifiers>,
    pub events: Arc<Events>,
    pub ids: Arc<ExecutionIdSource>,
    pub engine_stats: EngineStats,
    /// Durations of requests, by method, path pattern of the route, and class of the status code.
    pub requests: Family<Histogram, 3>,
    pub login_mailer: LoginMailer,
    pub mail_limits: MailLimits,
    pub rates: Mutex<SlidingWindows<RateKey>>,
    pub polls: Mutex<SlidingWindows<[u8; 32]>>,
    pub sign_ins: Mutex<SlidingWindows<IpAddr>>,
    pub registrations: Mutex<SlidingWindows<IpAddr>>,
    /// Limits the calls of users with unconfirmed addresses; `None` if they are not bounded.
    pub unconfirmed_calls: Option<CallLimiter>,
    /// Test alerts that requests wait for.
    pub test_alerts: Mutex<RunningTests>,
    pub test_calls: TestCallLimiter,
    /// Makes the test calls; the engine sets it when it starts.
    pub test_caller: OnceLock<TestCaller>,
    pub key_owners: KeyOwners,
    /// The random number of the file, for the name of the session cookie.
    pub instance: u32,
    pub echoes: Mutex<EchoStore>,
    pub billing: Provider,
    outage: Mutex<Option<Outage>>,
    /// Held while an operator makes a backup: one at a time.
    pub backups: Mutex<()>,
    /// Held while a test clock advances: one advance at a time.
    pub clock_moves: Mutex<()>,
    pub config: Config,
}

impl App {
    pub fn open(clock: Clock, config: Config) -> Result<Self, OpenError> {
        let notifiers = Arc::new(Notifiers::default());
        let on_commit = Arc::clone(&notifiers);
        let events = Arc::new(Events::new(config.http.max_streams).map_err(io::Error::other)?);
        let listeners = CommitListeners {
            wake: Arc::new(move |wakes| on_commit.notify(wakes)),
            events: Some(Arc::clone(&events) as Arc<dyn EventSink>),
        };
        if config.held {
            open::require_database(&config.db)?;
        }
        let store = Store::open_with(&config.db, listeners)?;
        if config.held {
            // Before anything starts that fires or sends.
            let now = clock.now();
            let begun = store.write(move |tx| meta::begin_hold(tx, now)).wait();
            begun.map_err(|source| OpenError::NotHeld {
                path: config.db.clone(),
                source: source.into(),
            })?;
        }
        let read = store.read_blocking(|read| Ok((meta::last_seen(read)?, meta::instance(read)?)));
        let (last_seen, instance) = read.map_err(io::Error::other)?;
        if let Some(last_seen) = last_seen {
            clock.set_last_seen(last_seen);
        }
        let login_mailer = LoginMailer::start(config.mail.clone())?;
        Ok(Self {
            store,
            clock,
            notifiers,
            events,
            ids: Arc::default(),
            engine_stats: EngineStats::default(),
            requests: Family::new(|| Histogram::new(&TIME), &[]),
            login_mailer,
            mail_limits: MailLimits::new(config.max_mails),
            rates: Mutex::new(SlidingWindows::new(RATE_WITHOUT_KEY, SignedDuration::from_mins(1))),
            polls: Mutex::new(SlidingWindows::new(MAX_POLLS, SignedDuration::from_mins(1))),
            sign_ins: Mutex::new(SlidingWindows::new(MAX_FAILED_SIGN_INS, SIGN_IN_WINDOW)),
            registrations: Mutex::new(SlidingWindows::new(MAX_REGISTRATIONS, REGISTRATION_WINDOW)),
            unconfirmed_calls: config.plans.bounds_unconfirmed().then(|| {
                Arc::new(Mutex::new(SlidingWindows::new(MAX_UNCONFIRMED_CALLS, CALL_WINDOW)))
            }),
            test_alerts: Mutex::default(),
            test_calls: Arc::default(),
            test_caller: OnceLock::new(),
            key_owners: KeyOwners::default(),
            instance,
            echoes: Mutex::default(),
            billing: match &config.stripe {
                Some(stripe) => Provider::Stripe(Box::new(Stripe::new(stripe.clone()))),
                None => Provider::Manual,
            },
            outage: Mutex::default(),
            backups: Mutex::default(),
            clock_moves: Mutex::default(),
            config,
        })
    }

    pub fn clock_fault(&self) -> Option<ClockFault> {
        let (now, newest) = (self.clock.now(), self.engine_stats.last_seen());
        let ahead = self.clock.doubted().map(|shown| ClockFault::Ahead { now, shown });
        ahead.or_else(|| is_behind(now, newest).then_some(ClockFault::Behind { now, newest }))
    }

    /// Forgets what accounts and addresses have done, and ends the streams of events: keys of rows are used again by
    /// other accounts.
    pub fn forget_callers(&self) {
        self.rates.lock().clear();
        self.polls.lock().clear();
        self.sign_ins.lock().clear();
        self.registrations.lock().clear();
        if let Some(calls) = &self.unconfirmed_calls {
            calls.lock().clear();
        }
        self.mail_limits.clear();
        self.test_calls.lock().clear();
        self.echoes.lock().clear();
        self.events.clear();
    }

    pub fn record_outage(&self, outage: Outage) {
        *self.outage.lock() = Some(outage);
    }

    /// The last interval in which no schedule could fire, or `None` before the scheduler's first pass.
    pub fn outage(&self) -> Option<Outage> {
        *self.outage.lock()
    }
}

#[derive(Debug, Default)]
pub struct Notifiers {
    /// A cue is due earlier than the scheduler's next wake-up, or the clock was moved.
    pub schedule: Notifier,
    // The scheduler's next wake-up in milliseconds since 1970; `i64::MAX` while it has none. Before its first pass,
    // which reads the file, nothing needs to notify it.
    next_wakeup: AtomicI64,
    /// An execution is ready to send, or a delivery thread has finished an attempt.
    pub send: Notifier,
    /// An execution is ready to be claimed.
    pub claim: Notifier,
    /// A failure notification is ready to send, or an attempt to send one has finished.
    pub notifications: Notifier,
    /// The engine has finished a pass, an attempt or a test call, or the client that moves the test clock has gone away;
    /// the test clock waits on this until the engine is idle.
    pub progress: Notifier,
}

impl Notifiers {
    /// Sets the scheduler's next wake-up; a cue that is due later does not notify it.
    ///
    /// The scheduler calls this with `None` before it reads the file, and with the next due instant before it waits:
    /// a cue that is written in between then notifies it.
    pub fn set_next_wakeup(&self, at: Option<Timestamp>) {
        self.next_wakeup.store(at.map_or(i64::MAX, Timestamp::as_millisecond), Ordering::SeqCst);
        // The scheduler stores this, then reads the file; a writer commits, then loads this. The two fences ensure
        // that at least one of them sees the other's change.
        fence(Ordering::SeqCst);
    }

    pub fn notify(&self, wakes: WakeSet) {
        let is_before_next_wakeup = |due: Timestamp| {
            fence(Ordering::SeqCst);
            due.as_millisecond() < self.next_wakeup.load(Ordering::SeqCst)
        };
        for (has_work, notifier) in [
            (wakes.schedule.is_some_and(is_before_next_wakeup), &self.schedule),
            (wakes.send, &self.send),
            (wakes.claim, &self.claim),
            (wakes.notifications, &self.notifications),
        ] {
            if has_work {
                notifier.notify();
            }
        }
    }

    pub fn notify_all(&self) {
        for notifier in
            [&self.schedule, &self.send, &self.claim, &self.notifications, &self.progress]
        {
            notifier.notify();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cue_due_after_the_next_wakeup_does_not_notify_the_scheduler() {
        let notifiers = Notifiers::default();
        let is_notified = |due: i64| {
            let before = notifiers.schedule.generation();
            let schedule = Some(Timestamp::from_second(due).unwrap());
            notifiers.notify(WakeSet { schedule, ..WakeSet::default() });
            notifiers.schedule.generation() > before
        };
        notifiers.set_next_wakeup(Timestamp::from_second(50).ok());
        assert_eq!([is_notified(49), is_notified(50), is_notified(51)], [true, false, false]);
        notifiers.set_next_wakeup(None);
        assert!(is_notified(51), "the scheduler is reading the file and may have passed this cue");
    }
}
