//! Background work: the scheduler, webhook delivery and failure notifications. Every task has a `run_once`
//! that tests call; its thread is a loop around it.

pub mod channels;
pub mod delivery;
pub mod notifications;
pub mod scheduler;
pub mod test_calls;
pub mod webhook_client;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use crate::app::App;
use crate::clock::Notifier;
use crate::engine::delivery::dispatcher::{self, DeliveryService};
use crate::engine::test_calls::WebhookTestCaller;
use crate::engine::webhook_client::WebhookClient;
use crate::error::{Error, Result};

/// The pause after an error, before a pass is repeated: long enough to keep the log readable while a disk is full.
const AFTER_FAULT: Duration = Duration::from_secs(1);

pub struct Engine {
    app: Arc<App>,
    scheduler: EngineThread,
    dispatcher: EngineThread,
    notifications: EngineThread,
}

impl Engine {
    /// Requeues the deliveries that a crash cut off, then starts all threads.
    pub fn start(app: &Arc<App>, webhook_client: Arc<dyn WebhookClient>) -> Result<Self> {
        let requeued = dispatcher::requeue_interrupted(app)?;
        if requeued > 0 {
            tracing::info!(count = requeued, "requeued deliveries that the last stop cut off");
        }
        app.test_caller
            .get_or_init(|| Arc::new(WebhookTestCaller::new(Arc::clone(&webhook_client))));
        let failed = |error| Error::fault_from("the threads of the engine cannot start", error);
        let notifications =
            notifications::start(app, Arc::clone(&webhook_client)).map_err(failed)?;
        let (deliveries, dispatcher) =
            DeliveryService::start(app, webhook_client).map_err(failed)?;
        let scheduler = scheduler::start(app, deliveries)?;
        Ok(Self { app: Arc::clone(app), scheduler, dispatcher, notifications })
    }

    /// A function that makes the threads start nothing more, for the signal handler: running deliveries end while the
    /// port drains, not after it.
    pub fn halt(&self) -> impl FnOnce() + Send + 'static {
        let threads = [&self.scheduler, &self.dispatcher, &self.notifications];
        let flags = threads.map(|thread| Arc::clone(&thread.stopping));
        let notifiers = Arc::clone(&self.app.notifiers);
        move || {
            for flag in flags {
                flag.store(true, Ordering::SeqCst);
            }
            notifiers.notify_all();
        }
    }

    /// Stops the scheduler, then waits until running deliveries and notifications are recorded, for 30 s at most each.
    pub fn stop(self) {
        self.scheduler.stop(&self.app.notifiers.schedule);
        self.dispatcher.stop(&self.app.notifiers.send);
        self.notifications.stop(&self.app.notifiers.notifications);
    }
}

/// Waits after a pass that failed, and logs why, unless the store has: a full disk fails every pass.
fn pause_after(app: &App, error: &Error, message: &'static str) {
    match error {
        Error::Storage(_) if !app.store.is_writable() => tracing::debug!(%error, "{message}"),
        _ => tracing::error!(%error, "{message}"),
    }
    app.clock.sleep(AFTER_FAULT);
}

pub struct EngineThread {
    name: &'static str,
    stopping: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl EngineThread {
    fn start(
        name: &'static str,
        stopping: Arc<AtomicBool>,
        run: impl FnOnce(&AtomicBool) + Send + 'static,
    ) -> io::Result<Self> {
        let stopped = Arc::clone(&stopping);
        let thread = Builder::new().name(name.to_owned()).spawn(move || run(&stopped))?;
        Ok(Self { name, stopping, thread })
    }

    pub fn stop(self, notifier: &Notifier) {
        self.stopping.store(true, Ordering::SeqCst);
        notifier.notify();
        if self.thread.join().is_err() {
            tracing::error!("{} thread panicked", self.name);
        }
    }
}
