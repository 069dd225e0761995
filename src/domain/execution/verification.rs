//! Verification: whether a reported success is believed, and who decides that (contract §5).
//!
//! The cue's mode names who verifies: nobody, the evidence, or a person. Evidence only ever raises a success, and
//! never over a person's verdict: who found an outcome wrong is not overruled by whoever reported it. A person may
//! judge every outcome, once; to judge again, the outcome is made pending first. A reported failure is for a person
//! alone to raise: evidence beside it shows what was made before it failed.

use jiff::Timestamp;

use crate::domain::api_error::{ErrorCode, Refusal};
use crate::domain::execution::evidence::{ARTIFACTS, Evidence};

/// Who or what verifies the successes of a cue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum VerificationMode {
    /// Nobody: the report stands as it is.
    #[default]
    None,
    /// An `external_id` that is given.
    RequireExternalId,
    /// A `result_url` that can be opened.
    RequireResultUrl,
    /// At least one entry in `artifacts`.
    RequireArtifacts,
    /// A person, by `verify`.
    Manual,
}

impl VerificationMode {
    /// All of them, in the contract's order.
    pub const ALL: [Self; 5] =
        [Self::None, Self::RequireExternalId, Self::RequireResultUrl, Self::RequireArtifacts, Self::Manual];

    /// The words of the contract.
    pub const WORDS: [&'static str; 5] =
        ["none", "require_external_id", "require_result_url", "require_artifacts", "manual"];

    /// The word of the contract.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::RequireExternalId => "require_external_id",
            Self::RequireResultUrl => "require_result_url",
            Self::RequireArtifacts => "require_artifacts",
            Self::Manual => "manual",
        }
    }

    /// The mode that `word` names.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.as_str() == word)
    }

    /// Whether `evidence` holds what this mode asks for. Modes that ask for no evidence are never satisfied by any.
    #[must_use]
    pub fn is_satisfied_by(self, evidence: &Evidence) -> bool {
        match self {
            Self::None | Self::Manual => false,
            Self::RequireExternalId => evidence.shows("external_id"),
            Self::RequireResultUrl => evidence.shows_url("result_url"),
            Self::RequireArtifacts => evidence.shows(ARTIFACTS),
        }
    }
}

/// Why an outcome is `verification_failed`, as a clause: a person's reason, or what the mode asks for and did not get.
#[must_use]
pub fn why_failed(mode: VerificationMode, verdict: Option<&Verdict>) -> String {
    let missing = match (verdict, mode) {
        (Some(Verdict { reason: Some(reason), .. }), _) => return reason.clone(),
        (Some(_), _) | (None, VerificationMode::None | VerificationMode::Manual) => {
            return "it was found to be wrong".to_owned();
        }
        (None, VerificationMode::RequireExternalId) => "external_id",
        (None, VerificationMode::RequireResultUrl) => "result_url",
        (None, VerificationMode::RequireArtifacts) => ARTIFACTS,
    };
    format!("its evidence has no {missing}")
}

/// Where the outcome of an execution stands (`outcome_state`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutcomeState {
    /// A success that nobody has to verify.
    ReportedSuccess,
    /// A failure.
    ReportedFailure,
    /// A success by its evidence, or by a person's verdict.
    VerifiedSuccess,
    /// It waits for a person's verdict, or for the evidence that the mode asks for.
    VerificationPending,
    /// The evidence is missing, or a person found it wrong.
    VerificationFailed,
}

impl OutcomeState {
    /// All of them, in the contract's order.
    pub const ALL: [Self; 5] = [
        Self::ReportedSuccess,
        Self::ReportedFailure,
        Self::VerifiedSuccess,
        Self::VerificationPending,
        Self::VerificationFailed,
    ];

    /// The words of the contract.
    pub const WORDS: [&'static str; 5] = [
        "reported_success",
        "reported_failure",
        "verified_success",
        "verification_pending",
        "verification_failed",
    ];

    /// The word of the contract.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ReportedSuccess => "reported_success",
            Self::ReportedFailure => "reported_failure",
            Self::VerifiedSuccess => "verified_success",
            Self::VerificationPending => "verification_pending",
            Self::VerificationFailed => "verification_failed",
        }
    }

    /// The state that `word` names.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == word)
    }
}

/// What a person found of an outcome.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// Whether the work was done.
    pub valid: bool,
    /// Why, in the person's words.
    pub reason: Option<String>,
    /// When it was said.
    pub verified_at: Timestamp,
}

/// What may befall an outcome after its report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VerificationEvent {
    /// A person's verdict.
    Verdict {
        /// Whether the work was done.
        valid: bool,
    },
    /// Whatever was decided is open again.
    Reopened,
    /// Evidence was appended.
    Evidence {
        /// It brought what the mode asks for and what was missing, to a success that no person has judged.
        proves: bool,
    },
}

/// The state of an outcome that was just reported.
#[must_use]
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
///
/// # Errors
/// `invalid_state` for a verdict where there is a decision already.
pub fn after(state: OutcomeState, event: VerificationEvent) -> Result<OutcomeState, Refusal> {
    use OutcomeState::{ReportedFailure, ReportedSuccess};
    use OutcomeState::{VerificationFailed, VerificationPending, VerifiedSuccess};
    match (state, event) {
        (VerifiedSuccess | VerificationFailed, VerificationEvent::Verdict { .. }) => Err(decided(state)),
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

/// The answer to every event before there is an outcome.
#[must_use]
pub fn unreported() -> Refusal {
    Refusal::new(ErrorCode::InvalidState, "The execution has no outcome yet: report one first")
}

fn decided(state: OutcomeState) -> Refusal {
    let state = state.as_str();
    let message = format!("The outcome is {state} already: make it verification-pending for another verdict");
    Refusal::new(ErrorCode::InvalidState, message)
}

#[cfg(test)]
mod tests {
    use super::OutcomeState::*;
    use super::*;
    use serde_json::{Value, json};

    fn evidence(fields: Value) -> Evidence {
        fields.as_object().unwrap().clone().into()
    }

    #[test]
    fn modes_states_and_events_round_trip_through_text() {
        assert_eq!(VerificationMode::WORDS.map(VerificationMode::parse), VerificationMode::ALL.map(Some));
        assert_eq!(OutcomeState::WORDS.map(OutcomeState::parse), OutcomeState::ALL.map(Some));
        assert_eq!((VerificationMode::parse("psychic"), OutcomeState::parse("success")), (None, None));
    }

    #[test]
    fn mode_and_evidence_determine_the_state_of_a_success() {
        let nothing = evidence(json!({}));
        let id = evidence(json!({"external_id": "charge-1"}));
        let url = evidence(json!({"result_url": "https://example.com/1"}));
        let artifacts = evidence(json!({"artifacts": [{"name": "a.csv"}]}));
        for no_address in ["not a url", "javascript:alert(1)", "/reports/7", "ftp://example.com/7"] {
            let text = evidence(json!({ "result_url": no_address }));
            assert!(!VerificationMode::RequireResultUrl.is_satisfied_by(&text), "{no_address}");
        }
        let blank = evidence(json!({"external_id": " ", "result_url": "", "artifacts": []}));
        let other = evidence(json!({"result_ref": "1", "result_type": "report", "summary": "done"}));
        let all = [&nothing, &id, &url, &artifacts, &blank, &other];
        let (yes, no) = (VerifiedSuccess, VerificationFailed);
        for (mode, expected) in [
            (VerificationMode::None, [ReportedSuccess; 6]),
            (VerificationMode::RequireExternalId, [no, yes, no, no, no, no]),
            (VerificationMode::RequireResultUrl, [no, no, yes, no, no, no]),
            (VerificationMode::RequireArtifacts, [no, no, no, yes, no, no]),
            (VerificationMode::Manual, [VerificationPending; 6]),
        ] {
            assert_eq!(all.map(|it| after_report(mode, true, it)), expected, "{mode:?}");
            assert_eq!(all.map(|it| after_report(mode, false, it)), [ReportedFailure; 6], "{mode:?}");
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
                let after = after(state, event).map_err(|refusal| refusal.code);
                assert_eq!(after, expected, "{state:?} after {event:?}");
            }
        }
    }
}
