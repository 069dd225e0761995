//! What the rooms share: the store, the clock, the bells, the pulse of the engine and the settings.

use std::path::PathBuf;
use std::sync::atomic::{AtomicI64, Ordering, fence};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;

use crate::billing::Provider;
use crate::billing::stripe::{Stripe, StripeConfig};
use crate::clock::{Clock, Notifier};
use crate::domain::account::plan::Plans;
use crate::domain::account::poll_limit::PollLimiter;
use crate::domain::account::user::RegistrationPolicy;
use crate::domain::cue::retention::Retention;
use crate::domain::schedule::catch_up::Outage;
use crate::domain::webhook::address_policy::{AddressPolicy, Cidr};
use crate::domain::webhook::echo::EchoStore;
use crate::mail::{LoginMailer, MailTransport};
use crate::metrics::engine::EngineStats;
use crate::metrics::{Family, Histogram, TIME};
use crate::random::ExecutionIdSource;
use crate::store::{OpenError, Store, WakeSet};

/// The running program, shared by every thread.
pub struct App {
    /// The database.
    pub store: Store,
    /// The time.
    pub clock: Clock,
    /// What wakes whom.
    pub notifiers: Arc<Notifiers>,
    /// The maker of execution ids.
    pub ids: Arc<ExecutionIdSource>,
    /// What the engine has done.
    pub engine_stats: EngineStats,
    /// How long requests took, by method, path as it stands in the table of doors, and class of status.
    pub requests: Family<Histogram, 3>,
    /// Where mails are handed over.
    pub post: LoginMailer,
    /// How often devices that log in have polled.
    pub polls: Mutex<PollLimiter>,
    /// What was posted to the echo path.
    pub echoes: Mutex<EchoStore>,
    /// Who takes the money.
    pub billing: Provider,
    // Noted by the scheduler.
    gap: Mutex<Option<Outage>>,
    /// Held by whoever moves a test clock.
    pub clock_moves: Mutex<()>,
    /// The flags that it was started with.
    pub config: Config,
}

impl App {
    /// Opens the database of `config` for a server and puts the rooms together.
    ///
    /// # Errors
    /// Those of [`Store::open`].
    pub fn open(clock: Clock, config: Config) -> Result<Self, OpenError> {
        let notifiers = Arc::new(Notifiers::default());
        let ringer = Arc::clone(&notifiers);
        let store = Store::open(&config.db, Arc::new(move |rings| ringer.notify(rings)))?;
        let post = LoginMailer::start(config.mail.clone())?;
        Ok(Self {
            store,
            clock,
            notifiers,
            ids: Arc::default(),
            engine_stats: EngineStats::default(),
            requests: Family::new(|| Histogram::new(&TIME), &[]),
            post,
            polls: Mutex::default(),
            echoes: Mutex::default(),
            billing: provider(&config),
            gap: Mutex::default(),
            clock_moves: Mutex::default(),
            config,
        })
    }

    /// Notes the time in which nothing could fire.
    pub fn record_outage(&self, gap: Outage) {
        *self.gap.lock().unwrap_or_else(PoisonError::into_inner) = Some(gap);
    }

    /// The time in which nothing could fire, as far as the scheduler has looked.
    pub fn outage(&self) -> Option<Outage> {
        *self.gap.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn provider(config: &Config) -> Provider {
    match &config.stripe {
        Some(stripe) => Provider::Stripe(Box::new(Stripe::new(stripe.clone()))),
        None => Provider::Manual,
    }
}

/// The bells of the program.
#[derive(Debug)]
pub struct Notifiers {
    /// Something falls due earlier than the scheduler knew, or the clock was moved.
    pub schedule: Notifier,
    // When the scheduler looks by itself, in milliseconds since 1970; the end of time while it does not.
    next_look: AtomicI64,
    /// An execution is ready to be sent, or a delivery thread has ended one.
    pub send: Notifier,
    /// An execution is ready to be claimed.
    pub claim: Notifier,
    /// A notice of a failure is ready to be told, or has been.
    pub escalate: Notifier,
    /// The engine has finished a pass or an attempt: whoever waits for it to come to rest looks again.
    pub progress: Notifier,
}

impl Default for Notifiers {
    fn default() -> Self {
        Self {
            schedule: Notifier::default(),
            next_look: AtomicI64::new(i64::MAX),
            send: Notifier::default(),
            claim: Notifier::default(),
            escalate: Notifier::default(),
            progress: Notifier::default(),
        }
    }
}

impl Notifiers {
    /// Notes when the scheduler looks by itself: what falls due later rings no bell. To be called with nothing before
    /// it looks at the file, and with what it found before it waits, so that what is written in between does ring.
    pub fn set_next_wakeup(&self, at: Option<Timestamp>) {
        self.next_look.store(at.map_or(i64::MAX, Timestamp::as_millisecond), Ordering::SeqCst);
        // Stored before the file is looked at, as a write is in the file before it looks here: one sees the other.
        fence(Ordering::SeqCst);
    }

    fn is_news(&self, due: Timestamp) -> bool {
        fence(Ordering::SeqCst);
        due.as_millisecond() < self.next_look.load(Ordering::SeqCst)
    }

    /// Rings what a commit asked for.
    pub fn notify(&self, rings: WakeSet) {
        for (asked, notifier) in [
            (rings.schedule.is_some_and(|due| self.is_news(due)), &self.schedule),
            (rings.send, &self.send),
            (rings.claim, &self.claim),
            (rings.escalate, &self.escalate),
        ] {
            if asked {
                notifier.notify();
            }
        }
    }

    /// Rings every bell, when the clock was moved or the program stops.
    pub fn notify_all(&self) {
        for notifier in [&self.schedule, &self.send, &self.claim, &self.escalate, &self.progress] {
            notifier.notify();
        }
    }
}

/// What `cued serve` was told.
#[derive(Debug, Clone)]
pub struct Config {
    /// The database file.
    pub db: PathBuf,
    /// The address that callers use, without a slash at its end.
    pub public_url: String,
    /// Who may register.
    pub registration: RegistrationPolicy,
    /// Which addresses callbacks may reach.
    pub callbacks: AddressPolicy,
    /// The plans and whether their limits are in force.
    pub plans: Plans,
    /// How much history is kept.
    pub retention: Retention,
    /// The payment provider; none is manual billing.
    pub stripe: Option<StripeConfig>,
    /// The most deliveries at a time.
    pub delivery_threads: usize,
    /// A certificate authority that deliveries trust beside the public ones, as PEM.
    pub callback_ca: Option<Vec<u8>>,
    /// Where mail goes.
    pub mail: MailTransport,
    /// Limits on connections and requests.
    pub http: HttpLimits,
}

impl Config {
    /// Safe settings for the database file `db`: what `cued serve` has when nothing else is said.
    #[must_use]
    pub fn new(db: PathBuf) -> Self {
        Self {
            db,
            public_url: "http://127.0.0.1:8000".to_owned(),
            registration: RegistrationPolicy::FirstUser,
            callbacks: AddressPolicy::default(),
            plans: Plans::default(),
            retention: Retention::default(),
            stripe: None,
            delivery_threads: 64,
            callback_ca: None,
            mail: MailTransport::Log { stdout: false },
            http: HttpLimits::default(),
        }
    }
}

/// Bounds of the HTTP side. Sockets are timed by the system, not by a test clock.
#[derive(Debug, Clone)]
pub struct HttpLimits {
    /// Proxies whose `X-Forwarded-For` is believed.
    pub trusted_proxies: Vec<Cidr>,
    /// Connections at a time; more wait in the system's queue.
    pub max_connections: usize,
    /// For the head of a request.
    pub header_time: Duration,
    /// For a connection on which nothing happens.
    pub idle_time: Duration,
    /// For a whole request, its body included.
    pub request_time: Duration,
    /// For what is under way when the server stops.
    pub drain_time: Duration,
}

impl Default for HttpLimits {
    fn default() -> Self {
        Self {
            trusted_proxies: Vec::new(),
            max_connections: 4_096,
            header_time: Duration::from_secs(10),
            idle_time: Duration::from_secs(75),
            request_time: Duration::from_secs(30),
            drain_time: Duration::from_secs(30),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_due_after_the_next_wakeup_notifies_nothing() {
        let notifiers = Notifiers::default();
        let rings = |due: i64| {
            let before = notifiers.schedule.generation();
            let schedule = Some(Timestamp::from_second(due).unwrap());
            notifiers.notify(WakeSet { schedule, ..WakeSet::default() });
            notifiers.schedule.generation() > before
        };
        assert!(rings(100), "it has not said when it looks");
        notifiers.set_next_wakeup(Timestamp::from_second(50).ok());
        assert_eq!([rings(49), rings(50), rings(51)], [true, false, false]);
        notifiers.set_next_wakeup(None);
        assert!(rings(51), "it is looking just now, and may have looked past this one");
    }
}
