//! Runs the command of a claimed execution, and reports its outcome.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use serde_json::{Value, json};
use tempfile::TempPath;

use crate::domain::json::JsonText;
use crate::worker::outcome::{OutcomeFile, Report};
use crate::worker::process::{Cause, ProcessExit, TerminationPolicy, run as run_process};
use crate::worker::state::{Run, Shared, pause_after};

/// Between SIGTERM and SIGKILL.
const KILL_AFTER: Duration = Duration::from_secs(10);

/// How long output is read after the end of the command.
const DRAIN: Duration = Duration::from_secs(2);

/// Larger payloads are on standard input only: systems limit the size of the environment.
const MAX_PAYLOAD: usize = 32 * 1024;

/// Errors of the machine, which are no fault of the command.
const SHORTAGES: [Errno; 6] =
    [Errno::MFILE, Errno::NFILE, Errno::AGAIN, Errno::NOMEM, Errno::NOSPC, Errno::DQUOT];

/// Variables that a command does not get: the key, where it is stored, and the connection to the service manager.
const REMOVED: [&str; 7] = [
    "CUED_API_KEY",
    "CUEAPI_API_KEY",
    "CUED_CONFIG",
    "CUED_PROFILE",
    "NOTIFY_SOCKET",
    "WATCHDOG_USEC",
    "WATCHDOG_PID",
];

/// Runs an execution and reports its outcome.
pub fn execute(worker: &Shared, run: &Arc<Run>) {
    worker.wait_for_earlier(run);
    let (claim, id) = (&run.claim, run.claim.execution_id.as_str());
    let name = worker.task(run.place).name.clone().unwrap_or_else(|| task_of(claim.payload.get()));
    tracing::info!(
        execution_id = id,
        task = name,
        cue = claim.cue_name,
        attempt = claim.attempt,
        "run started"
    );
    let begin = worker.now();
    let result = attempt(worker, run, &name);
    run.end_lease();
    let end = worker.now();
    let duration_ms = u64::try_from((end - begin).as_millis()).unwrap_or(u64::MAX);
    let report = match result {
        Ok(Some(report)) => report,
        Ok(None) => {
            let message = "run ended: the execution is no longer this worker's";
            tracing::warn!(execution_id = id, task = name, duration_ms, message);
            return worker.end(run, Some("the claim was lost".to_owned()), true);
        }
        Err(error) => {
            let message =
                "the machine cannot run a command: another worker can run it after the lease";
            tracing::error!(execution_id = id, task = name, %error, message);
            worker.give_up(None);
            return worker.end(run, Some(format!("the command was not started: {error}")), false);
        }
    };
    match &report.failure {
        None => tracing::info!(execution_id = id, task = name, duration_ms, "run succeeded"),
        Some(reason) => {
            tracing::warn!(execution_id = id, task = name, duration_ms, reason, "run failed")
        }
    }
    let is_reported = deliver(worker, id, &report, end);
    worker.end(run, report.failure, is_reported);
}

/// Runs the command; `None` if the execution is no longer this worker's.
/// Errors: if the machine has no file, process, memory or disk space for the command.
fn attempt(worker: &Shared, run: &Run, name: &str) -> io::Result<Option<Report>> {
    let task = worker.task(run.place);
    let file = outcome_file()?;
    let payload = run.claim.payload.get().as_bytes().to_vec();
    let policy = TerminationPolicy { timeout: task.timeout, kill_after: KILL_AFTER, drain: DRAIN };
    let mut command = command(worker, run, name, &file);
    match run_process(&mut command, payload, policy, worker.client.clock(), || run.end_request()) {
        Ok(ProcessExit { cause: Some(Cause::Lost), .. }) => Ok(None),
        Ok(exit) => {
            let file = OutcomeFile::read(&file);
            Ok(Some(Report::new(failure(&exit, task.timeout), &exit.stdout, &exit.stderr, &file)))
        }
        Err(error)
            if Errno::from_io_error(&error).is_some_and(|errno| SHORTAGES.contains(&errno)) =>
        {
            Err(error)
        }
        Err(error) => {
            // The system has the same error for a missing folder as for a missing program.
            let program = command.get_program().display();
            let fault =
                task.folder_fault().unwrap_or_else(|| format!("cannot run {program}: {error}"));
            Ok(Some(Report::new(Some(fault), "", "", &OutcomeFile::default())))
        }
    }
}

/// Creates an empty outcome file that only this user can read. It is removed on drop.
pub fn outcome_file() -> io::Result<TempPath> {
    Ok(tempfile::Builder::new()
        .prefix("cued-outcome-")
        .suffix(".json")
        .tempfile()?
        .into_temp_path())
}

/// The variables of a command have the names of the published worker too, so that its handlers run unchanged.
fn command(worker: &Shared, run: &Run, name: &str, outcome: &Path) -> Command {
    let (task, claim, connection) =
        (worker.task(run.place), &run.claim, worker.client.connection());
    let mut words = task.command.iter();
    let mut command = Command::new(words.next().map(OsString::as_os_str).unwrap_or_default());
    command.args(words);
    for name in REMOVED {
        command.env_remove(name);
    }
    let attempt = claim.attempt.to_string();
    let key = connection.key.as_ref().filter(|_| worker.settings.passes_key);
    command.env("CUED_URL", &connection.url).env("CUEAPI_BASE_URL", &connection.url);
    for (name, value) in [
        ("EXECUTION_ID", Some(claim.execution_id.as_str())),
        ("CUE_ID", Some(&claim.cue_id)),
        ("CUE_NAME", Some(&claim.cue_name)),
        ("TASK", Some(name)),
        ("SCHEDULED_FOR", Some(&claim.scheduled_for)),
        ("ATTEMPT", Some(&attempt)),
        ("WORKER_ID", Some(&worker.settings.worker_id)),
        ("PAYLOAD", Some(claim.payload.get()).filter(|payload| payload.len() <= MAX_PAYLOAD)),
        ("OUTCOME_FILE", outcome.to_str()),
        ("API_KEY", key.map(|key| key.expose().as_str())),
    ] {
        if let Some(value) = value {
            // An environment has no NUL.
            let value = value.replace('\0', "");
            command.env(format!("CUED_{name}"), &value).env(format!("CUEAPI_{name}"), value);
        }
    }
    command.envs(task.environment.iter().map(|(name, value)| (name, value)));
    if let Some(folder) = &task.folder {
        command.current_dir(folder);
    }
    command
}

/// The reason why a run has failed; `None` after exit code 0.
fn failure(exit: &ProcessExit, timeout: Duration) -> Option<String> {
    match (exit.cause, exit.status.code()) {
        (Some(Cause::TimedOut), _) => Some(format!("timed out after {} s", timeout.as_secs())),
        (Some(_), _) => Some("worker stopped".to_owned()),
        (None, Some(0)) => None,
        (None, Some(code)) => Some(format!("exit code {code}")),
        (None, None) => {
            // The standard library knows the names: `signal: 9 (SIGKILL)`.
            let text = exit.status.to_string();
            let name =
                text.split(['(', ')']).find(|part| part.starts_with("SIG")).map(str::to_owned);
            let number = exit.status.signal().unwrap_or_default();
            Some(format!("killed by {}", name.unwrap_or_else(|| format!("signal {number}"))))
        }
    }
}

/// The task in a payload; empty if it names none.
fn task_of(payload: &str) -> String {
    let payload: Value = serde_json::from_str(payload).unwrap_or_default();
    payload["task"].as_str().unwrap_or_default().to_owned()
}

/// Sends the report until the server has it. Returns `false` if it was given up; it is then in the log.
fn deliver(worker: &Shared, id: &str, report: &Report, ended_at: Duration) -> bool {
    let (mut failures, mut body) = (0, report.body.clone());
    // The server accepts this one even when the account has no room for more.
    let bare = JsonText::from(&json!({"success": report.failure.is_none()}));
    loop {
        let error = match worker.api().report(id, &body) {
            Ok(answer) => {
                (worker.on_recorded)(&answer);
                return true;
            }
            Err(error) => error,
        };
        let is_refused = matches!(error.status(), Some(400 | 403 | 413 | 422));
        match error.code() {
            // By this worker, if the answer was lost, or by another one.
            "outcome_already_reported" => return true,
            "execution_not_found" => {
                tracing::warn!(execution_id = id, %error, "the execution is gone, and its outcome with it");
                return true;
            }
            _ if is_refused && body != bare => {
                let report = report.body.as_str();
                tracing::warn!(execution_id = id, %error, report, "the report was refused; sending the result only");
                body = bare.clone();
            }
            _ if error.may_pass() => {
                tracing::warn!(execution_id = id, %error, "the report was not accepted; trying again");
                failures += 1;
                if !worker.wait_to_report(pause_after(failures, error.retry_after()), ended_at) {
                    break;
                }
            }
            _ => {
                if !is_refused {
                    worker.give_up(Some(error));
                }
                break;
            }
        }
    }
    // From the log a person can send it.
    tracing::error!(
        execution_id = id,
        report = report.body.as_str(),
        "the report was not recorded"
    );
    false
}

#[cfg(test)]
mod tests {
    use std::process::ExitStatus;

    use super::*;

    #[test]
    fn the_failure_of_a_run_is_its_exit_code_its_signal_or_its_cause() {
        let failure = |status, cause| {
            let status = ExitStatus::from_raw(status);
            let exit = ProcessExit { status, cause, stdout: String::new(), stderr: String::new() };
            failure(&exit, Duration::from_secs(600)).unwrap_or_default()
        };
        assert_eq!(failure(0, None), "");
        assert_eq!(failure(3 << 8, None), "exit code 3");
        assert_eq!(failure(libc::SIGKILL, None), "killed by SIGKILL");
        assert_eq!(failure(libc::SIGSEGV | 0x80, None), "killed by SIGSEGV");
        assert_eq!(failure(63, None), "killed by signal 63");
        assert_eq!(failure(0, Some(Cause::TimedOut)), "timed out after 600 s");
        assert_eq!(failure(0, Some(Cause::Stopped)), "worker stopped");
    }
}
