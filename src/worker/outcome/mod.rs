//! The report of a run: its exit code, the end of its output, and its outcome file.

pub mod file;
pub mod folder;
pub mod tail;

use std::time::Duration;

use serde_json::{Value, json};

use crate::domain::execution::outcome::MAX_METADATA_BYTES;
use crate::domain::json::{JsonText, merged};
use crate::worker::outcome::file::OutcomeFile;

/// The entry of the metadata with the parts of the outcome file that the worker left out.
const METADATA_KEY: &str = "_cued_worker";

/// The reason why a run is over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    Exit(i32),
    Signal(i32),
    TimedOut(Duration),
    /// The worker stopped before the command ended.
    Stopped,
    /// The command could not be run.
    NotStarted(String),
}

impl Ended {
    #[must_use]
    pub fn is_success(&self) -> bool {
        *self == Self::Exit(0)
    }

    /// The reason in words: `exit code 3`.
    #[must_use]
    pub fn reason(&self) -> String {
        match self {
            Self::Exit(code) => format!("exit code {code}"),
            Self::Signal(number) => match signal_name(*number) {
                Some(name) => format!("killed by {name}"),
                None => format!("killed by signal {number}"),
            },
            Self::TimedOut(limit) => format!("timed out after {} s", limit.as_secs()),
            Self::Stopped => "worker stopped".to_owned(),
            Self::NotStarted(reason) => reason.clone(),
        }
    }
}

/// The names of the signals that end commands in practice.
fn signal_name(number: i32) -> Option<&'static str> {
    let names = [
        (libc::SIGHUP, "SIGHUP"),
        (libc::SIGINT, "SIGINT"),
        (libc::SIGQUIT, "SIGQUIT"),
        (libc::SIGILL, "SIGILL"),
        (libc::SIGTRAP, "SIGTRAP"),
        (libc::SIGABRT, "SIGABRT"),
        (libc::SIGBUS, "SIGBUS"),
        (libc::SIGFPE, "SIGFPE"),
        (libc::SIGKILL, "SIGKILL"),
        (libc::SIGSEGV, "SIGSEGV"),
        (libc::SIGPIPE, "SIGPIPE"),
        (libc::SIGALRM, "SIGALRM"),
        (libc::SIGTERM, "SIGTERM"),
        (libc::SIGSYS, "SIGSYS"),
        (libc::SIGXCPU, "SIGXCPU"),
        (libc::SIGXFSZ, "SIGXFSZ"),
    ];
    names.into_iter().find(|(known, _)| *known == number).map(|(_, name)| name)
}

/// The body of the report (contract §5.5).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    pub success: bool,
    /// The reason why it is a failure.
    pub reason: Option<String>,
    pub body: JsonText,
}

impl Report {
    /// The report of a run. A failure wins over what the other source says: the exit code or the file.
    #[must_use]
    pub fn new(ended: &Ended, stdout: &str, stderr: &str, file: &OutcomeFile) -> Self {
        let success = ended.is_success() && file.success != Some(false);
        let mut entries: Vec<(&str, JsonText)> = vec![("success", (&json!(success)).into())];
        let evidence = file.fields.iter().filter(|(name, _)| !matches!(*name, "result" | "error"));
        entries.extend(evidence.cloned());
        let mut reason = None;
        if success {
            let result = file.field("result").cloned();
            let result = result.or_else(|| (!stdout.is_empty()).then(|| text(stdout)));
            entries.extend(result.map(|result| ("result", result)));
        } else {
            let why = match ended.is_success() {
                true => "the outcome file says failure".to_owned(),
                false => ended.reason(),
            };
            entries.push(("error", error(&why, stdout, stderr, file)));
            reason = Some(why);
        }
        entries.extend(metadata(file).map(|metadata| ("metadata", metadata)));
        let entries = entries.iter().map(|(name, value)| (*name, value.get())).collect();
        Self { success, reason, body: JsonText::object(entries) }
    }

    /// The same report without texts and evidence, for a server that refuses those.
    #[must_use]
    pub fn bare(&self, refusal: &str) -> Self {
        let notes = json!({METADATA_KEY: {"report_refused": refusal}});
        let body = json!({"success": self.success, "error": self.reason, "metadata": notes});
        Self { body: (&body).into(), ..self.clone() }
    }
}

/// The file's error, else the end of standard error, else that of standard output; then the reason.
fn error(reason: &str, stdout: &str, stderr: &str, file: &OutcomeFile) -> JsonText {
    let of_file = file.field("error").and_then(|error| error.get().as_text().map(String::from));
    if let Some(error) = of_file.as_ref().filter(|_| reason == "the outcome file says failure") {
        return text(error);
    }
    let said = [of_file.as_deref().unwrap_or_default(), stderr, stdout];
    let said = said.into_iter().map(str::trim_end).find(|said| !said.is_empty());
    text(&said.map_or_else(|| reason.to_owned(), |said| format!("{said}\n{reason}")))
}

/// The metadata of the file, with the worker's notes about the file.
fn metadata(file: &OutcomeFile) -> Option<JsonText> {
    let mut notes = serde_json::Map::new();
    if let Some(fault) = &file.fault {
        notes.insert("outcome_file".to_owned(), format!("The outcome file {fault}").into());
    }
    if !file.dropped.is_empty() {
        notes.insert("dropped_fields".to_owned(), json!(file.dropped));
    }
    let with = |notes: &serde_json::Map<String, Value>| {
        let notes = (!notes.is_empty()).then(|| JsonText::from(&json!({METADATA_KEY: notes})));
        match (&file.metadata, notes) {
            (Some(own), Some(notes)) => Some(merged(own.get(), notes.get())),
            (own, notes) => notes.or_else(|| own.clone()),
        }
    };
    let whole = with(&notes)?;
    if whole.as_str().len() <= MAX_METADATA_BYTES {
        return Some(whole);
    }
    // The server would refuse the whole report.
    notes.insert("metadata_bytes".to_owned(), json!(whole.as_str().len()));
    Some(JsonText::from(&json!({METADATA_KEY: notes})))
}

fn text(text: &str) -> JsonText {
    JsonText::from(&Value::from(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(ended: &Ended, stdout: &str, stderr: &str, file: &str) -> Value {
        Report::new(ended, stdout, stderr, &OutcomeFile::parse(file.as_bytes())).body.get().to_value()
    }

    #[test]
    fn exit_code_zero_is_a_success_with_the_output() {
        assert_eq!(
            report(&Ended::Exit(0), "done\n", "noise", ""),
            json!({"success": true, "result": "done\n"})
        );
        assert_eq!(report(&Ended::Exit(0), "", "", ""), json!({"success": true}));
    }

    #[test]
    fn another_end_is_a_failure_with_its_reason() {
        let error = |ended, stdout, stderr| report(&ended, stdout, stderr, "")["error"].clone();
        assert_eq!(error(Ended::Exit(3), "half\n", "bad\n"), "bad\nexit code 3");
        assert_eq!(error(Ended::Exit(3), "half\n", " \n"), "half\nexit code 3");
        assert_eq!(error(Ended::Signal(libc::SIGKILL), "", ""), "killed by SIGKILL");
        assert_eq!(error(Ended::Signal(63), "", ""), "killed by signal 63");
        assert_eq!(error(Ended::TimedOut(Duration::from_secs(600)), "", "x"), "x\ntimed out after 600 s");
        assert_eq!(error(Ended::Stopped, "", ""), "worker stopped");
    }

    #[test]
    fn a_failure_wins_over_a_success() {
        let file = r#"{"success": true, "result": "well", "external_id": "x"}"#;
        let failed = report(&Ended::Exit(1), "output\n", "", file);
        assert_eq!(failed, json!({"success": false, "error": "output\nexit code 1", "external_id": "x"}));
        let file = r#"{"success": false, "error": "no disk"}"#;
        assert_eq!(report(&Ended::Exit(0), "o", "e", file), json!({"success": false, "error": "no disk"}));
        assert_eq!(report(&Ended::Exit(9), "o", "e", file)["error"], "no disk\nexit code 9");
        let silent = report(&Ended::Exit(0), "o", "", r#"{"success": false}"#);
        assert_eq!(silent["error"], "o\nthe outcome file says failure");
    }

    #[test]
    fn the_metadata_name_the_parts_that_were_left_out() {
        let malformed = report(&Ended::Exit(0), "o", "", "{");
        let notes = malformed["metadata"][METADATA_KEY]["outcome_file"].as_str().unwrap();
        assert!(notes.starts_with("The outcome file is no JSON: "), "{notes}");
        let dropped = report(&Ended::Exit(0), "", "", r#"{"metadata": {"a": 1}, "other": 1}"#);
        assert_eq!(dropped["metadata"], json!({"a": 1, METADATA_KEY: {"dropped_fields": ["other"]}}));
        let large =
            format!(r#"{{"metadata": {{"a": "{}"}}, "summary": "s"}}"#, "x".repeat(MAX_METADATA_BYTES));
        let large = report(&Ended::Exit(0), "", "", &large);
        assert_eq!(
            (&large["summary"], &large["metadata"][METADATA_KEY]["metadata_bytes"]),
            (&json!("s"), &json!(10248))
        );
    }

    #[test]
    fn a_bare_report_keeps_the_outcome() {
        let failed = Report::new(&Ended::Exit(2), "", "x", &OutcomeFile::default());
        let bare = failed.bare("result_url is no URL").body.get().to_value();
        let notes = json!({METADATA_KEY: {"report_refused": "result_url is no URL"}});
        assert_eq!(bare, json!({"success": false, "error": "exit code 2", "metadata": notes}));
    }
}
