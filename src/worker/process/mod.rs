//! Runs a command in a process group of its own: its input, the end of its output, its end.

pub mod handle;
pub mod life;
pub mod open_files;

use std::io::{self, PipeReader, Read, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, kill_process_group, test_kill_process_group, waitid,
};

use crate::clock::Clock;
use crate::worker::outcome::tail::Tail;
use crate::worker::process::handle::Handle;
use crate::worker::process::life::{Action, Cause, Life, Observation};

/// The usual capacity of a pipe.
const BUFFER: usize = 64 * 1024;

/// The stack of the thread that waits for the exit and does nothing else.
const WAITER_STACK: usize = 64 * 1024;

/// A command that has ended.
#[derive(Debug)]
pub struct Finished {
    pub status: ExitStatus,
    /// The reason why it was ended, if it did not end by itself.
    pub cause: Option<Cause>,
    pub stdout: Tail,
    pub stderr: Tail,
}

/// A running command and its pipes.
pub struct Process<'a> {
    group: Pid,
    child: Child,
    stdin: Option<ChildStdin>,
    input: &'a [u8],
    /// `None` after their end.
    outputs: [Option<Output>; 2],
    tails: [Tail; 2],
    buffer: Vec<u8>,
}

type Output = Box<dyn Pipe>;

trait Pipe: Read {
    fn fd(&self) -> BorrowedFd<'_>;
}

impl<T: Read + std::os::fd::AsFd> Pipe for T {
    fn fd(&self) -> BorrowedFd<'_> {
        self.as_fd()
    }
}

/// Starts a command.
///
/// # Errors
/// If the command cannot be started. It has not run then.
pub fn start<'a>(command: &mut Command, input: &'a [u8], handle: &Arc<Handle>) -> io::Result<Process<'a>> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    // Before the command: without it nobody would notice the command's end.
    let waiter = start_waiter(handle)?;
    let mut child = command.spawn()?;
    let group = Pid::from_child(&child);
    if let Err(error) = waiter.send(group) {
        kill_process_group(group, Signal::KILL)?;
        child.wait()?;
        return Err(io::Error::other(error));
    }
    Ok(Process::new(child, group, input))
}

/// Starts the thread that waits for the exit of the process that it is sent. It ends if it is sent none.
fn start_waiter(handle: &Arc<Handle>) -> io::Result<Sender<Pid>> {
    let (sender, receiver) = mpsc::channel();
    let handle = Arc::clone(handle);
    let wait = move || {
        if let Ok(pid) = receiver.recv() {
            // The process stays a zombie, so that its number belongs to no other process while signals are sent.
            while let Err(Errno::INTR) =
                waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT)
            {}
            handle.exited();
        }
    };
    thread::Builder::new().name("waiter".to_owned()).stack_size(WAITER_STACK).spawn(wait)?;
    Ok(sender)
}

impl<'a> Process<'a> {
    fn new(mut child: Child, group: Pid, input: &'a [u8]) -> Self {
        let stdin = child.stdin.take().filter(|stdin| rustix::io::ioctl_fionbio(stdin, true).is_ok());
        let outputs = [
            child.stdout.take().map(|pipe| Box::new(pipe) as Output),
            child.stderr.take().map(|pipe| Box::new(pipe) as Output),
        ];
        let tails = [Tail::default(), Tail::default()];
        let mut process = Self { group, child, stdin, input, outputs, tails, buffer: vec![0; BUFFER] };
        process.write();
        process
    }

    /// Waits until the command ends, or until [`Handle`] or the time limit ends it.
    ///
    /// # Errors
    /// If the system fails. The command is killed then.
    pub fn finish(
        mut self,
        timeout: Duration,
        (handle, wakes): (&Handle, &mut PipeReader),
        clock: &Clock,
    ) -> io::Result<Finished> {
        let ended = self.supervise(Life::new(clock.monotonic(), timeout), (handle, wakes), clock);
        if ended.is_err() {
            // Without its supervisor it must not go on.
            self.signal(Signal::KILL);
            self.child.wait()?;
        }
        let (status, cause) = ended?;
        let [stdout, stderr] = self.tails;
        Ok(Finished { status, cause, stdout, stderr })
    }

    /// Waits for the end of the run.
    fn supervise(
        &mut self,
        mut life: Life,
        (handle, wakes): (&Handle, &mut PipeReader),
        clock: &Clock,
    ) -> io::Result<(ExitStatus, Option<Cause>)> {
        let mut status = None;
        loop {
            let state = handle.state();
            if state.has_exited && status.is_none() {
                status = Some(self.child.wait()?);
            }
            let observed = Observation {
                now: clock.monotonic(),
                requested: state.requested,
                is_urgent: state.is_urgent,
                has_exited: status.is_some(),
                is_open: self.outputs.iter().any(Option::is_some),
                has_group: life.cause().is_some() && status.is_some() && self.has_group(),
            };
            match (life.next(observed), status) {
                (Action::Wait(until), _) => {
                    self.wait(wakes, until.map(|until| until.saturating_sub(observed.now)))?;
                }
                (Action::Terminate, _) => self.signal(Signal::TERM),
                (Action::Kill, _) => self.signal(Signal::KILL),
                (Action::Finish, Some(status)) => return Ok((status, life.cause())),
                (Action::Finish, None) => {}
            }
        }
    }

    /// Waits until a pipe is ready or `pause` is over, and reads and writes what is ready.
    fn wait(&mut self, wakes: &mut PipeReader, pause: Option<Duration>) -> io::Result<()> {
        let ready = |flags: PollFlags| !flags.is_empty();
        let (mut is_woken, mut is_writable, mut are_readable) = (false, false, [false; 2]);
        {
            let mut fds = vec![PollFd::from_borrowed_fd(wakes.as_fd(), PollFlags::IN)];
            let mut places = vec![0];
            for (index, output) in self.outputs.iter().enumerate() {
                if let Some(output) = output {
                    fds.push(PollFd::from_borrowed_fd(output.fd(), PollFlags::IN));
                    places.push(1 + index);
                }
            }
            if let Some(stdin) = &self.stdin {
                fds.push(PollFd::from_borrowed_fd(stdin.as_fd(), PollFlags::OUT));
                places.push(3);
            }
            match poll(&mut fds, pause.map(timespec).as_ref()) {
                Ok(_) => {}
                Err(Errno::INTR) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
            for (fd, place) in fds.iter().zip(places) {
                let is_ready = ready(fd.revents());
                match place {
                    0 => is_woken = is_ready,
                    3 => is_writable = is_ready,
                    index => are_readable[index - 1] = is_ready,
                }
            }
        }
        if is_woken {
            let _: usize = wakes.read(&mut [0; 16])?;
        }
        if is_writable {
            self.write();
        }
        for (index, _) in are_readable.iter().enumerate().filter(|(_, is_ready)| **is_ready) {
            self.read(index);
        }
        Ok(())
    }

    /// Writes as much as the command reads now. The rest is dropped if it has closed its input.
    fn write(&mut self) {
        let Some(stdin) = &mut self.stdin else { return };
        match stdin.write(self.input) {
            Ok(count) => self.input = &self.input[count..],
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            Err(_) => self.input = &[],
        }
        if self.input.is_empty() {
            self.stdin = None;
        }
    }

    fn read(&mut self, index: usize) {
        let Some(output) = &mut self.outputs[index] else { return };
        match output.read(&mut self.buffer) {
            Ok(0) => self.outputs[index] = None,
            Ok(count) => self.tails[index].push(&self.buffer[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => self.outputs[index] = None,
        }
    }

    /// Processes of the group exist.
    fn has_group(&self) -> bool {
        test_kill_process_group(self.group) != Err(Errno::SRCH)
    }

    /// Signals the group. A group that has just ended needs no signal.
    fn signal(&self, signal: Signal) {
        if let Err(error) = kill_process_group(self.group, signal)
            && error != Errno::SRCH
        {
            tracing::warn!(%error, "the command cannot be signalled");
        }
    }
}

/// The exit code or the signal of a command that ended by itself.
pub fn code_or_signal(status: ExitStatus) -> Result<i32, i32> {
    status.code().ok_or_else(|| status.signal().unwrap_or_default())
}

fn timespec(duration: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(duration.subsec_nanos()),
    }
}
