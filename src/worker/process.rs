//! Runs a command in a process group of its own: its input, the end of its output, its end.

use std::convert::Infallible;
use std::io::{self, ErrorKind, Read, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};

use crate::clock::Clock;
use crate::system::locks::Mutex;

/// Bytes that are kept of the end of an output.
const TAIL_BYTES: usize = 4096;

/// The usual capacity of a pipe.
const BUFFER: usize = 64 * 1024;

/// Pauses between two looks for the end of the process: short ones after the end of its output, which mostly is the end
/// of the process.
const MIN_TICK: Duration = Duration::from_millis(1);
const MAX_TICK: Duration = Duration::from_millis(100);

/// The times of a command.
#[derive(Debug, Clone, Copy)]
pub struct TerminationPolicy {
    /// The time after which it is terminated.
    pub timeout: Duration,
    /// Between SIGTERM and SIGKILL.
    pub kill_after: Duration,
    /// How long output is read after the end of the process. One that it left behind may hold the pipes for ever.
    pub drain: Duration,
}

/// The reason why a command is ended before it ends by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    TimedOut,
    /// The worker stops.
    Stopped,
    /// The execution is no longer this worker's.
    Lost,
}

/// A request to end a command.
#[derive(Debug, Clone, Copy, Default)]
pub struct EndRequest {
    pub cause: Option<Cause>,
    /// Without the pause between SIGTERM and SIGKILL.
    pub is_urgent: bool,
    /// The command has ended.
    pub has_ended: bool,
}

#[derive(Debug)]
pub struct ProcessExit {
    pub status: ExitStatus,
    /// `None` if it ended by itself.
    pub cause: Option<Cause>,
    pub stdout: String,
    pub stderr: String,
}

/// Runs a command until it ends, or until its time limit or `requested` ends it.
/// Errors: if the system cannot start or supervise it. It does not run then.
pub fn run(
    command: &mut Command,
    input: Vec<u8>,
    policy: TerminationPolicy,
    clock: &Clock,
    requested: impl Fn() -> EndRequest,
) -> io::Result<ProcessExit> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let mut child = command.spawn()?;
    let tails = [(); 2].map(|()| Arc::new(Mutex::new(Tail::default())));
    let ended = transfer(&mut child, input, &tails)
        .and_then(|outputs| supervise(&mut child, &outputs, policy, clock, requested));
    if ended.is_err() {
        signal(&child, Signal::KILL);
        child.wait()?;
    }
    let (status, cause) = ended?;
    let [stdout, stderr] = tails.map(|tail| tail.lock().text());
    Ok(ProcessExit { status, cause, stdout, stderr })
}

/// Starts a thread for each pipe. Returns a channel that ends with both outputs.
fn transfer(
    child: &mut Child,
    input: Vec<u8>,
    tails: &[Arc<Mutex<Tail>>; 2],
) -> io::Result<Receiver<Infallible>> {
    let start = |body: Box<dyn FnOnce() + Send>| thread::Builder::new().spawn(body).map(drop);
    let (sender, ended) = channel();
    if let Some(mut stdin) = child.stdin.take() {
        // The command need not read all of it.
        start(Box::new(move || drop(stdin.write_all(&input))))?;
    }
    if let Some(stdout) = child.stdout.take() {
        let (tail, sender) = (Arc::clone(&tails[0]), sender.clone());
        start(Box::new(move || follow(stdout, &tail, sender)))?;
    }
    if let Some(stderr) = child.stderr.take() {
        let tail = Arc::clone(&tails[1]);
        start(Box::new(move || follow(stderr, &tail, sender)))?;
    }
    Ok(ended)
}

/// Reads an output to its end, which the end of `sender` shows.
fn follow(mut output: impl Read, tail: &Mutex<Tail>, sender: Sender<Infallible>) {
    let mut buffer = vec![0; BUFFER];
    loop {
        match output.read(&mut buffer) {
            Ok(count) if count > 0 => tail.lock().push(&buffer[..count]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            _ => return drop(sender),
        }
    }
}

fn supervise(
    child: &mut Child,
    outputs: &Receiver<Infallible>,
    policy: TerminationPolicy,
    clock: &Clock,
    requested: impl Fn() -> EndRequest,
) -> io::Result<(ExitStatus, Option<Cause>)> {
    let deadline = clock.monotonic().saturating_add(policy.timeout);
    let (mut status, mut cause, mut is_killed) = (None, None, false);
    let (mut kill_at, mut drained_at) = (Duration::MAX, Duration::MAX);
    let (mut is_open, mut tick) = (true, MIN_TICK);
    loop {
        let (now, request) = (clock.monotonic(), requested());
        if status.is_none() {
            status = child.try_wait()?;
            drained_at = now + policy.drain;
        }
        if status.is_none() && cause.is_none() {
            cause = request.cause.or((now >= deadline).then_some(Cause::TimedOut));
            if cause.is_some() {
                signal(child, Signal::TERM);
                kill_at = now + policy.kill_after;
            }
        }
        // Processes that a command leaves behind by itself stay; those of a command that was ended end with it.
        let is_ending = cause.is_some() && !is_killed && (status.is_none() || has_group(child));
        if is_ending && (now >= kill_at || request.is_urgent) {
            signal(child, Signal::KILL);
            is_killed = true;
            drained_at = now + policy.drain;
        }
        match status {
            Some(status) if (is_killed || !is_ending) && (!is_open || now >= drained_at) => {
                return Ok((status, cause));
            }
            _ if is_open => {
                is_open = outputs.recv_timeout(MAX_TICK) == Err(RecvTimeoutError::Timeout)
            }
            _ => {
                clock.sleep(tick);
                tick = MAX_TICK.min(tick * 2);
            }
        }
    }
}

fn has_group(child: &Child) -> bool {
    test_kill_process_group(Pid::from_child(child)) != Err(Errno::SRCH)
}

/// Signals the group. A group that has just ended needs no signal.
fn signal(child: &Child, signal: Signal) {
    match kill_process_group(Pid::from_child(child), signal) {
        Ok(()) | Err(Errno::SRCH) => {}
        Err(error) => tracing::warn!(%error, "the command cannot be signalled"),
    }
}

/// The end of an output, in bounded memory however long the output is.
#[derive(Debug, Default)]
struct Tail {
    /// At most twice [`TAIL_BYTES`], so that bytes are seldom moved.
    bytes: Vec<u8>,
    is_cut: bool,
}

impl Tail {
    fn push(&mut self, chunk: &[u8]) {
        self.bytes.extend_from_slice(chunk);
        if self.bytes.len() > 2 * TAIL_BYTES {
            self.bytes.drain(..self.bytes.len() - TAIL_BYTES);
            self.is_cut = true;
        }
    }

    /// The end as a text. Bytes that are no UTF-8 and NULs, which cannot be stored, become replacement characters.
    fn text(&self) -> String {
        let mut end = &self.bytes[self.bytes.len().saturating_sub(TAIL_BYTES)..];
        if self.is_cut || end.len() < self.bytes.len() {
            // The rest of a character whose beginning is cut off: at most three bytes of the form 10xxxxxx.
            let rest = end.iter().take(3).take_while(|byte| **byte & 0xC0 == 0x80).count();
            end = &end[rest..];
        }
        String::from_utf8_lossy(end).replace('\0', "\u{fffd}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a script, which is asked to end once the file `$READY` exists.
    fn run_script(script: &str, policy: TerminationPolicy, end: EndRequest) -> ProcessExit {
        let folder = tempfile::tempdir().unwrap();
        let ready = folder.path().join("ready");
        let mut command = Command::new("sh");
        let requested = || if ready.exists() { end } else { EndRequest::default() };
        let command = command.args(["-c", script]).env("READY", &ready);
        run(command, Vec::new(), policy, &Clock::system(), requested).unwrap()
    }

    #[test]
    fn a_command_is_terminated_then_killed_with_its_group_and_what_it_leaves_by_itself_stays() {
        let (now, soon, never) =
            (Duration::ZERO, Duration::from_millis(100), Duration::from_secs(3600));
        let policy = |timeout, kill_after, drain| TerminationPolicy { timeout, kill_after, drain };
        let stop =
            |is_urgent| EndRequest { cause: Some(Cause::Stopped), is_urgent, has_ended: false };
        let none = EndRequest::default();
        let stubborn = "trap '' TERM; touch $READY; while :; do sleep 0.01; done";
        // Its child holds the output.
        let stubborn_child = "trap 'exit 0' TERM; (trap '' TERM; touch $READY; exec sleep 600) & while :; do wait; done";
        let (killed, ended) = ("signal: 9 (SIGKILL)", "exit status: 0");
        let timed_out = Some(Cause::TimedOut);
        for (script, policy, end, status, cause) in [
            ("exit 3", policy(never, never, never), none, "exit status: 3", None),
            ("exec sleep 600", policy(now, never, never), none, "signal: 15 (SIGTERM)", timed_out),
            (stubborn, policy(never, soon, never), stop(false), killed, Some(Cause::Stopped)),
            (stubborn, policy(never, never, never), stop(true), killed, Some(Cause::Stopped)),
            (stubborn_child, policy(never, soon, never), stop(false), ended, Some(Cause::Stopped)),
            ("sleep 5 & exit 0", policy(never, never, now), none, ended, None),
        ] {
            let exit = run_script(script, policy, end);
            assert_eq!((exit.status.to_string().as_str(), exit.cause), (status, cause), "{script}");
        }
    }

    #[test]
    fn the_last_bytes_are_kept_whatever_the_sizes_of_the_chunks() {
        let all: Vec<u8> = (0..100_000_u32).map(|n| b'a' + u8::try_from(n % 26).unwrap()).collect();
        let expected = String::from_utf8(all[all.len() - TAIL_BYTES..].to_vec()).unwrap();
        for size in [1, 7, 4095, 4096, 4097, 8192, 65_536] {
            let mut tail = Tail::default();
            for chunk in all.chunks(size) {
                tail.push(chunk);
                assert!(tail.bytes.len() <= 2 * TAIL_BYTES, "{size}");
            }
            assert_eq!(tail.text(), expected, "{size}");
        }
        let mut tail = Tail::default();
        tail.push("é".repeat(TAIL_BYTES).as_bytes());
        tail.push(b"x");
        assert_eq!(
            tail.text(),
            format!("{}x", "é".repeat(TAIL_BYTES / 2 - 1)),
            "a cut character is left out"
        );
        let mut short = Tail::default();
        short.push(b"\x80a\0b\xff");
        assert_eq!(short.text(), "\u{fffd}a\u{fffd}b\u{fffd}");
    }
}
