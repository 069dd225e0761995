//! What the machine does by itself: a janitor per file, each with one pass that tests can call.

pub mod delivery;
pub mod notifications;
pub mod scheduler;
pub mod webhook_client;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::app::App;
use crate::engine::delivery::delivery_service::{self, DeliveryService};
use crate::engine::notifications::notification_service::NotificationService;
use crate::engine::scheduler::scheduler_thread::SchedulerThread;
use crate::engine::webhook_client::WebhookClient;
use crate::error::{Error, Result};

/// The running engine.
pub struct Engine {
    scheduler_thread: SchedulerThread,
    delivery: DeliveryService,
    escalation: NotificationService,
}

impl Engine {
    /// Returns what a crash cut short, then starts the scheduler, the delivery threads and the escalation.
    ///
    /// # Errors
    /// When the file cannot be read or written, or the system starts no more threads.
    pub fn start(app: &Arc<App>, webhook_client: Arc<dyn WebhookClient>) -> Result<Self> {
        let returned = delivery_service::requeue_interrupted(app)?;
        if returned > 0 {
            tracing::info!("{returned} deliveries were cut short by the last stop and are sent again");
        }
        let failed = |error: std::io::Error| Error::fault_from("the delivery threads cannot start", error);
        let escalation = NotificationService::start(app, Arc::clone(&webhook_client)).map_err(failed)?;
        let delivery = DeliveryService::start(app, webhook_client).map_err(failed)?;
        Ok(Self { scheduler_thread: SchedulerThread::start(app, delivery.desk())?, delivery, escalation })
    }

    /// What tells the threads to take up nothing more, for whoever hears first that the program is to stop: running
    /// deliveries end while the port drains, not after it.
    pub fn halt(&self) -> impl FnOnce() + Send + 'static {
        let flags =
            [self.scheduler_thread.stop_flag(), self.delivery.stop_flag(), self.escalation.stop_flag()];
        let notifiers = self.scheduler_thread.notifiers();
        move || {
            for flag in flags {
                flag.store(true, Ordering::SeqCst);
            }
            notifiers.notify_all();
        }
    }

    /// Fires nothing more, lets running deliveries end (30 s at most) and records them.
    pub fn stop(self) {
        self.scheduler_thread.stop();
        self.delivery.stop();
        self.escalation.stop();
    }
}
