//! `cued work`: runs a command for each run of a task.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;

use crate::cli::client::command::ClientAction;
use crate::cli::client::commands::task_file::{self, duration, filter};
use crate::cli::client::context::Context;
use crate::cli::error::{CliError, failed, usage};
use crate::cli::output::{Format, Output, count};
use crate::client::request::{ApiResponse, ClientError};
use crate::logging::LogFormat;
use crate::system::systemd::{Liveness, SystemdService};

use crate::worker::state::{Mode, Settings, Task, WorkerSummary};
use crate::worker::{MAX_NAME, Worker, init};

/// Time between two heartbeats of a worker. The server marks one as stale after 180 seconds without.
const BEAT_MILLIS: u64 = 60_000;

/// Slots at most: each is a thread and a connection.
const MAX_JOBS: u16 = 256;

pub const HELP: &str = "Start a command for each run of a task

Claims the runs of worker cues whose payload has this task, starts the command for each, and reports its outcome. Needs \
no open port.

The command gets the payload as JSON on standard input, and CUED_EXECUTION_ID, CUED_CUE_ID, CUED_CUE_NAME, CUED_TASK, \
CUED_SCHEDULED_FOR, CUED_ATTEMPT, CUED_WORKER_ID, CUED_URL, CUED_PAYLOAD (up to 32 KiB) and CUED_OUTCOME_FILE in its \
environment; the same with CUEAPI_ in front. Exit code 0 reports success, with the last 4 KiB of standard output as the result; any other code reports failure, with \
the last 4 KiB of standard error, its last line first. The command may write a JSON object with success, result, error, \
summary, external_id, result_url, result_ref, result_type, artifacts or metadata to the outcome file.

On SIGTERM or SIGINT the worker claims nothing more, and gives running commands the grace time to end. A second signal ends \
them at once, a third one kills them.

`kill -9` of the worker leaves running commands behind; under systemd they end with it (examples/cued-work.service).";

#[derive(Debug, Args)]
pub struct Work {
    /// Claim runs whose payload has this task
    #[arg(long, value_name = "TASK", conflicts_with = "file", required_unless_present_any = ["file", "agent"], value_parser = filter)]
    task: Option<String>,

    /// File in YAML with several tasks, each with `run`, and if needed `timeout`, `cwd` and `env`
    ///
    /// An example: {tasks: {report: {run: [./report.sh, weekly], timeout: 10m, cwd: /srv, env: {LANG: C}}}}
    #[arg(long, value_name = "FILE", conflicts_with = "command")]
    file: Option<PathBuf>,

    /// Claim only runs of this agent; without --task, of any task
    #[arg(long, value_name = "AGENT", value_parser = filter)]
    agent: Option<String>,

    /// Commands that run at the same time
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=i64::from(MAX_JOBS)))]
    jobs: u16,

    /// Time after which a command is ended, and its run failed
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = duration)]
    timeout: Duration,

    /// Time that running commands have to end after SIGTERM or SIGINT
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration)]
    grace: Duration,

    /// Name of this worker in lists [default: the machine and the task]
    #[arg(long, value_name = "NAME", value_parser = name)]
    id: Option<String>,

    /// End after one run; exits with 8 if it failed
    #[arg(long)]
    once: bool,

    /// End when no run is waiting; exits with 8 if a run failed
    #[arg(long, conflicts_with = "once")]
    drain: bool,

    /// Leave the API key in the environment of the commands
    #[arg(long)]
    pass_key: bool,

    /// Format of the log on standard error
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    log_format: LogFormat,

    /// For tests: time between heartbeats.
    #[arg(long, value_name = "MILLIS", default_value_t = BEAT_MILLIS, hide = true, value_parser = clap::value_parser!(u64).range(1..))]
    beat_millis: u64,

    /// The program and its arguments, as they are: no shell reads them
    #[arg(last = true, value_name = "COMMAND", required_unless_present = "file")]
    command: Vec<OsString>,
}

impl Work {
    fn tasks(&self) -> Result<Vec<Task>, CliError> {
        let Some(file) = &self.file else {
            let task = Task {
                name: self.task.clone(),
                command: self.command.clone(),
                timeout: self.timeout,
                folder: None,
                environment: Vec::new(),
            };
            return match task.command_fault() {
                Some(fault) => Err(usage(fault)),
                None => Ok(vec![task]),
            };
        };
        let tasks = task_file::read(file, self.timeout)?;
        // One that is not there yet must not keep the others from working.
        for (task, fault) in tasks.iter().filter_map(|task| Some((task, task.command_fault()?))) {
            tracing::warn!(task = task.name, fault, "runs of a task will fail");
        }
        Ok(tasks)
    }

    fn default_id(&self) -> String {
        let of_file = self
            .file
            .as_deref()
            .and_then(Path::file_stem)
            .map(|stem| stem.to_string_lossy().into_owned());
        let subject =
            self.task.clone().or(of_file).or_else(|| self.agent.clone()).unwrap_or_default();
        let system = rustix::system::uname();
        let machine = system.nodename().to_string_lossy();
        format!("{machine}-{subject}")
            .chars()
            .filter(|char| !char.is_control())
            .take(MAX_NAME)
            .collect()
    }

    fn settings(&self) -> Result<Settings, CliError> {
        let mode = match (self.once, self.drain) {
            (true, _) => Mode::Once,
            (_, true) => Mode::Drain,
            _ => Mode::Forever,
        };
        Ok(Settings {
            worker_id: self.id.clone().unwrap_or_else(|| self.default_id()),
            tasks: self.tasks()?,
            agent: self.agent.clone(),
            jobs: if mode == Mode::Once { 1 } else { usize::from(self.jobs) },
            grace: self.grace,
            mode,
            passes_key: self.pass_key,
            beat: Duration::from_millis(self.beat_millis),
        })
    }
}

impl ClientAction for Work {
    fn run(self, context: &Context) -> Result<(), CliError> {
        let settings = self.settings()?;
        if context.is_curl() {
            return Err(usage("a worker makes many requests: --curl has no command to show"));
        }
        if context.target.key.is_none() {
            return Err(ClientError::NotSignedIn.into());
        }
        let failed =
            |error: std::io::Error| CliError::Failed(format!("the worker cannot start: {error}"));
        if init::is_first_process() {
            std::process::exit(init::run().map_err(failed)?);
        }
        let mode = settings.mode;
        let output = context.output.clone();
        let worker = Worker::new(Arc::clone(&context.client), settings, move |answer| {
            print_recorded(&output, answer)
        });
        let worker = worker.map_err(failed)?;
        let liveness = Liveness { what: "Worker", is_alive: Box::new(worker.liveness()) };
        let service =
            Arc::new(SystemdService::ready("Waiting for work", liveness).map_err(failed)?);
        let stopping = Arc::clone(&service);
        let summary = worker
            .run(move || stopping.stopping("Stopping: waiting for running commands"))
            .map_err(failed)?;
        tracing::info!(runs = summary.runs, failures = summary.failures, "worker stopped");
        result(summary, mode)
    }
}

/// The exit code: what is wrong with the worker before what is wrong with its runs.
fn result(summary: WorkerSummary, mode: Mode) -> Result<(), CliError> {
    let WorkerSummary { runs, failures, unreported, last_reason, error, is_stopped } = summary;
    if let Some(error) = error {
        return Err(error.into());
    }
    if unreported > 0 {
        let message = format!("{} not reported; the log has the reports", count(unreported, "run"));
        return Err(failed(message));
    }
    if mode != Mode::Forever && failures > 0 {
        let reason = last_reason.unwrap_or_default();
        return Err(CliError::WaitedFailed(format!(
            "{failures} of {} failed: {reason}",
            count(runs, "run")
        )));
    }
    let has_ended = mode == Mode::Forever || (mode == Mode::Once && runs > 0);
    if is_stopped && !has_ended {
        return Err(CliError::Interrupted("interrupted before the end of the work".to_owned()));
    }
    Ok(())
}

/// Prints the answer to a report, if a program reads the output. For people the log has a line.
fn print_recorded(output: &Output, answer: &ApiResponse) {
    if matches!(output.format, Format::Table | Format::Wide) {
        return;
    }
    if let Err(error) = output.object(answer, "execution_id", |_| Vec::new()) {
        tracing::warn!(%error, "the outcome was recorded, but not printed");
    }
}

fn name(text: &str) -> Result<String, String> {
    let is_valid =
        (1..=MAX_NAME).contains(&text.chars().count()) && !text.contains(char::is_control);
    if is_valid {
        Ok(text.to_owned())
    } else {
        Err(format!("expected 1 to {MAX_NAME} printable characters"))
    }
}
