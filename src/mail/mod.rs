//! Mail: what a route does with one, and the post, which sends the mails of logins on a thread of its own and tries
//! again on passing faults.
//!
//! Mails wait in memory: a crash loses those that are not sent yet; links are then asked for again. Whoever must not
//! lose a mail stores it and sends it by the route. What a mail says, and whom it goes to, never reaches the log while
//! there is a server to send it to and the file is not held.

mod smtp;

use std::collections::VecDeque;
use std::io::{self, Write as _};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;

pub use smtp::{Smtp, SmtpError};

use crate::clock::Clock;

/// Mails that wait for their first try, and as many that wait for another one.
const QUEUE: usize = 256;

/// After each failed try; then the mail is given up.
const PAUSES: [Duration; 3] = [Duration::from_secs(2), Duration::from_secs(15), Duration::from_secs(90)];

/// For what is left when the program stops.
const SHUTDOWN_RETRY: Duration = Duration::from_secs(10);

/// For the thread to say what it leaves.
const LAST_WORD: Duration = Duration::from_millis(200);

/// One mail to one reader, in plain text.
#[derive(Clone, PartialEq, Eq)]
pub struct Mail {
    pub to: String,
    pub subject: String,
    pub text: String,
    /// All of it that is shown where there is no server for mail: one line, with the link that it brings.
    pub gist: String,
    /// When it was written.
    pub at: Timestamp,
    /// It is shown as if there were no server for mail: the file is held, and calls nobody.
    pub stays: bool,
}

impl std::fmt::Debug for Mail {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Mail(…)")
    }
}

/// Where mail goes.
#[derive(Debug, Clone)]
pub enum MailTransport {
    /// To a server.
    Smtp(Box<Smtp>),
    /// Into the log, and to standard output as well.
    Log {
        /// For development: whoever tries the program sees the link.
        stdout: bool,
    },
}

impl MailTransport {
    /// The word for it.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Smtp(_) => "smtp",
            Self::Log { .. } => "log",
        }
    }

    /// Sends a mail; blocks the thread until it is taken or refused.
    ///
    /// # Errors
    /// Says why not.
    pub fn send(&self, mail: &Mail) -> Result<(), SmtpError> {
        match self {
            Self::Smtp(_) if mail.stays => show(mail, "this copy is held", false),
            Self::Smtp(smtp) => {
                smtp.send(mail)?;
                tracing::debug!("a mail was sent");
            }
            Self::Log { stdout } => show(mail, "no --smtp-url", *stdout),
        }
        Ok(())
    }
}

/// The box that mails are put into, and the thread that empties it.
pub struct LoginMailer {
    queue: SyncSender<MailJob>,
    /// For pauses only: what a mail says about time is in it.
    clock: Arc<Clock>,
    /// When the last round is over, once there is one.
    end: Arc<OnceLock<Duration>>,
    thread: Mutex<Option<MailThread>>,
}

struct MailThread {
    handle: JoinHandle<()>,
    /// Is closed when the thread ends.
    ended: Receiver<()>,
}

enum MailJob {
    Send(Mail),
    Nothing,
}

impl LoginMailer {
    /// Starts the thread.
    ///
    /// # Errors
    /// When the system starts no more threads.
    pub fn start(route: MailTransport) -> io::Result<Self> {
        let (queue, jobs) = sync_channel(QUEUE);
        let (alive, ended) = sync_channel(0);
        let (clock, end) = (Arc::new(Clock::system()), Arc::default());
        let postman = MailWorker {
            route,
            clock: Arc::clone(&clock),
            end: Arc::clone(&end),
            again: VecDeque::new(),
            _alive: alive,
        };
        let handle = std::thread::Builder::new().name("mail".to_owned()).spawn(move || postman.run(&jobs))?;
        Ok(Self { queue, clock, end, thread: Mutex::new(Some(MailThread { handle, ended })) })
    }

    /// Hands a mail over without waiting for anything. `None` takes the same steps and sends nothing: how long this
    /// takes tells nobody whether there was a mail.
    pub fn hand_over(&self, mail: Option<Mail>) {
        match self.queue.try_send(mail.map_or(MailJob::Nothing, MailJob::Send)) {
            Ok(()) | Err(TrySendError::Full(MailJob::Nothing)) => {}
            Err(TrySendError::Full(MailJob::Send(_))) => {
                tracing::warn!("a mail was dropped: {QUEUE} are waiting")
            }
            Err(TrySendError::Disconnected(_)) => tracing::warn!("a mail was dropped: the program stops"),
        }
    }

    /// Tries what is left once more, and ends the thread. Returns after 10 s or `within` at most, whatever the server
    /// does.
    pub fn stop(&self, within: Duration) {
        let Some(MailThread { handle, ended }) = self.thread.lock().take() else {
            return;
        };
        let last_round = SHUTDOWN_RETRY.min(within);
        self.end.get_or_init(|| self.clock.monotonic() + last_round);
        // To wake the thread. Where the queue is full it is awake.
        drop(self.queue.try_send(MailJob::Nothing));
        match ended.recv_timeout(last_round + LAST_WORD) {
            Err(RecvTimeoutError::Timeout) => {
                tracing::warn!(
                    "stopped while the server for mail kept a mail waiting: it, and those behind it, are lost"
                );
            }
            _ if handle.join().is_err() => tracing::error!("the mail thread ended by a panic"),
            _ => {}
        }
    }
}

struct MailWorker {
    route: MailTransport,
    clock: Arc<Clock>,
    end: Arc<OnceLock<Duration>>,
    /// Mails that failed, in the order in which they are due.
    again: VecDeque<RetryEntry>,
    /// Goes with the thread.
    _alive: SyncSender<()>,
}

struct RetryEntry {
    mail: Mail,
    failures: usize,
    due: Duration,
}

impl MailWorker {
    fn run(mut self, jobs: &Receiver<MailJob>) {
        while self.end.get().is_none() {
            match self.next(jobs) {
                Ok(MailJob::Send(mail)) => self.deliver(mail, 0),
                Ok(MailJob::Nothing) | Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            while self.end.get().is_none()
                && let Some(RetryEntry { mail, failures, .. }) = self.next_again()
            {
                self.deliver(mail, failures);
            }
        }
        self.last_round(jobs);
    }

    fn next_again(&mut self) -> Option<RetryEntry> {
        let is_due = self.again.front().is_some_and(|first| first.due <= self.clock.monotonic());
        if is_due { self.again.pop_front() } else { None }
    }

    fn next(&self, jobs: &Receiver<MailJob>) -> Result<MailJob, RecvTimeoutError> {
        match self.again.front() {
            Some(first) => jobs.recv_timeout(first.due.saturating_sub(self.clock.monotonic())),
            None => jobs.recv().map_err(|_| RecvTimeoutError::Disconnected),
        }
    }

    fn deliver(&mut self, mail: Mail, failures: usize) {
        let Err(fault) = self.route.send(&mail) else { return };
        match PAUSES.get(failures) {
            Some(pause) if fault.passes && self.again.len() < QUEUE => {
                tracing::warn!("a mail could not be sent, next try in {} s: {fault}", pause.as_secs());
                let due = self.clock.monotonic() + *pause;
                let place = self.again.partition_point(|other| other.due <= due);
                self.again.insert(place, RetryEntry { mail, failures: failures + 1, due });
            }
            _ => tracing::error!("a mail could not be sent and is given up: {fault}"),
        }
    }

    fn last_round(mut self, jobs: &Receiver<MailJob>) {
        let end = self.end.get().copied().unwrap_or_else(|| self.clock.monotonic() + SHUTDOWN_RETRY);
        let mut left: VecDeque<Mail> = self.again.drain(..).map(|waiting| waiting.mail).collect();
        left.extend(jobs.try_iter().filter_map(|job| match job {
            MailJob::Send(mail) => Some(mail),
            MailJob::Nothing => None,
        }));
        while self.clock.monotonic() < end
            && let Some(mail) = left.pop_front()
        {
            self.deliver(mail, PAUSES.len());
        }
        if !left.is_empty() {
            tracing::warn!("stopped before {} mails were sent", left.len());
        }
    }
}

/// Without a server for mail the operator is the postman.
fn show(Mail { to, gist, .. }: &Mail, reason: &str, stdout: bool) {
    tracing::info!("{reason}, so this mail stays here: to {to}: {gist}");
    if stdout {
        let mut out = io::stdout().lock();
        if let Err(error) = writeln!(out, "mail to {to}: {gist}").and_then(|()| out.flush()) {
            tracing::warn!("standard output cannot be written: {error}");
        }
    }
}
