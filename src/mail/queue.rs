//! The queue of login mails and the thread that sends them, so that no request waits for the mail server.

use std::collections::VecDeque;
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::clock::Clock;
use crate::mail::{Mail, MailTransport};
use crate::system::locks::Mutex;

/// Maximum number of new mails, and of mails that wait for a retry. The value bounds memory to about 1 MB: a login
/// mail is around 1 kB, and an outage of the mail server must not let the queue grow.
const QUEUE: usize = 256;

/// Delay before each retry; the mail is dropped after the last one. A person waits for this mail in front of a device:
/// the first retry is soon, and the last one still covers a restart of the mail server.
const PAUSES: [Duration; 3] =
    [Duration::from_secs(2), Duration::from_secs(15), Duration::from_secs(90)];

/// Time to send the remaining mails when the program stops: a part of the 30 s of a graceful stop (contract §1.3).
const SHUTDOWN_RETRY: Duration = Duration::from_secs(10);

/// Time for the thread to log the mails that it drops, after [`SHUTDOWN_RETRY`].
const EXIT_MARGIN: Duration = Duration::from_millis(200);

pub struct LoginMailer {
    /// `None` only wakes the thread.
    queue: SyncSender<Option<Mail>>,
    time: Arc<MailTime>,
    /// Disconnects when the thread ends.
    ended: Mutex<Receiver<()>>,
}

struct MailTime {
    /// The system's clock, for the retry delays, even under a test clock.
    clock: Clock,
    /// End of the shutdown round on the monotonic clock; empty until the program stops.
    deadline: OnceLock<Duration>,
}

impl LoginMailer {
    /// Starts the thread.
    /// Errors: the system cannot start another thread.
    pub fn start(transport: MailTransport) -> io::Result<Self> {
        if let MailTransport::Smtp(smtp) = &transport
            && let Some(tls) = smtp.tls()
        {
            tracing::info!(tls, "mail is sent by SMTP");
        }
        let (queue, jobs) = sync_channel(QUEUE);
        let (alive, ended) = sync_channel(0);
        let time = Arc::new(MailTime { clock: Clock::system(), deadline: OnceLock::new() });
        let mut worker =
            MailWorker { transport, time: Arc::clone(&time), retries: VecDeque::new() };
        std::thread::Builder::new().name("mail".to_owned()).spawn(move || {
            let _alive = alive;
            worker.run(&jobs);
        })?;
        Ok(Self { queue, time, ended: Mutex::new(ended) })
    }

    /// Queues a mail and returns at once. `None` takes the same steps without sending anything, so that the duration
    /// of a request does not reveal whether an address is known.
    pub fn enqueue(&self, mail: Option<Mail>) {
        match self.queue.try_send(mail) {
            Ok(()) | Err(TrySendError::Full(None)) => {}
            Err(TrySendError::Full(Some(_))) => {
                tracing::warn!(limit = QUEUE, "mail dropped: the queue is full");
            }
            Err(TrySendError::Disconnected(_)) => {
                tracing::warn!("mail dropped: the server is stopping")
            }
        }
    }

    /// Tries every remaining mail once more and ends the thread. Returns within 10 s or `within`, whichever is
    /// shorter, even if the mail server hangs.
    pub fn stop(&self, within: Duration) {
        let within = SHUTDOWN_RETRY.min(within);
        self.time.deadline.get_or_init(|| self.time.clock.monotonic() + within);
        // Wakes the thread; if the queue is full, the thread is awake already.
        drop(self.queue.try_send(None));
        if self.ended.lock().recv_timeout(within + EXIT_MARGIN) == Err(RecvTimeoutError::Timeout) {
            tracing::warn!("mail lost at shutdown: the mail server did not respond in time");
        }
    }
}

struct MailWorker {
    transport: MailTransport,
    time: Arc<MailTime>,
    /// Mails that failed, ordered by their next try.
    retries: VecDeque<RetryEntry>,
}

struct RetryEntry {
    mail: Mail,
    failures: usize,
    /// On the monotonic clock.
    due: Duration,
}

impl MailWorker {
    fn run(&mut self, jobs: &Receiver<Option<Mail>>) {
        while self.time.deadline.get().is_none() {
            let first_due = self.retries.front().map_or(Duration::MAX, |first| first.due);
            let wait = first_due.saturating_sub(self.time.clock.monotonic());
            if wait.is_zero() {
                if let Some(RetryEntry { mail, failures, .. }) = self.retries.pop_front() {
                    self.send(mail, failures);
                }
                continue;
            }
            match jobs.recv_timeout(wait) {
                Ok(Some(mail)) => self.send(mail, 0),
                Ok(None) | Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        self.send_remaining(jobs);
    }

    fn send(&mut self, mail: Mail, failures: usize) {
        let Err(error) = self.transport.send(&mail) else { return };
        match PAUSES.get(failures) {
            Some(pause) if error.is_transient && self.retries.len() < QUEUE => {
                tracing::warn!(%error, retry_in_s = pause.as_secs(), "mail not sent, will be retried");
                let due = self.time.clock.monotonic() + *pause;
                let index = self.retries.partition_point(|other| other.due <= due);
                self.retries.insert(index, RetryEntry { mail, failures: failures + 1, due });
            }
            _ => tracing::error!(%error, "mail not sent, giving up"),
        }
    }

    fn send_remaining(&mut self, jobs: &Receiver<Option<Mail>>) {
        let now = || self.time.clock.monotonic();
        let deadline = self.time.deadline.get().copied().unwrap_or_else(|| now() + SHUTDOWN_RETRY);
        let mut remaining: VecDeque<Mail> =
            self.retries.drain(..).map(|entry| entry.mail).collect();
        remaining.extend(jobs.try_iter().flatten());
        while self.time.clock.monotonic() < deadline
            && let Some(mail) = remaining.pop_front()
        {
            self.send(mail, PAUSES.len());
        }
        if !remaining.is_empty() {
            tracing::warn!(count = remaining.len(), "mail lost at shutdown: out of time");
        }
    }
}
