//! `cued work`: runs a command for each run of a task.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use serde::Deserialize;
use serde_json::Value;

use crate::cli::client::command::ClientAction;
use crate::cli::client::context::Context;
use crate::cli::error::{CliError, failed, usage};
use crate::cli::input;
use crate::cli::output::table::parse_duration;
use crate::cli::output::{Format, Output, count};
use crate::client::request::{ApiResponse, ClientError};
use crate::logging::LogFormat;
use crate::systemd::{Liveness, SystemdService};

use crate::worker::state::{Mode, Settings, Task, WorkerSummary};
use crate::worker::{MAX_NAME, Worker};

/// Time between two heartbeats of a worker. The server marks one as stale after 180 seconds without.
const BEAT_MILLIS: u64 = 60_000;

/// Slots at most: each is a thread and a connection.
const MAX_JOBS: u16 = 256;

/// Bytes of a task or agent that the server can filter by (contract §7.1).
const MAX_FILTER: usize = 255;

pub const HELP: &str = "Start a command for each run of a task

Claims the runs of worker cues whose payload has this task, starts the command for each, and reports its outcome. Needs \
no open port.

The command gets the payload as JSON on standard input, and CUED_EXECUTION_ID, CUED_CUE_ID, CUED_CUE_NAME, CUED_TASK, \
CUED_SCHEDULED_FOR, CUED_ATTEMPT, CUED_WORKER_ID, CUED_URL, CUED_PAYLOAD (up to 32 KiB) and CUED_OUTCOME_FILE in its \
environment; the same with CUEAPI_ in front. Exit code 0 reports success, with the last 4 KiB of standard output as the result; any other code reports failure, with \
the last 4 KiB of standard error. The command may write a JSON object with success, result, error, \
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
        let tasks = read_tasks(file, self.timeout)?;
        // One that is not there yet must not keep the others from working.
        for (task, fault) in tasks.iter().filter_map(|task| Some((task, task.command_fault()?))) {
            tracing::warn!(task = task.name, fault, "runs of a task will fail");
        }
        Ok(tasks)
    }

    fn default_id(&self) -> String {
        let of_file =
            self.file.as_deref().and_then(Path::file_stem).map(|stem| stem.to_string_lossy().into_owned());
        let subject = self.task.clone().or(of_file).or_else(|| self.agent.clone()).unwrap_or_default();
        let system = rustix::system::uname();
        let machine = system.nodename().to_string_lossy();
        format!("{machine}-{subject}").chars().filter(|char| !char.is_control()).take(MAX_NAME).collect()
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
        let mode = settings.mode;
        let output = context.output.clone();
        let failed = |error: std::io::Error| CliError::Failed(format!("the worker cannot start: {error}"));
        let worker =
            Worker::new(Arc::clone(&context.client), settings, move |answer| print_recorded(&output, answer));
        let worker = worker.map_err(failed)?;
        let liveness = Liveness { what: "Worker", is_alive: Box::new(worker.liveness()) };
        let service = Arc::new(SystemdService::ready("Waiting for work", liveness).map_err(failed)?);
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
        return Err(CliError::WaitedFailed(format!("{failures} of {} failed: {reason}", count(runs, "run"))));
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

fn duration(text: &str) -> Result<Duration, String> {
    let duration = parse_duration(text)?;
    Duration::try_from(duration).map_err(|error| error.to_string())
}

fn filter(text: &str) -> Result<String, String> {
    match text.len() {
        1..=MAX_FILTER => Ok(text.to_owned()),
        _ => Err(format!("expected 1 to {MAX_FILTER} bytes")),
    }
}

fn name(text: &str) -> Result<String, String> {
    let is_valid = (1..=MAX_NAME).contains(&text.chars().count()) && !text.contains(char::is_control);
    if is_valid { Ok(text.to_owned()) } else { Err(format!("expected 1 to {MAX_NAME} printable characters")) }
}

/// Names in a heartbeat (contract §7.4).
const MAX_TASKS: usize = 100;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TaskFile {
    tasks: BTreeMap<String, Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    run: Vec<Word>,
    timeout: Option<Word>,
    cwd: Option<PathBuf>,
    #[serde(default)]
    env: BTreeMap<String, Word>,
}

/// A text, or a number or boolean as written (1.10 is not 1.1).
#[derive(Deserialize)]
#[serde(try_from = "Value")]
struct Word(String);

impl TryFrom<Value> for Word {
    type Error = String;

    fn try_from(value: Value) -> Result<Self, String> {
        match value {
            Value::String(text) if !text.contains('\0') => Ok(Self(text)),
            Value::Number(_) | Value::Bool(_) => Ok(Self(value.to_string())),
            other => Err(format!("{other} should be a text without NUL, a number, true or false")),
        }
    }
}

/// Reads the tasks of a file. `timeout` is that of tasks that have none.
fn read_tasks(path: &Path, timeout: Duration) -> Result<Vec<Task>, CliError> {
    let path = path.display().to_string();
    let file = input::structured(&path, &format!("@{path}"))?;
    parse_tasks(file, timeout).map_err(|fault| usage(format!("{path}: {fault}")))
}

fn parse_tasks(file: Value, timeout: Duration) -> Result<Vec<Task>, String> {
    let TaskFile { tasks } = serde_json::from_value(file).map_err(|error| error.to_string())?;
    if tasks.is_empty() || tasks.len() > MAX_TASKS {
        return Err(format!("`tasks` should have 1 to {MAX_TASKS} tasks; it has {}", tasks.len()));
    }
    let task = |(name, entry): (String, Value)| {
        parse_task(&name, entry, timeout).map_err(|fault| format!("tasks.{name}: {fault}"))
    };
    tasks.into_iter().map(task).collect()
}

fn parse_task(name: &str, entry: Value, timeout: Duration) -> Result<Task, String> {
    filter(name)?;
    let Entry { run, timeout: own, cwd, env } =
        serde_json::from_value(entry).map_err(|error| error.to_string())?;
    if run.first().is_none_or(|program| program.0.is_empty()) {
        return Err("`run` should be a list of the program and its arguments, such as [./report.sh, weekly]"
            .to_owned());
    }
    if let Some(name) = env.keys().find(|name| name.is_empty() || name.contains(['=', '\0'])) {
        return Err(format!("`env`: {name:?} should be the name of a variable, without `=` and NUL"));
    }
    Ok(Task {
        name: Some(name.to_owned()),
        command: run.into_iter().map(|word| word.0.into()).collect(),
        timeout: own.map_or(Ok(timeout), |own| duration(&own.0))?,
        folder: cwd.filter(|folder| !folder.as_os_str().is_empty()),
        environment: env.into_iter().map(|(name, word)| (name, word.0)).collect(),
    })
}

#[cfg(test)]
mod tests {
    use crate::cli::input::yaml;

    use super::*;

    fn parse(text: &str) -> Result<Vec<Task>, String> {
        parse_tasks(yaml::read(text).unwrap(), Duration::from_secs(600))
    }

    #[test]
    fn a_file_names_tasks_with_their_commands() {
        let tasks = parse(
            "tasks:\n  report:\n    run: [./report.sh, a b, 0.50]\n    timeout: 2m\n    cwd: /srv\n\
             \x20   env: {A: b, COUNT: 7, RATE: 1.50, DEBUG: true, EMPTY: \"\"}\n  clean: {run: [\"true\"]}\n",
        );
        let clean = Task {
            name: Some("clean".to_owned()),
            command: vec!["true".into()],
            timeout: Duration::from_secs(600),
            folder: None,
            environment: Vec::new(),
        };
        let environment = [("A", "b"), ("COUNT", "7"), ("DEBUG", "true"), ("EMPTY", ""), ("RATE", "1.50")];
        let report = Task {
            name: Some("report".to_owned()),
            command: vec!["./report.sh".into(), "a b".into(), "0.50".into()],
            timeout: Duration::from_secs(120),
            folder: Some("/srv".into()),
            environment: environment.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec(),
        };
        assert_eq!(tasks.unwrap(), [clean, report]);
    }

    #[test]
    fn a_fault_names_its_place_and_what_is_expected() {
        for (text, part) in [
            ("tasks: {}", "1 to 100 tasks"),
            ("tasks: {a: {run: []}}", "tasks.a: `run` should be a list of the program"),
            ("tasks: {a: {run: [x, [1]]}}", "tasks.a: [1] should be a text"),
            ("tasks: {a: {run: x}}", "tasks.a: invalid type: string \"x\""),
            ("tasks: {a: {timeout: 1m}}", "tasks.a: missing field `run`"),
            ("tasks: {a: 1}", "tasks.a: invalid type"),
            ("tasks: [a]", "invalid type: sequence"),
            ("tsks: {}", "unknown field `tsks`, expected `tasks`"),
            ("tasks: {a: {run: [x], timeout: 2}}", "tasks.a: \"2\" is no duration"),
            ("tasks: {a: {run: [x], comand: 1}}", "tasks.a: unknown field `comand`, expected one of"),
            ("tasks: {a: {run: [x], env: {A=B: c}}}", "tasks.a: `env`: \"A=B\" should be the name"),
            ("tasks: {b: {run: [x], env: {X: \"a\\0\"}}}", "tasks.b: "),
            ("tasks: {b: {run: [x], env: {X: null}}}", "tasks.b: "),
            ("tasks: {\"\": {run: [x]}}", "expected 1 to 255 bytes"),
        ] {
            let fault = parse(text).unwrap_err();
            assert!(fault.contains(part), "{text}: {fault}");
        }
    }
}
