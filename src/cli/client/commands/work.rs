//! `cued work`: runs a command for each run of a task; and the file of `cued work --file`: tasks, each with its command.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use serde_json::Value;

use crate::cli::client::command::ClientAction;
use crate::cli::client::context::Context;
use crate::cli::error::{CliError, Result, failed, usage};
use crate::cli::input;
use crate::cli::input::placed::{Entry, Node, Place, Placed};
use crate::cli::input::yaml::{YamlFault, read_with_places};
use crate::cli::nearest::did_you_mean;
use crate::cli::output::table::parse_duration;
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

/// Start a command for each run of a task
///
/// Claims the runs of worker cues whose payload has this task, starts the command for each, and reports its
/// outcome. Needs no open port.
///
/// The command gets the payload as JSON on standard input, and CUED_EXECUTION_ID, CUED_CUE_ID, CUED_CUE_NAME,
/// CUED_TASK, CUED_SCHEDULED_FOR, CUED_ATTEMPT, CUED_WORKER_ID, CUED_URL, CUED_PAYLOAD (up to 32 KiB) and
/// CUED_OUTCOME_FILE in its environment; the same with CUEAPI_ in front. Exit code 0 reports success, with the last
/// 4 KiB of standard output as the result; any other code reports failure, with the last 4 KiB of standard error,
/// its last line first. The command may write a JSON object with success, result, error, summary, external_id,
/// result_url, result_ref, result_type, artifacts or metadata to the outcome file.
///
/// On SIGTERM or SIGINT the worker claims nothing more, and gives running commands the grace time to end. A second
/// signal ends them at once, a third one kills them.
///
/// `kill -9` of the worker leaves running commands behind; under systemd they end with it
/// (examples/cued-work.service).
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

    /// Pass the API key to the commands as CUED_API_KEY
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
    fn tasks(&self) -> Result<Vec<Task>> {
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

    fn settings(&self) -> Result<Settings> {
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
    fn run(self, context: &Context) -> Result {
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
fn result(summary: WorkerSummary, mode: Mode) -> Result {
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

/// Names in a heartbeat (contract §7.4).
const MAX_TASKS: usize = 100;

/// Bytes of a task or agent that the server can filter by (contract §7.1).
const MAX_FILTER: usize = 255;

const FIELDS: [&str; 4] = ["run", "timeout", "cwd", "env"];

/// Reads the tasks of a file. `timeout` is that of tasks that have none.
fn read_tasks(path: &Path, timeout: Duration) -> Result<Vec<Task>> {
    let path = path.display().to_string();
    let text = input::text("--file", &format!("@{path}"))?;
    parse(&text, timeout).map_err(|fault| usage(format!("{path}:{fault}")))
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

fn fault(place: Place, reason: impl Into<String>) -> YamlFault {
    YamlFault { place, reason: reason.into() }
}

/// The tasks in the order of their names. Errors: the first fault.
fn parse(text: &str, timeout: Duration) -> Result<Vec<Task>, YamlFault> {
    let file = read_with_places(text)?;
    check_fields(&file, &["tasks"], "the file")?;
    let tasks = file.get("tasks").unwrap_or(&file);
    if tasks == &file || !tasks.is_object() {
        return Err(fault(
            tasks.place,
            "a file has its tasks by name: tasks: {report: {run: [./report.sh]}}",
        ));
    }
    let count = tasks.entries().len();
    if count == 0 || count > MAX_TASKS {
        return Err(fault(
            tasks.place,
            format!("`tasks` must have 1 to {MAX_TASKS} tasks; it has {count}"),
        ));
    }
    let mut read = Vec::new();
    for Entry { key, place, value } in tasks.entries() {
        let named = |fault: YamlFault| YamlFault {
            reason: format!("tasks.{key}: {}", fault.reason),
            ..fault
        };
        filter(key).map_err(|reason| named(fault(*place, format!("the name: {reason}"))))?;
        read.push(parse_task(key, value, timeout).map_err(named)?);
    }
    read.sort_by(|one: &Task, other| one.name.cmp(&other.name));
    Ok(read)
}

fn parse_task(name: &str, task: &Placed, timeout: Duration) -> Result<Task, YamlFault> {
    if !task.is_object() {
        return Err(fault(
            task.place,
            "a task is an object of fields, such as {run: [./report.sh, weekly]}",
        ));
    }
    check_fields(task, &FIELDS, "a task")?;
    // As with a field that is left out.
    let field = |name: &str| task.get(name).filter(|value| !value.is_null());
    let command =
        words_of(field("run").ok_or_else(|| fault(task.place, "`run` is missing: its command"))?)?;
    let timeout = match field("timeout") {
        None => timeout,
        Some(value) => {
            let refused = |reason| fault(value.place, format!("`timeout`: {reason}"));
            duration(&word(value, "timeout")?).map_err(refused)?
        }
    };
    let folder = field("cwd").map(|value| word(value, "cwd")).transpose()?;
    let environment = field("env").map(variables_of).transpose()?.unwrap_or_default();
    Ok(Task {
        name: Some(name.to_owned()),
        command: command.into_iter().map(Into::into).collect(),
        timeout,
        folder: folder.filter(|folder| !folder.is_empty()).map(Into::into),
        environment,
    })
}

/// Errors: the first field that none of `known` is.
fn check_fields(object: &Placed, known: &[&str], owner: &str) -> Result<(), YamlFault> {
    match object.entries().iter().find(|entry| !known.contains(&entry.key.as_str())) {
        None => Ok(()),
        Some(entry) => {
            let otherwise = format!("{owner} has {}", known.join(", "));
            let advice = did_you_mean(&entry.key, known.iter().copied(), otherwise);
            Err(fault(entry.place, format!("there is no field {:?}; {advice}", entry.key)))
        }
    }
}

fn words_of(run: &Placed) -> Result<Vec<String>, YamlFault> {
    let mut example = "./report.sh, weekly".to_owned();
    match &run.node {
        Node::List(words) if !words.is_empty() => {
            let words: Result<Vec<String>, _> =
                words.iter().map(|value| word(value, "run")).collect();
            let words = words?;
            if !words[0].is_empty() {
                return Ok(words);
            }
        }
        Node::Scalar(Value::String(text)) if is_plain(text) => {
            example = text.split_whitespace().collect::<Vec<_>>().join(", ");
        }
        _ => {}
    }
    let rule = "`run` must be a list of the program and its arguments, such as";
    Err(fault(run.place, format!("{rule} [{example}]")))
}

/// Whether its words mean the same in a list of YAML.
fn is_plain(text: &str) -> bool {
    let is_plain = |char: char| char.is_ascii_alphanumeric() || " _./-".contains(char);
    text.starts_with(|char: char| char.is_ascii_alphanumeric() || "./".contains(char))
        && text.chars().all(is_plain)
}

/// The variables in the order of their names.
fn variables_of(variables: &Placed) -> Result<Vec<(String, String)>, YamlFault> {
    if !variables.is_object() {
        return Err(fault(variables.place, "`env` is an object of variables, such as {LANG: C}"));
    }
    let mut read = Vec::new();
    for Entry { key, place, value } in variables.entries() {
        if key.is_empty() || key.contains(['=', '\0']) {
            let rule = "must be the name of a variable, without `=` and NUL";
            return Err(fault(*place, format!("`env`: {key:?} {rule}")));
        }
        read.push((key.clone(), word(value, "env")?));
    }
    read.sort();
    Ok(read)
}

/// A text, or a number or boolean as written (1.10 is not 1.1).
fn word(value: &Placed, field: &str) -> Result<String, YamlFault> {
    match &value.node {
        Node::Scalar(Value::String(text)) if !text.contains('\0') => Ok(text.clone()),
        Node::Scalar(scalar @ (Value::Number(_) | Value::Bool(_))) => Ok(scalar.to_string()),
        _ => Err(fault(
            value.place,
            format!(
                "`{field}`: {} must be a text without NUL, a number, true or false",
                value.to_value()
            ),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<Task>, String> {
        parse(text, Duration::from_secs(600)).map_err(|fault| fault.to_string())
    }

    #[test]
    fn a_file_names_tasks_with_their_commands() {
        let tasks = read(
            "tasks:\n  report:\n    run: [./report.sh, a b, 0.50]\n    timeout: 2m\n    cwd: /srv\n\
             \x20   env: {A: b, COUNT: 7, RATE: 1.50, DEBUG: true, EMPTY: \"\"}\n  clean: {run: [\"true\"], cwd: null}\n",
        );
        let clean = Task {
            name: Some("clean".to_owned()),
            command: vec!["true".into()],
            timeout: Duration::from_secs(600),
            folder: None,
            environment: Vec::new(),
        };
        let environment =
            [("A", "b"), ("COUNT", "7"), ("DEBUG", "true"), ("EMPTY", ""), ("RATE", "1.50")];
        let report = Task {
            name: Some("report".to_owned()),
            command: vec!["./report.sh".into(), "a b".into(), "0.50".into()],
            timeout: Duration::from_secs(120),
            folder: Some("/srv".into()),
            environment: environment
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .to_vec(),
        };
        assert_eq!(tasks.unwrap(), [clean, report]);
    }

    #[test]
    fn a_fault_names_its_place_and_what_is_expected() {
        for (text, part) in [
            ("tasks: {}", "1:8: `tasks` must have 1 to 100 tasks; it has 0"),
            ("", "1:1: it is empty"),
            ("[]", "1:1: a file has its tasks by name"),
            ("tasks: [a]", "1:8: a file has its tasks by name"),
            ("tsks: {}", "1:1: there is no field \"tsks\"; did you mean \"tasks\"?"),
            ("tasks:\n  a: {run: []}", "2:12: tasks.a: `run` must be a list of the program"),
            ("tasks: {a: {run: [x, [1]]}}", "1:22: tasks.a: `run`: [1] must be a text"),
            (
                "tasks: {a: {run: ./x all}}",
                "1:18: tasks.a: `run` must be a list of the program and its arguments, such as [./x, all]",
            ),
            ("tasks: {a: {run: 'x \"y\"'}}", "such as [./report.sh, weekly]"),
            ("tasks: {a: {run: 1}}", "such as [./report.sh, weekly]"),
            ("tasks: {a: {timeout: 1m}}", "1:12: tasks.a: `run` is missing"),
            ("tasks: {a: 1}", "1:12: tasks.a: a task is an object of fields"),
            (
                "tasks: {a: {run: [x], timeout: 2}}",
                "1:32: tasks.a: `timeout`: \"2\" is no duration",
            ),
            (
                "tasks:\n  a:\n    run: [x]\n    timout: 3",
                "4:5: tasks.a: there is no field \"timout\"; did you mean \"timeout\"?",
            ),
            (
                "tasks: {a: {run: [x], xyz: 1}}",
                "there is no field \"xyz\"; a task has run, timeout, cwd, env",
            ),
            ("tasks: {a: {run: [x], env: {A=B: c}}}", "tasks.a: `env`: \"A=B\" must be the name"),
            ("tasks: {b: {run: [x], env: {X: \"a\\0\"}}}", "tasks.b: `env`"),
            ("tasks: {b: {run: [x], env: {X: null}}}", "tasks.b: `env`: null must be"),
            ("tasks: {b: {run: [x], env: [a]}}", "1:28: tasks.b: `env` is an object"),
            ("tasks: {b: {run: [x], cwd: [a]}}", "tasks.b: `cwd`"),
            ("tasks: {\"\": {run: [x]}}", "expected 1 to 255 bytes"),
            ("a\n  b: c: d", "2:"),
        ] {
            let fault = read(text).unwrap_err();
            assert!(fault.contains(part), "{text}: {fault}");
        }
    }
}
