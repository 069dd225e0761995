//! Outcomes: the report of a worker or receiver on an execution, accepted once, the evidence in it, and its
//! verification: whether a reported success is accepted, and who decides (contract §5).
//!
//! The cue's mode names the verifier: none, the evidence, or a person. Evidence can only promote a success, and
//! never overrides a person's verdict: a reporter cannot overrule the person who rejected the outcome. A person may
//! judge every outcome once; to judge again, the outcome is reopened (made pending) first. Only a person can promote
//! a reported failure: evidence sent with it shows the work done before the failure.

use jiff::Timestamp;
use serde_json::Value;
use url::Url;

use crate::domain::api_error::{ErrorCode, Refusal};
use crate::domain::json::{JsonObject, JsonStr, JsonText, merged};
use crate::domain::text::word_enum;

pub const MAX_METADATA_BYTES: usize = 10_240;

/// Maximum size of a response that is taken as an outcome: it bounds the memory of deliveries.
pub const MAX_RESPONSE_OUTCOME: usize = 65_536;

/// Most characters of a reported error that become the `error_message` of its execution. The report keeps all of it.
pub const MAX_ERROR_MESSAGE: usize = 2_000;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OutcomeReport {
    pub success: bool,
    pub result: Option<String>,
    pub error: Option<String>,
    pub metadata: Option<JsonText>,
    pub evidence: Evidence,
}

impl OutcomeReport {
    pub fn record(self, now: Timestamp) -> Result<Outcome, Refusal> {
        let bytes = self.metadata.as_ref().map_or(0, |metadata| metadata.as_str().len());
        if bytes > MAX_METADATA_BYTES {
            let message = format!(
                "metadata has {bytes} bytes as compact JSON; at most {MAX_METADATA_BYTES} are kept"
            );
            return Err(Refusal::new(ErrorCode::MetadataTooLarge, message));
        }
        Ok(Outcome { report: self, recorded_at: now, verdict: None })
    }

    pub fn without_texts(self) -> Self {
        Self { success: self.success, ..Self::default() }
    }

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
        was_missing
            && mode.is_satisfied_by(evidence)
            && self.report.success
            && self.verdict.is_none()
    }
}

pub const TEXTS: [&str; 5] = ["external_id", RESULT_URL, "result_ref", "result_type", "summary"];

pub const RESULT_URL: &str = "result_url";

pub const ARTIFACTS: &str = "artifacts";

pub const MAX_ARTIFACTS: usize = 100;

/// Maximum size of each text, and of the list as JSON; also of the other texts of a report.
pub const MAX_TEXT_BYTES: usize = 65_536;

/// Characters of `result_url`, as of a callback URL.
pub const MAX_RESULT_URL: usize = 2048;

const ARTIFACT_URL: &str = "url";

/// Returns whether a list takes more than [`MAX_TEXT_BYTES`] in the stored evidence.
pub fn is_too_long_as_artifacts(artifacts: JsonStr<'_>) -> bool {
    artifacts.as_str().len() + ARTIFACTS.len() + r#"{"":}"#.len() > MAX_TEXT_BYTES
}

/// The number of the first artifact whose `url` is neither null nor [storable](is_storable_url). Both become links.
pub fn first_bad_artifact_url(artifacts: JsonStr<'_>) -> Option<usize> {
    artifacts.items()?.position(|artifact| {
        let url = JsonObject::from_text(artifact).and_then(|object| object.get(ARTIFACT_URL));
        url.is_some_and(|url| {
            !url.is_null() && !url.as_text().is_some_and(|text| is_storable_url(&text))
        })
    })
}

/// A text of a report as it is stored; `None` if it is too long. A NUL becomes a replacement character: SQLite stores
/// it, but its text functions and many clients end the text there, and a refusal would cost the only report.
pub fn storable(text: &str) -> Option<String> {
    (text.len() <= MAX_TEXT_BYTES).then(|| text.replace('\0', "\u{fffd}"))
}

/// The artifacts with each `url` as it is stored: without blanks around it. Their `url`s are checked.
pub fn with_trimmed_urls(artifacts: JsonStr<'_>) -> JsonText {
    let Some(items) = artifacts.items() else { return artifacts.into() };
    let items = items.map(|artifact| {
        let url = JsonObject::from_text(artifact).and_then(|object| object.get(ARTIFACT_URL));
        match url.and_then(JsonStr::as_text) {
            Some(url) => {
                let url = trimmed(&url);
                merged(artifact, JsonText::object(vec![(ARTIFACT_URL, url.get())]).get())
                    .into_string()
            }
            None => artifact.as_str().to_owned(),
        }
    });
    JsonText::stored(format!("[{}]", items.collect::<Vec<_>>().join(",")))
}

/// A text of the evidence as it is stored: a URL without blanks around it.
pub fn evidence(name: &str, text: &str) -> JsonText {
    if name == RESULT_URL { trimmed(text) } else { JsonText::from(&Value::from(text)) }
}

fn trimmed(url: &str) -> JsonText {
    JsonText::from(&Value::from(url.trim()))
}

/// A blank text is no evidence, but it must not cost the only report.
pub fn is_storable_url(text: &str) -> bool {
    let url = text.trim();
    text.chars().nth(MAX_RESULT_URL).is_none() && (url.is_empty() || is_result_url(url))
}

/// Returns whether a text is a `result_url`: an absolute `http` or `https` URL of bounded length. People open it in a
/// browser, so what browsers accept is accepted; the server itself never opens it.
pub fn is_result_url(text: &str) -> bool {
    let has_scheme =
        |scheme: &str| text.get(..scheme.len()).is_some_and(|it| it.eq_ignore_ascii_case(scheme));
    (has_scheme("http://") || has_scheme("https://"))
        && text.chars().nth(MAX_RESULT_URL).is_none()
        // A browser removes line breaks from a URL, and would open another one than is shown.
        && !text.contains(char::is_control)
        && Url::parse(text).is_ok_and(|url| url.has_host())
}

/// The evidence of one outcome: an object of texts and the list. It never becomes a tree.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Evidence(Option<JsonText>);

impl From<JsonText> for Evidence {
    fn from(fields: JsonText) -> Self {
        Self((fields.get() != JsonStr::EMPTY_OBJECT).then_some(fields))
    }
}

impl Evidence {
    pub fn fields(&self) -> Option<&JsonText> {
        self.0.as_ref()
    }

    pub fn shows(&self, field: &str) -> bool {
        let Some(value) = self.get(field) else { return false };
        match value.as_text() {
            Some(text) => !text.trim().is_empty(),
            None => value.items().is_some_and(|mut items| items.next().is_some()),
        }
    }

    pub fn shows_url(&self, field: &str) -> bool {
        let text = self.get(field).and_then(JsonStr::as_text);
        text.is_some_and(|text| is_result_url(text.trim()))
    }

    pub fn is_blank_in(&self, field: &str) -> bool {
        self.get(field).is_some() && !self.shows(field)
    }

    pub fn append(&mut self, more: Self) {
        self.0 = match (self.0.take(), more.0) {
            (Some(own), Some(more)) => Some(merged(own.get(), more.get())),
            (own, more) => more.or(own),
        };
    }

    fn get(&self, field: &str) -> Option<JsonStr<'_>> {
        let mut entries = self.0.as_ref()?.get().entries()?;
        entries.find(|(name, _)| *name == field).map(|(_, value)| value)
    }
}

word_enum! {
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub enum VerificationMode {
        #[default]
        None = "none",
        RequireExternalId = "require_external_id",
        RequireResultUrl = "require_result_url",
        RequireArtifacts = "require_artifacts",
        Manual = "manual",
    }
}

impl VerificationMode {
    /// The field of the evidence that this mode requires.
    fn required(self) -> Option<&'static str> {
        match self {
            Self::None | Self::Manual => None,
            Self::RequireExternalId => Some("external_id"),
            Self::RequireResultUrl => Some(RESULT_URL),
            Self::RequireArtifacts => Some(ARTIFACTS),
        }
    }

    /// Returns whether `evidence` is what this mode requires. False for modes that require none.
    pub fn is_satisfied_by(self, evidence: &Evidence) -> bool {
        self.required().is_some_and(|field| match field {
            RESULT_URL => evidence.shows_url(field),
            field => evidence.shows(field),
        })
    }
}

/// The reason of `verification_failed` as a clause: the person's, or the evidence that the mode requires and lacks.
pub fn failure_reason(mode: VerificationMode, verdict: Option<&Verdict>) -> String {
    match (verdict, mode.required()) {
        (Some(Verdict { reason: Some(reason), .. }), _) => reason.clone(),
        (None, Some(missing)) => format!("its evidence has no {missing}"),
        _ => "it was found to be wrong".to_owned(),
    }
}

word_enum! {
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum OutcomeState {
        ReportedSuccess = "reported_success",
        ReportedFailure = "reported_failure",
        VerifiedSuccess = "verified_success",
        VerificationPending = "verification_pending",
        VerificationFailed = "verification_failed",
        /// Nobody has reported within `outcome_deadline_seconds`. A report that comes later replaces it.
        Missing = "missing",
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    pub valid: bool,
    pub reason: Option<String>,
    pub verified_at: Timestamp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VerificationEvent {
    Verdict {
        valid: bool,
    },
    Reopened,
    Evidence {
        /// The evidence completes what the mode requires, for a success without a verdict.
        proves: bool,
    },
}

pub fn after_report(mode: VerificationMode, success: bool, evidence: &Evidence) -> OutcomeState {
    match mode {
        _ if !success => OutcomeState::ReportedFailure,
        VerificationMode::None => OutcomeState::ReportedSuccess,
        VerificationMode::Manual => OutcomeState::VerificationPending,
        _ if mode.is_satisfied_by(evidence) => OutcomeState::VerifiedSuccess,
        _ => OutcomeState::VerificationFailed,
    }
}

/// The state of an outcome in `state` after `event`.
/// Errors: `invalid_state` for a verdict on an outcome that is already decided, and without an outcome.
pub fn after_event(state: OutcomeState, event: VerificationEvent) -> Result<OutcomeState, Refusal> {
    use OutcomeState::{Missing, ReportedFailure, ReportedSuccess};
    use OutcomeState::{VerificationFailed, VerificationPending, VerifiedSuccess};
    match (state, event) {
        (Missing, _) => Err(no_outcome()),
        (VerifiedSuccess | VerificationFailed, VerificationEvent::Verdict { .. }) => {
            Err(already_decided(state))
        }
        (_, VerificationEvent::Verdict { valid: true }) => Ok(VerifiedSuccess),
        (_, VerificationEvent::Verdict { valid: false }) => Ok(VerificationFailed),
        (_, VerificationEvent::Reopened) => Ok(VerificationPending),
        (
            ReportedSuccess | VerificationPending | VerificationFailed,
            VerificationEvent::Evidence { proves: true },
        ) => Ok(VerifiedSuccess),
        (ReportedFailure | VerifiedSuccess, VerificationEvent::Evidence { .. })
        | (_, VerificationEvent::Evidence { proves: false }) => Ok(state),
    }
}

pub fn no_outcome() -> Refusal {
    Refusal::new(ErrorCode::InvalidState, "The execution has no outcome yet; report one first")
}

fn already_decided(state: OutcomeState) -> Refusal {
    let state = state.as_str();
    let message =
        format!("The outcome is already {state}; make it verification-pending to judge it again");
    Refusal::new(ErrorCode::InvalidState, message)
}

#[cfg(test)]
mod tests {
    use super::OutcomeState::*;
    use super::*;
    use serde_json::json;

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
            let report =
                OutcomeReport { success, evidence: evidence(had), ..OutcomeReport::default() };
            let mut outcome = report.record(now).unwrap();
            outcome.verdict =
                judged.then_some(Verdict { valid: false, reason: None, verified_at: now });
            let what =
                format!("{mode:?}, success {success}, judged {judged}: {had} and then {brought}");
            assert_eq!(outcome.append(mode, evidence(brought)), proves, "{what}");
            assert!(
                outcome.report.evidence.shows(had) && outcome.report.evidence.shows(brought),
                "{what}"
            );
        }
    }

    #[test]
    fn a_result_url_is_an_absolute_web_address_of_bounded_length() {
        let longest = format!("https://example.com/{}", "ü".repeat(MAX_RESULT_URL - 20));
        let good = "http://example.com https://bücher.example/ü http://127.0.0.1/report https://user:pw@example.com/";
        for good in good.split(' ').chain(["HTTPS://Example.com:8443/a b?c=\"d\"#e", &longest]) {
            assert!(is_result_url(good), "{good}");
        }
        let too_long = format!("{longest}x");
        let bad = "done /reports/7 //example.com/ http:example.com https:/example.com http:// ftp://example.com/ \
                   javascript:alert(1) data:text/html,x https://example.com:99999/ https://[::1";
        let blank =
            ["", " ", " https://example.com", "https://example.com/\n", "https://exa\tmple.com/"];
        for bad in bad.split_whitespace().chain(blank).chain([too_long.as_str()]) {
            assert!(!is_result_url(bad), "{bad:?}");
        }
    }

    #[test]
    fn every_event_in_every_state_has_the_specified_transition() {
        let events = [
            VerificationEvent::Verdict { valid: true },
            VerificationEvent::Verdict { valid: false },
            VerificationEvent::Reopened,
            VerificationEvent::Evidence { proves: true },
            VerificationEvent::Evidence { proves: false },
        ];
        let (success, failure) = (Ok(ReportedSuccess), Ok(ReportedFailure));
        let (verified, pending, failed) =
            (Ok(VerifiedSuccess), Ok(VerificationPending), Ok(VerificationFailed));
        let refused = Err(ErrorCode::InvalidState);
        for (state, expected) in [
            (ReportedSuccess, [verified, failed, pending, verified, success]),
            (ReportedFailure, [verified, failed, pending, failure, failure]),
            (VerifiedSuccess, [refused, refused, pending, verified, verified]),
            (VerificationPending, [verified, failed, pending, verified, pending]),
            (VerificationFailed, [refused, refused, pending, verified, failed]),
        ] {
            for (event, expected) in events.into_iter().zip(expected) {
                let after = after_event(state, event).map_err(|refusal| refusal.code);
                assert_eq!(after, expected, "{state:?} after {event:?}");
            }
        }
    }
}
