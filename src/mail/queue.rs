//! The queue of login mails and the thread that sends them, so that no request waits for the mail server.

use std::collections::VecDeque;
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::clock::Clock;
use crate::locks::Mutex;
use crate::mail::{Mail, MailTransport};

/// Maximum number of new mails, and of mails that wait for a retry. The value bounds memory to about 1 MB: a login
/// mail is around 1 kB, and an outage of the mail server must not let the queue grow.
const QUEUE: usize = 256;

/// Delay before each retry; the mail is dropped after the last one. A person waits for this mail in front of a device:
/// the first retry is soon, and the last one still covers a restart of the mail server. After two minutes the person
/// has more likely requested a new link. No measurement stands behind the three values.
const PAUSES: [Duration; 3] = [Duration::from_secs(2), Duration::from_secs(15), Duration::from_secs(90)];

/// Time to send the remaining mails when the program stops: a part of the 30 s of a graceful stop (contract §1.3).
const SHUTDOWN_RETRY: Duration = Duration::from_secs(10);

/// Time for the thread to log the mails that it drops, after [`SHUTDOWN_RETRY`].
const EXIT_MARGIN: Duration = Duration::from_millis(200);

/// Sends login mails on a thread of its own, with retries after transient errors.
pub struct LoginMailer {
    queue: SyncSender<MailJob>,
    /// The system's clock, for the retry delays, even under a test clock.
    clock: Arc<Clock>,
    /// End of the shutdown round on the monotonic clock; empty until the program stops.
    deadline: Arc<OnceLock<Duration>>,
    thread: Mutex<Option<MailThread>>,
}

struct MailThread {
    handle: JoinHandle<()>,
    /// Disconnects when the thread ends.
    ended: Receiver<()>,
}

enum MailJob {
    Send(Mail),
    Noop,
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
        let (clock, deadline) = (Arc::new(Clock::system()), Arc::default());
        let worker = MailWorker {
            transport,
            clock: Arc::clone(&clock),
            deadline: Arc::clone(&deadline),
            retries: VecDeque::new(),
            _alive: alive,
        };
        let handle = std::thread::Builder::new().name("mail".to_owned()).spawn(move || worker.run(&jobs))?;
        Ok(Self { queue, clock, deadline, thread: Mutex::new(Some(MailThread { handle, ended })) })
    }

    /// Queues a mail and returns at once. `None` takes the same steps without sending anything, so that the duration
    /// of a request does not reveal whether an address is known.
    pub fn enqueue(&self, mail: Option<Mail>) {
        match self.queue.try_send(mail.map_or(MailJob::Noop, MailJob::Send)) {
            Ok(()) | Err(TrySendError::Full(MailJob::Noop)) => {}
            Err(TrySendError::Full(MailJob::Send(_))) => {
                tracing::warn!(limit = QUEUE, "mail dropped: the queue is full");
            }
            Err(TrySendError::Disconnected(_)) => tracing::warn!("mail dropped: the server is stopping"),
        }
    }

    /// Tries every remaining mail once more and ends the thread. Returns within 10 s or `within`, whichever is
    /// shorter, even if the mail server hangs.
    pub fn stop(&self, within: Duration) {
        let Some(MailThread { handle, ended }) = self.thread.lock().take() else {
            return;
        };
        let time = SHUTDOWN_RETRY.min(within);
        self.deadline.get_or_init(|| self.clock.monotonic() + time);
        // Wakes the thread; if the queue is full, the thread is awake already.
        drop(self.queue.try_send(MailJob::Noop));
        match ended.recv_timeout(time + EXIT_MARGIN) {
            Err(RecvTimeoutError::Timeout) => {
                tracing::warn!("mail lost at shutdown: the mail server did not respond in time");
            }
            _ if handle.join().is_err() => tracing::error!("mail thread panicked"),
            _ => {}
        }
    }
}

struct MailWorker {
    transport: MailTransport,
    clock: Arc<Clock>,
    deadline: Arc<OnceLock<Duration>>,
    /// Mails that failed, ordered by their next try.
    retries: VecDeque<RetryEntry>,
    /// Dropped when the thread ends, which disconnects [`MailThread::ended`].
    _alive: SyncSender<()>,
}

struct RetryEntry {
    mail: Mail,
    failures: usize,
    /// On the monotonic clock.
    due: Duration,
}

impl MailWorker {
    fn run(mut self, jobs: &Receiver<MailJob>) {
        while self.deadline.get().is_none() {
            match self.next_job(jobs) {
                Ok(MailJob::Send(mail)) => self.send(mail, 0),
                Ok(MailJob::Noop) | Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            while self.deadline.get().is_none()
                && let Some(RetryEntry { mail, failures, .. }) = self.pop_due_retry()
            {
                self.send(mail, failures);
            }
        }
        self.send_remaining(jobs);
    }

    fn pop_due_retry(&mut self) -> Option<RetryEntry> {
        let is_due = self.retries.front().is_some_and(|first| first.due <= self.clock.monotonic());
        if is_due { self.retries.pop_front() } else { None }
    }

    fn next_job(&self, jobs: &Receiver<MailJob>) -> Result<MailJob, RecvTimeoutError> {
        match self.retries.front() {
            Some(first) => jobs.recv_timeout(first.due.saturating_sub(self.clock.monotonic())),
            None => jobs.recv().map_err(|_| RecvTimeoutError::Disconnected),
        }
    }

    fn send(&mut self, mail: Mail, failures: usize) {
        let Err(error) = self.transport.send(&mail) else { return };
        match PAUSES.get(failures) {
            Some(pause) if error.is_transient && self.retries.len() < QUEUE => {
                tracing::warn!(%error, retry_in_s = pause.as_secs(), "mail not sent, will be retried");
                let due = self.clock.monotonic() + *pause;
                let index = self.retries.partition_point(|other| other.due <= due);
                self.retries.insert(index, RetryEntry { mail, failures: failures + 1, due });
            }
            _ => tracing::error!(%error, "mail not sent, giving up"),
        }
    }

    fn send_remaining(mut self, jobs: &Receiver<MailJob>) {
        let deadline =
            self.deadline.get().copied().unwrap_or_else(|| self.clock.monotonic() + SHUTDOWN_RETRY);
        let mut remaining: VecDeque<Mail> = self.retries.drain(..).map(|entry| entry.mail).collect();
        remaining.extend(jobs.try_iter().filter_map(|job| match job {
            MailJob::Send(mail) => Some(mail),
            MailJob::Noop => None,
        }));
        while self.clock.monotonic() < deadline
            && let Some(mail) = remaining.pop_front()
        {
            self.send(mail, PAUSES.len());
        }
        if !remaining.is_empty() {
            tracing::warn!(count = remaining.len(), "mail lost at shutdown: out of time");
        }
    }
}
