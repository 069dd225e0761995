//! What a worker or a receiver reports of an execution: once, with bounds (spec §2, contract §5).

use jiff::Timestamp;
use serde_json::{Map, Value};

use super::json::compact;
use super::refusal::{Code, Refusal};

/// Most bytes of `metadata`, as compact JSON.
pub const METADATA_BYTES: usize = 10_240;

/// Most bytes of `result`, of `error` and of the evidence's texts.
pub const TEXT_BYTES: usize = 65_536;

/// What is reported.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Report {
    /// Whether the work was done.
    pub success: bool,
    /// The success message or a summary of what came out.
    pub result: Option<String>,
    /// Why it failed.
    pub error: Option<String>,
    /// Whatever the reporter wants to keep with it.
    pub metadata: Option<Map<String, Value>>,
    /// What proves it, field by field (`external_id`, `result_url`, …).
    pub evidence: Option<Map<String, Value>>,
}

impl Report {
    /// The outcome that this makes at `now`.
    ///
    /// # Errors
    /// `metadata_too_large` above [`METADATA_BYTES`].
    pub fn record(self, now: Timestamp) -> Result<Outcome, Refusal> {
        let bytes = self.metadata.as_ref().map_or(0, |metadata| compact_object(metadata).len());
        if bytes > METADATA_BYTES {
            let message =
                format!("metadata has {bytes} bytes as compact JSON; at most {METADATA_BYTES} are kept");
            return Err(Refusal::new(Code::MetadataTooLarge, message));
        }
        Ok(Outcome { report: self, recorded_at: now })
    }
}

/// A report as it is stored.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// What was reported.
    pub report: Report,
    /// When it came.
    pub recorded_at: Timestamp,
}

impl Outcome {
    /// The first `outcome_state` of the execution.
    #[must_use]
    pub fn state(&self) -> &'static str {
        if self.report.success { "reported_success" } else { "reported_failure" }
    }
}

/// An object as compact JSON.
#[must_use]
pub fn compact_object(object: &Map<String, Value>) -> String {
    compact(&Value::Object(object.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report_with_metadata_of(bytes: usize) -> Report {
        let text = "x".repeat(bytes - r#"{"a":""}"#.len());
        let metadata = Map::from_iter([("a".to_owned(), Value::from(text))]);
        Report { metadata: Some(metadata), ..Report::default() }
    }

    #[test]
    fn metadata_of_exactly_the_limit_is_kept_and_one_byte_more_is_refused() {
        let now: Timestamp = "2026-01-01T10:00:00Z".parse().unwrap();
        assert_eq!(report_with_metadata_of(10_240).record(now).unwrap().recorded_at, now);
        let refusal = report_with_metadata_of(10_241).record(now).unwrap_err();
        assert_eq!(refusal.code, Code::MetadataTooLarge);
        assert!(refusal.message.contains("10241"));
    }
}
