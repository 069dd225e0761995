//! The outcome file, in which a command may report more than its exit code.

use std::fs::OpenOptions;
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use crate::domain::execution::evidence::{
    ARTIFACTS, MAX_ARTIFACTS, RESULT_URL, TEXTS, first_bad_artifact_url, is_storable, is_storable_url,
    is_too_long_as_artifacts,
};
use crate::domain::json::{self, JsonObject, JsonStr, JsonText};

/// Longer files are not read: a report has no room for more.
pub const MAX_BYTES: usize = 65_536;

/// Names of fields that were left out, in the report. They come from the command.
const MAX_NAMES: usize = 20;
const MAX_NAME: usize = 100;

/// The output of a command.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OutcomeFile {
    pub success: Option<bool>,
    /// `result`, `error` and the evidence, as they are reported.
    pub fields: Vec<(&'static str, JsonText)>,
    pub metadata: Option<JsonText>,
    /// The reason why the file was not used.
    pub fault: Option<String>,
    /// Fields that cannot be reported.
    pub dropped: Vec<String>,
}

impl OutcomeFile {
    /// Reads the file. A missing file is like an empty one.
    #[must_use]
    pub fn read(path: &Path) -> Self {
        match bytes(path) {
            Ok(bytes) => Self::parse(&bytes),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Self::default(),
            Err(error) => Self::faulty(format!("cannot be read: {error}")),
        }
    }

    /// Reads the content of a file.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Self {
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
        match JsonObject::of(text.get()) {
            Some(object) => Self::of(&object),
            None => Self::faulty("is no JSON object".to_owned()),
        }
    }

    #[must_use]
    pub fn field(&self, name: &str) -> Option<&JsonText> {
        self.fields.iter().find(|(field, _)| *field == name).map(|(_, value)| value)
    }

    fn faulty(fault: String) -> Self {
        Self { fault: Some(fault), ..Self::default() }
    }

    fn of(object: &JsonObject<'_>) -> Self {
        let mut file = Self::default();
        for name in object.keys() {
            let Some(value) = object.get(&name).filter(|value| !value.is_null()) else { continue };
            if !file.take(&name, value) && file.dropped.len() < MAX_NAMES {
                file.dropped.push(name.chars().take(MAX_NAME).collect());
            }
        }
        file
    }

    /// Adds a field. Returns `false` if it cannot be reported.
    fn take(&mut self, name: &str, value: JsonStr<'_>) -> bool {
        let texts = TEXTS.into_iter().chain(["result", "error"]);
        if let Some(field) = texts.into_iter().find(|field| *field == name) {
            let is_valid = value
                .as_text()
                .is_some_and(|text| is_storable(&text) && (field != RESULT_URL || is_storable_url(&text)));
            if is_valid {
                self.fields.push((field, value.into()));
            }
            return is_valid;
        }
        match name {
            "success" => {
                self.success = value.as_bool();
                self.success.is_some()
            }
            "metadata" if value.entries().is_some() => {
                self.metadata = Some(value.into());
                true
            }
            ARTIFACTS if are_artifacts(value) => {
                self.fields.push((ARTIFACTS, value.into()));
                true
            }
            _ => false,
        }
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

    fn parse(text: &str) -> OutcomeFile {
        OutcomeFile::parse(text.as_bytes())
    }

    #[test]
    fn known_fields_of_the_right_form_are_taken_and_others_named() {
        let file = parse(
            r#"{"success": true, "external_id": 7, "result_url": "ftp://x", "other": 1, "summary": "s",
                "metadata": {"a": 1}, "result": "r\u0000", "artifacts": [{"url": "nonsense"}], "error": null}"#,
        );
        assert_eq!(file.success, Some(true));
        assert_eq!(file.fields, [("summary", JsonText::stored("\"s\"".to_owned()))]);
        assert_eq!(file.metadata.unwrap().as_str(), r#"{"a":1}"#);
        assert_eq!(file.dropped, ["artifacts", "external_id", "other", "result", "result_url"]);
        assert_eq!(file.fault, None);
    }

    #[test]
    fn a_file_that_is_no_object_is_a_fault() {
        assert!(parse(r#"{"success": fal"#).fault.unwrap().starts_with("is no JSON: "));
        assert_eq!(parse("[1]").fault.unwrap(), "is no JSON object");
        assert_eq!(parse(&" ".repeat(MAX_BYTES + 1)).fault.unwrap(), "is longer than 65536 bytes");
        assert_eq!(parse(""), OutcomeFile::default());
    }

    #[test]
    fn the_names_of_left_out_fields_are_bounded() {
        let many: Vec<String> = (0..500).map(|n| format!("\"{n}{}\":1", "x".repeat(110))).collect();
        let file = parse(&format!("{{{}}}", many.join(",")));
        assert_eq!(file.dropped.len(), MAX_NAMES);
        assert!(file.dropped.iter().all(|name| name.chars().count() == MAX_NAME));
    }

    #[test]
    fn a_pipe_in_the_place_of_the_file_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let fault = OutcomeFile::read(folder.path()).fault.unwrap();
        assert!(fault.contains("no regular file"), "{fault}");
        assert_eq!(OutcomeFile::read(&folder.path().join("none")), OutcomeFile::default());
    }
}
