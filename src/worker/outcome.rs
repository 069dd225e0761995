//! The report of a run: its exit code, the end of its output, and its outcome file.

use std::fs::OpenOptions;
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use serde_json::{Value, json};

use crate::domain::execution::outcome::{
    ARTIFACTS, MAX_ARTIFACTS, MAX_METADATA_BYTES, RESULT_URL, TEXTS, first_bad_artifact_url,
    is_storable_url, is_too_long_as_artifacts, storable,
};
use crate::domain::json::{self, JsonObject, JsonStr, JsonText, merged};

/// The entry of the metadata with the parts of the outcome file that the worker left out.
const METADATA_KEY: &str = "_cued_worker";

/// Longer files are not read: a report has no room for more.
const MAX_BYTES: usize = 65_536;

/// The body of the report (contract §5.5).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The reason why the run is a failure; `None` of a success.
    pub failure: Option<String>,
    pub body: JsonText,
}

impl Report {
    /// The report of a run that ended with this failure or none. A failure wins over the success of the other source:
    /// of the exit code or the file.
    pub fn new(
        exit_failure: Option<String>,
        stdout: &str,
        stderr: &str,
        file: &OutcomeFile,
    ) -> Self {
        let says_failure =
            || (file.success == Some(false)).then(|| "the outcome file says failure".to_owned());
        let failure = exit_failure.clone().or_else(says_failure);
        let mut entries: Vec<(&str, JsonText)> =
            vec![("success", (&json!(failure.is_none())).into())];
        let evidence = file.fields.iter().filter(|(name, _)| !matches!(*name, "result" | "error"));
        entries.extend(evidence.cloned());
        match &failure {
            None => {
                let output = || (!stdout.is_empty()).then(|| text(stdout));
                let result = file.field("result").cloned().or_else(output);
                entries.extend(result.map(|result| ("result", result)));
            }
            Some(failure) => {
                // The file's error, else the end of standard error, else that of standard output; then the reason. Of an
                // output the last line is the first: messages show the beginning.
                let of_file =
                    file.field("error").and_then(|error| error.get().as_text().map(String::from));
                let error = match (exit_failure, of_file) {
                    (None, Some(error)) => error,
                    (_, of_file) => {
                        let output = [stderr, stdout].into_iter().map(last_line_first);
                        let mut said = of_file.into_iter().chain(output);
                        let said = said.find(|said| !said.trim().is_empty());
                        said.map_or_else(
                            || failure.clone(),
                            |said| format!("{}\n{failure}", said.trim_end()),
                        )
                    }
                };
                entries.push(("error", text(&error)));
            }
        }
        entries.extend(file.metadata_with_notes().map(|metadata| ("metadata", metadata)));
        let entries = entries.iter().map(|(name, value)| (*name, value.get())).collect();
        Self { failure, body: JsonText::object(entries) }
    }
}

/// A traceback ends with what happened.
fn last_line_first(output: &str) -> String {
    match output.trim_end().rsplit_once('\n') {
        Some((before, last)) => format!("{}\n{before}", last.trim()),
        None => output.to_owned(),
    }
}

fn text(text: &str) -> JsonText {
    JsonText::from(&Value::from(text))
}

/// The file for a report of more than an exit code.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OutcomeFile {
    success: Option<bool>,
    /// `result`, `error` and the evidence, as they are reported.
    fields: Vec<(&'static str, JsonText)>,
    metadata: Option<JsonText>,
    /// The reason why the file was not used.
    fault: Option<String>,
    /// Fields that cannot be reported.
    dropped: Vec<String>,
}

impl OutcomeFile {
    /// Reads the file. A missing file is like an empty one.
    pub fn read(path: &Path) -> Self {
        match bytes(path) {
            Ok(bytes) => Self::parse(&bytes),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Self::default(),
            Err(error) => Self::faulty(format!("cannot be read: {error}")),
        }
    }

    fn parse(bytes: &[u8]) -> Self {
        if bytes.is_empty() {
            return Self::default();
        }
        if bytes.len() > MAX_BYTES {
            return Self::faulty(format!("is longer than {MAX_BYTES} bytes"));
        }
        let text = match json::read(bytes) {
            Ok(text) => text,
            Err(error) => return Self::faulty(format!("is no JSON: {error}")),
        };
        let Some(object) = JsonObject::from_text(text.get()) else {
            return Self::faulty("is no JSON object".to_owned());
        };
        let mut file = Self::default();
        for name in object.keys() {
            let Some(value) = object.get(&name).filter(|value| !value.is_null()) else { continue };
            if !file.take(&name, value) {
                file.dropped.push(name.into());
            }
        }
        file
    }

    fn faulty(fault: String) -> Self {
        Self { fault: Some(fault), ..Self::default() }
    }

    fn field(&self, name: &str) -> Option<&JsonText> {
        self.fields.iter().find(|(field, _)| *field == name).map(|(_, value)| value)
    }

    /// Adds a field. Returns `false` if it cannot be reported.
    fn take(&mut self, name: &str, value: JsonStr<'_>) -> bool {
        let known =
            TEXTS.into_iter().chain(["result", "error", ARTIFACTS]).find(|field| *field == name);
        let is_valid = match name {
            "success" => value.as_bool().is_some(),
            "metadata" => {
                value.entries().is_some()
                    && JsonText::from(value).as_str().len() <= MAX_METADATA_BYTES
            }
            ARTIFACTS => are_artifacts(value),
            RESULT_URL => value
                .as_text()
                .is_some_and(|text| storable(&text).is_some() && is_storable_url(&text)),
            _ => known.is_some() && value.as_text().is_some_and(|text| storable(&text).is_some()),
        };
        match name {
            _ if !is_valid => {}
            "success" => self.success = value.as_bool(),
            "metadata" => self.metadata = Some(value.into()),
            _ => self.fields.extend(known.map(|field| (field, value.into()))),
        }
        is_valid
    }

    /// The metadata of the file, with the worker's notes about the file.
    fn metadata_with_notes(&self) -> Option<JsonText> {
        let note = match &self.fault {
            Some(fault) => json!({"outcome_file": format!("The outcome file {fault}")}),
            None if self.dropped.is_empty() => return self.metadata.clone(),
            None => json!({"dropped_fields": self.dropped}),
        };
        let note = JsonText::from(&json!({METADATA_KEY: note}));
        Some(match &self.metadata {
            Some(own) => merged(own.get(), note.get()),
            None => note,
        })
    }
}

fn are_artifacts(value: JsonStr<'_>) -> bool {
    value.items().is_some_and(|items| items.count() <= MAX_ARTIFACTS)
        && !is_too_long_as_artifacts(value)
        && first_bad_artifact_url(value).is_none()
}

fn bytes(path: &Path) -> io::Result<Vec<u8>> {
    // A command may have put a pipe there, whose opening would wait for a writer.
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file"));
    }
    let mut bytes = Vec::new();
    file.take(MAX_BYTES as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The report of a run with this failure, which wrote `o` and `e`.
    fn report(failure: Option<&str>, stdout: &str, stderr: &str, file: &str) -> Value {
        let file = OutcomeFile::parse(file.as_bytes());
        Report::new(failure.map(str::to_owned), stdout, stderr, &file).body.get().to_value()
    }

    #[test]
    fn a_report_has_the_output_or_the_reason_and_a_failure_wins() {
        let fails = r#"{"success": false, "error": "no disk"}"#;
        let succeeds = r#"{"success": true, "result": "well", "external_id": "x"}"#;
        let says_failure = r#"{"success": false}"#;
        for (failure, stdout, stderr, file, expected) in [
            ("", "done\n", "noise", "", json!({"result": "done\n"})),
            ("", "", "", "", json!({})),
            ("", "o", "", succeeds, json!({"result": "well", "external_id": "x"})),
            ("exit code 3", "half\n", "bad\n", "", json!({"error": "bad\nexit code 3"})),
            ("exit code 3", "half\n", " \n", "", json!({"error": "half\nexit code 3"})),
            (
                "exit code 1",
                "",
                "Trace:\n  a\n\nBoom: b\n\n",
                "",
                json!({"error": "Boom: b\nTrace:\n  a\nexit code 1"}),
            ),
            ("worker stopped", "", "", "", json!({"error": "worker stopped"})),
            (
                "exit code 1",
                "o\n",
                "",
                succeeds,
                json!({"error": "o\nexit code 1", "external_id": "x"}),
            ),
            ("", "o", "e", fails, json!({"error": "no disk"})),
            ("exit code 9", "o", "e", fails, json!({"error": "no disk\nexit code 9"})),
            ("", "o", "", says_failure, json!({"error": "o\nthe outcome file says failure"})),
        ] {
            let mut expected = expected;
            expected["success"] = expected["error"].is_null().into();
            expected.as_object_mut().unwrap().retain(|_, value| !value.is_null());
            let failure = Some(failure).filter(|failure| !failure.is_empty());
            assert_eq!(report(failure, stdout, stderr, file), expected, "{failure:?} {file}");
        }
    }
}
