//! The signals that ask the process to end. They are waited for by a thread, one after the other.

use std::future::poll_fn;
use std::io;
use std::task::Poll;

use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Shells report the end by a signal as an exit code of this plus its number.
pub const SIGNALLED: i32 = 128;

/// SIGINT and SIGTERM. While it exists neither ends the process by itself.
#[derive(Debug)]
pub struct EndSignals {
    runtime: Runtime,
    signals: Vec<(Signal, i32)>,
}

impl EndSignals {
    pub fn catch() -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_io().build()?;
        let context = runtime.enter();
        let kinds = [SignalKind::interrupt(), SignalKind::terminate()];
        let caught = kinds.into_iter().map(|kind| Ok((signal(kind)?, kind.as_raw_value())));
        let signals = caught.collect::<io::Result<_>>()?;
        drop(context);
        Ok(Self { runtime, signals })
    }

    /// Blocks until the next signal. Returns the exit code of a process that it ends.
    pub fn wait(&mut self) -> i32 {
        let Self { runtime, signals } = self;
        runtime.block_on(poll_fn(|context| {
            let mut signals = signals.iter_mut();
            let received = signals
                .find_map(|(it, number)| it.poll_recv(context).is_ready().then_some(*number));
            received.map_or(Poll::Pending, |number| Poll::Ready(SIGNALLED + number))
        }))
    }
}
