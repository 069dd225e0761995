//! The end of a command whose output has none: a signal, or a reader that has closed the pipe.

use std::future::poll_fn;
use std::io;
use std::task::Poll;
use std::thread;

use rustix::event::{PollFd, PollFlags, poll};
use tokio::signal::unix::{SignalKind, signal};

use crate::cli::error::CliError;

/// Shells report a signal as this and its number.
const SIGNALLED: i32 = 128;

/// From now on SIGINT and SIGTERM end the process between two lines, a second one at once.
///
/// # Errors
/// If the system refuses the handlers.
pub fn end_on_signals() -> Result<(), CliError> {
    watch_signals().map_err(|error| CliError::Failed(format!("cannot listen for signals: {error}")))
}

/// From now on the process ends with success when nobody reads its standard output any more, also if there is nothing to
/// print.
///
/// # Errors
/// If the system has no thread for it.
pub fn end_with_reader() -> Result<(), CliError> {
    let watch = || {
        let stdout = io::stdout();
        let mut closed = [PollFd::new(&stdout, PollFlags::empty())];
        // Without events to wait for, only the end of the other side wakes it. An error leaves the end to the next line.
        if poll(&mut closed, None).is_ok_and(|count| count > 0)
            && closed[0].revents().intersects(PollFlags::ERR | PollFlags::HUP)
        {
            end(0);
        }
    };
    let thread = thread::Builder::new().name("reader".to_owned()).spawn(watch);
    thread.map(drop).map_err(|error| CliError::Failed(format!("cannot start a thread: {error}")))
}

fn watch_signals() -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let mut signals = {
        let _within = runtime.enter();
        let caught = [SignalKind::interrupt(), SignalKind::terminate()].into_iter();
        caught.map(|kind| Ok((signal(kind)?, kind.as_raw_value()))).collect::<io::Result<Vec<_>>>()?
    };
    thread::Builder::new().name("signals".to_owned()).spawn(move || {
        let mut next = || {
            runtime.block_on(poll_fn(|context| {
                let mut signals = signals.iter_mut();
                let received = signals
                    .find_map(|(signal, number)| signal.poll_recv(context).is_ready().then_some(*number));
                received.map_or(Poll::Pending, Poll::Ready)
            }))
        };
        let first = next();
        // In a thread of its own: it waits for the line that is being written.
        let ending = thread::Builder::new().spawn(move || end(SIGNALLED + first));
        if ending.is_ok() {
            next();
        }
        std::process::exit(SIGNALLED + first)
    })?;
    Ok(())
}

/// Ends the process when no line is being written.
fn end(code: i32) -> ! {
    let _line = io::stdout().lock();
    std::process::exit(code)
}
