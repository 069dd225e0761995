//! What workers send and receive (contract §5.5, §7): the server reads and writes here what `cued work` writes and reads.

use serde::{Deserialize, Serialize};
use serde_json::json;
use serde_json::value::RawValue;

use crate::api::fields::JsonFields;
use crate::domain::api_error::Refusal;
use crate::domain::execution::outcome::{
    ARTIFACTS, Evidence, MAX_ARTIFACTS, MAX_RESULT_URL, MAX_TEXT_BYTES, OutcomeReport, RESULT_URL,
    TEXTS, evidence as stored_evidence, first_bad_artifact_url, is_storable_url,
    is_too_long_as_artifacts, storable, with_trimmed_urls,
};
use crate::domain::json::JsonText;

/// The body of a claim, which may be absent.
#[derive(Debug, Default, Serialize)]
pub struct ClaimRequest {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker_id: Option<String>,
    /// Only in a claim that names no execution: the `payload.task` to look for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task: Option<String>,
}

impl ClaimRequest {
    /// The claim of an execution that the path names.
    pub fn read(fields: &mut JsonFields<'_>) -> Self {
        Self { worker_id: fields.string("worker_id", 1..=255), task: None }
    }

    /// The claim of the oldest execution, of one task or of any.
    pub fn read_next(fields: &mut JsonFields<'_>) -> Self {
        Self { task: fields.string("task", 0..=1_048_576), ..Self::read(fields) }
    }
}

/// The response to a claim. In alphabetical order: shell scripts cut the payload out of the text (`examples/worker.sh`).
#[derive(Debug, Serialize, Deserialize)]
pub struct Claim {
    pub attempt: u32,
    pub claimed: bool,
    pub cue_id: String,
    pub cue_name: String,
    pub execution_id: String,
    pub lease_seconds: u64,
    /// An object, as its text: digit for digit.
    pub payload: Box<RawValue>,
    pub scheduled_for: String,
}

/// The body of a heartbeat.
#[derive(Debug, Serialize)]
pub struct Heartbeat {
    pub worker_id: String,
    /// The tasks of the worker.
    pub handlers: Vec<String>,
}

impl Heartbeat {
    /// `max_bytes` of the handlers as JSON, if they are limited.
    pub fn read(mut fields: JsonFields<'_>, max_bytes: Option<usize>) -> Result<Self, Refusal> {
        let worker_id = fields.required().string("worker_id", 1..=255);
        let handlers = fields.required().strings("handlers", 0..=100, 0..=255);
        let bytes = json!(handlers).to_string().len();
        if let Some(limit) = max_bytes.filter(|limit| bytes > *limit) {
            let message = format!("must have at most {limit} bytes as JSON, not {bytes}");
            fields.reject("handlers", &message);
        }
        let (worker_id, handlers) = fields.finish_with(worker_id.zip(handlers))?;
        Ok(Self { worker_id, handlers })
    }
}

/// The report of an outcome.
pub fn read_report(mut fields: JsonFields<'_>) -> Result<OutcomeReport, Refusal> {
    let success = fields.required().boolean("success");
    let result = read_bounded_text(&mut fields, "result");
    let error = read_bounded_text(&mut fields, "error");
    let metadata = fields.dictionary("metadata").map(JsonText::from);
    let evidence = read_evidence(&mut fields);
    let success = fields.finish_with(success)?;
    Ok(OutcomeReport { success, result, error, metadata, evidence })
}

/// Reads the evidence from the fields of an outcome report or of a PATCH.
pub fn read_evidence(fields: &mut JsonFields<'_>) -> Evidence {
    let mut evidence: Vec<(&str, JsonText)> = Vec::new();
    for name in TEXTS {
        if let Some(text) = read_bounded_text(fields, name) {
            if name == RESULT_URL && !is_storable_url(&text) {
                fields.reject(
                    name,
                    &format!(
                        "must be an absolute http or https URL of at most {MAX_RESULT_URL} characters"
                    ),
                );
            }
            evidence.push((name, stored_evidence(name, &text)));
        }
    }
    if let Some(artifacts) = fields.list(ARTIFACTS, 0..=MAX_ARTIFACTS) {
        if is_too_long_as_artifacts(artifacts) {
            fields.reject(ARTIFACTS, &format!("must have at most {MAX_TEXT_BYTES} bytes of JSON"));
        }
        if let Some(index) = first_bad_artifact_url(artifacts) {
            fields.reject(
                ARTIFACTS,
                &format!(
                    "must have absolute http or https URLs of at most {MAX_RESULT_URL} characters, also \
                     in item {index}"
                ),
            );
        }
        evidence.push((ARTIFACTS, with_trimmed_urls(artifacts)));
    }
    JsonText::object(evidence.iter().map(|(name, value)| (*name, value.get())).collect()).into()
}

/// Reads a text of at most [`MAX_TEXT_BYTES`] bytes, as it is stored. Checks bytes after characters, because a character
/// may need several.
pub fn read_bounded_text(fields: &mut JsonFields<'_>, name: &'static str) -> Option<String> {
    let text = fields.string_with_nuls(name, 0..=MAX_TEXT_BYTES)?;
    let stored = storable(&text);
    if stored.is_none() {
        fields.reject(name, &format!("must have at most {MAX_TEXT_BYTES} bytes of UTF-8"));
    }
    stored
}
