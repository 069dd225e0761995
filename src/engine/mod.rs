//! Background work: the scheduler, webhook delivery and failure notifications. Every task has a `run_once`
//! that tests call; its thread is a loop around it.

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

pub struct Engine {
    scheduler_thread: SchedulerThread,
    delivery: DeliveryService,
    notifications: NotificationService,
}

impl Engine {
    /// Requeues the deliveries that a crash cut off, then starts all threads.
    pub fn start(app: &Arc<App>, webhook_client: Arc<dyn WebhookClient>) -> Result<Self> {
        let requeued = delivery_service::requeue_interrupted(app)?;
        if requeued > 0 {
            tracing::info!(count = requeued, "requeued deliveries that the last stop cut off");
        }
        let failed = |error| Error::fault_from("the delivery threads cannot start", error);
        let notifications = NotificationService::start(app, Arc::clone(&webhook_client)).map_err(failed)?;
        let delivery = DeliveryService::start(app, webhook_client).map_err(failed)?;
        Ok(Self {
            scheduler_thread: SchedulerThread::start(app, delivery.handle())?,
            delivery,
            notifications,
        })
    }

    /// A function that makes the threads start nothing more, for the signal handler: running deliveries end while the
    /// port drains, not after it.
    pub fn halt(&self) -> impl FnOnce() + Send + 'static {
        let flags =
            [self.scheduler_thread.stop_flag(), self.delivery.stop_flag(), self.notifications.stop_flag()];
        let notifiers = self.scheduler_thread.notifiers();
        move || {
            for flag in flags {
                flag.store(true, Ordering::SeqCst);
            }
            notifiers.notify_all();
        }
    }

    /// Stops the scheduler, then waits until running deliveries and notifications are recorded, for 30 s at most each.
    pub fn stop(self) {
        self.scheduler_thread.stop();
        self.delivery.stop();
        self.notifications.stop();
    }
}
