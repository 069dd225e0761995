//! Verification: whether a reported success is accepted, and who decides (contract §5).
//!
//! The cue's mode names the verifier: none, the evidence, or a person. Evidence can only promote a success, and
//! never overrides a person's verdict: a reporter cannot overrule the person who rejected the outcome. A person may
//! judge every outcome once; to judge again, the outcome is reopened (made pending) first. Only a person can promote
//! a reported failure: evidence sent with it shows the work done before the failure.

use jiff::Timestamp;

use crate::domain::api_error::{ErrorCode, Refusal};
use crate::domain::execution::evidence::{ARTIFACTS, Evidence};
use crate::domain::text::word_enum::word_enum;

word_enum! {
    /// The verification of a cue's successes.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub enum VerificationMode {
        /// None: the report stands.
        #[default]
        None = "none",
        /// A non-blank `external_id`.
        RequireExternalId = "require_external_id",
        /// A `result_url` that is an absolute URL.
        RequireResultUrl = "require_result_url",
        RequireArtifacts = "require_artifacts",
        /// A person, with `verify`.
        Manual = "manual",
    }
}

impl VerificationMode {
    /// Returns whether `evidence` is what this mode requires. False for modes that require none.
    pub fn is_satisfied_by(self, evidence: &Evidence) -> bool {
        match self {
            Self::None | Self::Manual => false,
            Self::RequireExternalId => evidence.shows("external_id"),
            Self::RequireResultUrl => evidence.shows_url("result_url"),
            Self::RequireArtifacts => evidence.shows(ARTIFACTS),
        }
    }
}

/// The reason of `verification_failed` as a clause: the person's, or the evidence that the mode requires and lacks.
pub fn failure_reason(mode: VerificationMode, verdict: Option<&Verdict>) -> String {
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

word_enum! {
    /// `outcome_state`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum OutcomeState {
        ReportedSuccess = "reported_success",
        ReportedFailure = "reported_failure",
        /// A success, confirmed by its evidence or by a person.
        VerifiedSuccess = "verified_success",
        /// Waiting for a person's verdict, or for the evidence that the mode requires.
        VerificationPending = "verification_pending",
        /// The evidence is missing, or a person rejected the outcome.
        VerificationFailed = "verification_failed",
    }
}

/// A person's judgement of an outcome.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// True if the work was done.
    pub valid: bool,
    /// The reason in the person's words.
    pub reason: Option<String>,
    pub verified_at: Timestamp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VerificationEvent {
    Verdict {
        /// True if the work was done.
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
/// Errors: `invalid_state` for a verdict on an outcome that is already decided.
pub fn after_event(state: OutcomeState, event: VerificationEvent) -> Result<OutcomeState, Refusal> {
    use OutcomeState::{ReportedFailure, ReportedSuccess};
    use OutcomeState::{VerificationFailed, VerificationPending, VerifiedSuccess};
    match (state, event) {
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

/// The refusal of any event before the report.
pub fn no_outcome() -> Refusal {
    Refusal::new(ErrorCode::InvalidState, "The execution has no outcome yet; report one first")
}

fn already_decided(state: OutcomeState) -> Refusal {
    let state = state.as_str();
    let message = format!("The outcome is already {state}; make it verification-pending to judge it again");
    Refusal::new(ErrorCode::InvalidState, message)
}

#[cfg(test)]
mod tests {
    use super::OutcomeState::*;
    use super::*;

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
