//! Alerts: what tells a user that a cue is in trouble, beyond the one execution that failed.
//!
//! One alert of a type is enough for a cue in five minutes, however many executions are behind it.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::domain::ids::ExecutionId;
use crate::domain::text::one_line;
use crate::domain::webhook::request::instant;

/// Executions of a cue in a row that have to fail; each further one raises the alert again.
pub const FAILURES_IN_A_ROW: i64 = 3;

/// How long an alert stands for others of its type and cue.
pub const DEDUP_WINDOW: SignedDuration = SignedDuration::from_mins(5);

/// The newest alerts of a user that are kept.
pub const MAX_KEPT: u32 = 1_000;

/// The most characters of somebody else's text in a message.
const MAX_QUOTED_BYTES: usize = 500;

/// What an alert is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AlertType {
    /// The executions of a cue fail, one after the other.
    ConsecutiveFailures,
    /// An outcome does not have what the cue's verification asks for.
    VerificationFailed,
    /// A worker went silent with an execution in its hands.
    ClaimLost,
}

impl AlertType {
    /// The words of `alert_type`.
    pub const WORDS: [&'static str; 3] = ["consecutive_failures", "verification_failed", "claim_lost"];

    /// The word of `alert_type`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ConsecutiveFailures => "consecutive_failures",
            Self::VerificationFailed => "verification_failed",
            Self::ClaimLost => "claim_lost",
        }
    }

    /// The type that `word` names.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        [Self::ConsecutiveFailures, Self::VerificationFailed, Self::ClaimLost]
            .into_iter()
            .find(|alert_type| alert_type.as_str() == word)
    }

    /// How bad it is: `critical` where nothing of the cue works any more.
    #[must_use]
    pub fn severity(self) -> &'static str {
        match self {
            Self::ConsecutiveFailures => "critical",
            Self::VerificationFailed | Self::ClaimLost => "warning",
        }
    }
}

/// An alert that is being raised about an execution.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NewAlert {
    /// So many executions of the cue have failed in a row.
    ConsecutiveFailures {
        /// At least [`FAILURES_IN_A_ROW`].
        failures: i64,
    },
    /// The outcome was not verified.
    VerificationFailed {
        /// What is missing or wrong, as a clause.
        reason: String,
    },
    /// The claim was lost.
    ClaimLost {
        /// The worker that had it.
        worker_id: String,
        /// Which attempt it was, from 1.
        attempt: u32,
    },
}

impl NewAlert {
    /// Its type.
    #[must_use]
    pub fn alert_type(&self) -> AlertType {
        match self {
            Self::ConsecutiveFailures { .. } => AlertType::ConsecutiveFailures,
            Self::VerificationFailed { .. } => AlertType::VerificationFailed,
            Self::ClaimLost { .. } => AlertType::ClaimLost,
        }
    }

    /// The sentence for a person.
    #[must_use]
    pub fn message(&self, cue_name: &str) -> String {
        let cue_name = one_line(cue_name, MAX_QUOTED_BYTES);
        match self {
            Self::ConsecutiveFailures { failures } => {
                format!("{cue_name} has failed {failures} times in a row")
            }
            Self::VerificationFailed { reason } => {
                format!("An outcome of {cue_name} was not verified: {}", one_line(reason, MAX_QUOTED_BYTES))
            }
            Self::ClaimLost { worker_id, .. } => format!(
                "Worker {} lost its claim on an execution of {cue_name}: its lease ended without a report or a sign \
                 of life",
                one_line(worker_id, MAX_QUOTED_BYTES)
            ),
        }
    }

    /// The same for a program.
    #[must_use]
    pub fn metadata(&self) -> Value {
        match self {
            Self::ConsecutiveFailures { failures } => json!({"failure_count": failures}),
            Self::VerificationFailed { reason } => json!({"reason": one_line(reason, MAX_QUOTED_BYTES)}),
            Self::ClaimLost { worker_id, attempt } => json!({"worker_id": worker_id, "attempt": attempt}),
        }
    }
}

/// An alert that was raised.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)]
pub struct Alert {
    pub id: String,
    pub alert_type: AlertType,
    pub cue_id: String,
    pub execution_id: ExecutionId,
    pub message: String,
    pub metadata: Value,
    pub created_at: Timestamp,
}

impl Alert {
    /// The alert as a list shows it and as it is sent.
    #[must_use]
    pub fn json(&self) -> Value {
        json!({
            "id": self.id,
            "alert_type": self.alert_type.as_str(),
            "severity": self.alert_type.severity(),
            "cue_id": self.cue_id,
            "execution_id": self.execution_id.to_string(),
            "message": self.message,
            "metadata": self.metadata,
            "created_at": instant(self.created_at),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alert_types_round_trip_through_text() {
        for word in AlertType::WORDS {
            assert_eq!(AlertType::parse(word).unwrap().as_str(), word);
        }
        assert_eq!(AlertType::parse("consecutive_failure"), None);
    }

    #[test]
    fn a_message_is_one_line_of_bounded_length() {
        let alert = NewAlert::VerificationFailed { reason: "a\r\nb".repeat(1_000) };
        let message = alert.message("c\nd");
        assert!(message.starts_with("An outcome of c d was not verified: a b"), "{message}");
        assert!(message.chars().count() < 600 && !message.contains(['\r', '\n']));
    }
}
