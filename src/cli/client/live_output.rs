//! The end of a command that would go on: a signal, or a reader that has closed the pipe.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use rustix::event::{PollFd, PollFlags, poll};

use crate::cli::error::{Result, cannot};
use crate::system::signals::EndSignals;

/// Runs `first` after the first SIGINT or SIGTERM, with its exit code. A second signal ends the process at once.
pub fn watch_signals(first: impl FnOnce(i32) + Send + 'static) -> Result {
    let start = || {
        let mut signals = EndSignals::catch()?;
        thread::Builder::new().name("signals".to_owned()).spawn(move || {
            let code = signals.wait();
            first(code);
            signals.wait();
            std::process::exit(code)
        })
    };
    start().map(drop).map_err(|error| cannot("listen for signals", error))
}

/// From now on SIGINT and SIGTERM end the process between two lines.
pub fn end_on_signals() -> Result {
    watch_signals(|code| {
        // In a thread of its own: it waits for the line that is being written.
        if thread::Builder::new().spawn(move || end(code)).is_err() {
            std::process::exit(code);
        }
    })
}

/// From now on the process ends with success when standard output is closed, even while there is nothing to print.
pub fn end_with_reader() -> Result {
    watch_reader(|| end(0))
}

/// Runs `then` once standard output is closed, even while there is nothing to print.
pub fn watch_reader(then: impl FnOnce() + Send + 'static) -> Result {
    let watch = move || {
        let stdout = io::stdout();
        let mut closed = [PollFd::new(&stdout, PollFlags::empty())];
        // Without events to wait for, only the end of the other side wakes it. An error leaves the end to the next
        // line.
        if poll(&mut closed, None).is_ok_and(|count| count > 0)
            && closed[0].revents().intersects(PollFlags::ERR | PollFlags::HUP)
        {
            then();
        }
    };
    let thread = thread::Builder::new().name("reader".to_owned()).spawn(watch);
    thread.map(drop).map_err(|error| cannot("start a thread", error))
}

/// Ends the process when no line is being written.
fn end(code: i32) -> ! {
    let _line = io::stdout().lock();
    std::process::exit(code)
}

/// SIGINT and SIGTERM during a command of several steps: it ends between two of them and says how far it came.
#[derive(Debug, Clone)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    pub fn listen() -> Result<Self> {
        let requested = Arc::new(AtomicBool::new(false));
        let interrupt = Self(Arc::clone(&requested));
        watch_signals(move |_| requested.store(true, Ordering::Relaxed)).map(|()| interrupt)
    }

    pub fn is_requested(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
