//! Outcomes: the report of a worker or receiver on an execution, accepted once (contract §5).

use jiff::Timestamp;

use crate::domain::api_error::{ErrorCode, Refusal};
use crate::domain::execution::evidence::{Evidence, is_storable};
use crate::domain::execution::verification::{Verdict, VerificationMode};
use crate::domain::json::{self, JsonObject, JsonText};

/// Maximum size of `metadata` as compact JSON.
pub const MAX_METADATA_BYTES: usize = 10_240;

/// Maximum size of the body of a response that is taken as an outcome. It bounds the memory of deliveries: a longer report
/// is sent with a request of its own.
pub const MAX_RESPONSE_OUTCOME: usize = 65_536;

/// Most characters of a reported error that become the `error_message` of its execution. The report keeps all of it.
pub const MAX_ERROR_MESSAGE: usize = 2_000;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OutcomeReport {
    pub success: bool,
    /// A success message, or a summary of the result.
    pub result: Option<String>,
    pub error: Option<String>,
    /// Free-form data of the reporter.
    pub metadata: Option<JsonText>,
    /// More evidence may be appended after the report.
    pub evidence: Evidence,
}

impl OutcomeReport {
    /// The outcome of a report received at `now`.
    pub fn record(self, now: Timestamp) -> Result<Outcome, Refusal> {
        let bytes = self.metadata.as_ref().map_or(0, |metadata| metadata.as_str().len());
        if bytes > MAX_METADATA_BYTES {
            let message =
                format!("metadata has {bytes} bytes as compact JSON; at most {MAX_METADATA_BYTES} are kept");
            return Err(Refusal::new(ErrorCode::MetadataTooLarge, message));
        }
        Ok(Outcome { report: self, recorded_at: now, verdict: None })
    }

    /// The outcome in the body of a response received at `now` (contract §6.10): an object with the fields of a report. `None`
    /// if it is too long, or would be refused as a report.
    pub fn from_response(body: &[u8], now: Timestamp) -> Option<Outcome> {
        if body.len() > MAX_RESPONSE_OUTCOME {
            return None;
        }
        let body = json::read(body).ok()?;
        let object = JsonObject::of(body.get())?;
        let given = |name: &str| object.get(name).filter(|value| !value.is_null());
        let text = |name: &str| match given(name).map(|value| value.as_text()) {
            None => Some(None),
            Some(text) => text.filter(|text| is_storable(text)).map(|text| Some(text.into_owned())),
        };
        let metadata = given("metadata");
        if metadata.is_some_and(|metadata| metadata.entries().is_none()) {
            return None;
        }
        let report = Self {
            success: object.get("success")?.as_bool()?,
            result: text("result")?,
            error: text("error")?,
            metadata: metadata.map(JsonText::from),
            evidence: Evidence::of_report(&object)?,
        };
        report.record(now).ok()
    }

    /// Success or failure alone.
    pub fn without_texts(self) -> Self {
        Self { success: self.success, ..Self::default() }
    }

    /// The `error_message` of a worker execution that ends with this report: the reported error.
    pub fn error_message(&self) -> Option<String> {
        let error = self.error.as_ref().filter(|_| !self.success)?;
        Some(error.chars().take(MAX_ERROR_MESSAGE).collect())
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    pub report: OutcomeReport,
    pub recorded_at: Timestamp,
    /// The latest verdict of a person; `None` without one, or after the outcome was reopened.
    pub verdict: Option<Verdict>,
}

impl Outcome {
    /// Appends evidence. Returns whether it proves the outcome: a success without a verdict, where `more` completes
    /// the evidence that `mode` requires. Evidence that was complete before proves nothing new, so an outcome that
    /// was reopened in spite of it waits for a person.
    pub fn append(&mut self, mode: VerificationMode, more: Evidence) -> bool {
        let evidence = &mut self.report.evidence;
        let was_missing = !mode.is_satisfied_by(evidence);
        evidence.append(more);
        was_missing && mode.is_satisfied_by(evidence) && self.report.success && self.verdict.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn report_with_metadata_of(bytes: usize) -> OutcomeReport {
        let text = "x".repeat(bytes - r#"{"a":""}"#.len());
        let metadata = JsonText::from(&json!({ "a": text }));
        OutcomeReport { metadata: Some(metadata), ..OutcomeReport::default() }
    }

    #[test]
    fn metadata_at_the_limit_is_accepted_and_one_byte_more_is_refused() {
        let now: Timestamp = "2026-01-01T10:00:00Z".parse().unwrap();
        assert_eq!(report_with_metadata_of(10_240).record(now).unwrap().recorded_at, now);
        let refusal = report_with_metadata_of(10_241).record(now).unwrap_err();
        assert_eq!(refusal.code, ErrorCode::MetadataTooLarge);
        assert!(refusal.message.contains("10241"));
    }

    #[test]
    fn evidence_proves_an_unjudged_success_when_it_completes_what_is_required() {
        let now: Timestamp = "2026-01-01T10:00:00Z".parse().unwrap();
        let evidence = |field: &str| Evidence::from(JsonText::from(&json!({ field: "x" })));
        let (id, url) = ("external_id", "result_url");
        for (success, judged, mode, had, brought, proves) in [
            (true, false, VerificationMode::RequireExternalId, "summary", id, true),
            (true, false, VerificationMode::RequireExternalId, "summary", url, false),
            (true, false, VerificationMode::RequireExternalId, id, id, false),
            (true, false, VerificationMode::RequireExternalId, id, "summary", false),
            (true, true, VerificationMode::RequireExternalId, "summary", id, false),
            (false, false, VerificationMode::RequireExternalId, "summary", id, false),
            (true, false, VerificationMode::None, "summary", id, false),
            (true, false, VerificationMode::Manual, "summary", id, false),
        ] {
            let report = OutcomeReport { success, evidence: evidence(had), ..OutcomeReport::default() };
            let mut outcome = report.record(now).unwrap();
            outcome.verdict = judged.then_some(Verdict { valid: false, reason: None, verified_at: now });
            let what = format!("{mode:?}, success {success}, judged {judged}: {had} and then {brought}");
            assert_eq!(outcome.append(mode, evidence(brought)), proves, "{what}");
            assert!(outcome.report.evidence.shows(had) && outcome.report.evidence.shows(brought), "{what}");
        }
    }
}
