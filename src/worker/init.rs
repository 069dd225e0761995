//! `cued work` as the first process of a container. Processes that lose their parent become children of the first one,
//! and would stay behind as zombies: it runs the worker as a child, and waits for all of them.

use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::{io, thread};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, wait};

use crate::system::signals::{EndSignals, SIGNALLED};

pub fn is_first_process() -> bool {
    getpid().is_init()
}

/// Runs this command line again as a child, and passes the signals to end on to it. Returns its exit code.
pub fn run() -> io::Result<i32> {
    let mut signals = EndSignals::catch()?;
    let mut command = Command::new(std::env::current_exe()?);
    // A group of its own, so that Ctrl-C at a terminal arrives once.
    let child = command.args(std::env::args_os().skip(1)).process_group(0).spawn()?;
    let worker = Pid::from_child(&child);
    let pass_on = move || {
        loop {
            signals.wait();
            if let Err(error) = kill_process(worker, Signal::TERM) {
                tracing::warn!(%error, "the worker cannot be signalled");
            }
        }
    };
    thread::Builder::new().name("signals".to_owned()).spawn(pass_on)?;
    loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if pid == worker => {
                let killed = || SIGNALLED + status.terminating_signal().unwrap_or_default();
                return Ok(status.exit_status().unwrap_or_else(killed));
            }
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}
