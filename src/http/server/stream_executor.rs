//! The tasks of HTTP/2 requests. Each can be ended alone: its stream is then reset, and the connection goes on.

use std::sync::Arc;

use hyper::rt::Executor;
use tokio::sync::Notify;

tokio::task_local! {
    static CURRENT: StreamReset;
}

/// Ends the task of one HTTP/2 request.
#[derive(Debug, Clone, Default)]
pub struct StreamReset(Arc<Notify>);

impl StreamReset {
    /// That of the request whose task runs; `None` on HTTP/1.1, whose requests have no task of their own.
    pub fn current() -> Option<Self> {
        CURRENT.try_with(Self::clone).ok()
    }

    pub fn reset(&self) {
        self.0.notify_one();
    }
}

/// Runs each request of an HTTP/2 connection as a task with a [`StreamReset`].
#[derive(Debug, Clone)]
pub struct StreamExecutor;

impl<F: Future<Output: Send> + Send + 'static> Executor<F> for StreamExecutor {
    fn execute(&self, request: F) {
        let reset = StreamReset::default();
        let request = CURRENT.scope(reset.clone(), request);
        tokio::spawn(async move {
            tokio::select! {
                _ = request => {}
                () = reset.0.notified() => {}
            }
        });
    }
}
