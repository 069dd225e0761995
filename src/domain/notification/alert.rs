//! Alerts: a cue is in trouble beyond one failed execution.
//!
//! Alerts of one type and cue are deduplicated for five minutes.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::domain::ids::ExecutionId;
use crate::domain::text::one_line;
use crate::domain::text::word_enum::word_enum;
use crate::domain::time::rfc3339;

/// Consecutive failures of a cue that raise an alert; each further one raises it again.
pub const ALERT_THRESHOLD: i64 = 3;

/// The window in which an alert suppresses others of its type and cue.
pub const DEDUP_WINDOW: SignedDuration = SignedDuration::from_mins(5);

/// Alerts kept per user; older ones are deleted. It bounds the table for a user whose cues all fail.
pub const MAX_KEPT: u32 = 1_000;

/// The length of quoted text in a message.
const MAX_QUOTED_CHARS: usize = 500;

word_enum! {
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum AlertType {
        /// Several executions of a cue failed in a row.
        ConsecutiveFailures = "consecutive_failures",
        /// An outcome failed the cue's verification.
        VerificationFailed = "verification_failed",
        /// A worker stopped sending heartbeats while it held an execution.
        ClaimLost = "claim_lost",
    }
}

impl AlertType {
    /// `critical` when nothing of the cue works any more.
    #[must_use]
    pub fn severity(self) -> &'static str {
        match self {
            Self::ConsecutiveFailures => "critical",
            Self::VerificationFailed | Self::ClaimLost => "warning",
        }
    }
}

/// An alert to raise about an execution.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NewAlert {
    ConsecutiveFailures {
        /// At least [`ALERT_THRESHOLD`].
        failures: i64,
    },
    VerificationFailed {
        /// The failure reason as a clause.
        reason: String,
    },
    ClaimLost {
        worker_id: String,
        /// The attempt number, from 1.
        attempt: u32,
    },
}

impl NewAlert {
    #[must_use]
    pub fn alert_type(&self) -> AlertType {
        match self {
            Self::ConsecutiveFailures { .. } => AlertType::ConsecutiveFailures,
            Self::VerificationFailed { .. } => AlertType::VerificationFailed,
            Self::ClaimLost { .. } => AlertType::ClaimLost,
        }
    }

    /// The message as a sentence.
    #[must_use]
    pub fn message(&self, cue_name: &str) -> String {
        let cue_name = one_line(cue_name, MAX_QUOTED_CHARS);
        match self {
            Self::ConsecutiveFailures { failures } => {
                format!("{cue_name} has failed {failures} times in a row")
            }
            Self::VerificationFailed { reason } => {
                format!("An outcome of {cue_name} was not verified: {}", one_line(reason, MAX_QUOTED_CHARS))
            }
            Self::ClaimLost { worker_id, .. } => format!(
                "Worker {} lost its claim on an execution of {cue_name}: its lease ended without a report or a sign \
                 of life",
                one_line(worker_id, MAX_QUOTED_CHARS)
            ),
        }
    }

    /// The same for a program.
    #[must_use]
    pub fn metadata(&self) -> Value {
        match self {
            Self::ConsecutiveFailures { failures } => json!({"failure_count": failures}),
            Self::VerificationFailed { reason } => json!({"reason": one_line(reason, MAX_QUOTED_CHARS)}),
            Self::ClaimLost { worker_id, attempt } => json!({"worker_id": worker_id, "attempt": attempt}),
        }
    }
}

/// An alert that was raised.
#[derive(Debug, Clone, PartialEq)]
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
            "created_at": rfc3339(self.created_at),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_one_line_of_bounded_length() {
        let alert = NewAlert::VerificationFailed { reason: "a\r\nb".repeat(1_000) };
        let message = alert.message("c\nd");
        assert!(message.starts_with("An outcome of c d was not verified: a b"), "{message}");
        assert!(message.chars().count() < 600 && !message.contains(['\r', '\n']));
    }
}
