//! The signals that ask the process to end. They are waited for by a thread, one after the other.

use std::future::poll_fn;
use std::io;
use std::task::Poll;

use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Shells report the end by a signal as an exit code of this plus its number.
pub const SIGNALLED: i32 = 128;

/// SIGINT, SIGTERM and, if asked for, SIGHUP. While it exists none of them ends the process by itself.
#[derive(Debug)]
pub struct EndSignals {
    runtime: Runtime,
    signals: Vec<(Signal, i32)>,
}

impl EndSignals {
    pub fn catch() -> io::Result<Self> {
        Self::new(&[SignalKind::interrupt(), SignalKind::terminate()])
    }

    pub fn catch_with_hangup() -> io::Result<Self> {
        Self::new(&[SignalKind::hangup(), SignalKind::interrupt(), SignalKind::terminate()])
    }

    fn new(kinds: &[SignalKind]) -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_io().build()?;
        let context = runtime.enter();
        let caught = kinds.iter().map(|kind| Ok((signal(*kind)?, kind.as_raw_value())));
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
