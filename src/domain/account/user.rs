//! Users: the caller of a request, the stored account, and the registration policy (contract §3).

use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Span, Timestamp};

use crate::domain::account::plan::PlanLimits;
use crate::domain::row_keys::UserKey;
use crate::domain::text::word_enum;

/// The time during which the previous webhook secret signs too (contract §3).
pub const SECRET_OVERLAP: SignedDuration = SignedDuration::from_hours(24);

pub const FIRST_KEY: &str = "default";

/// The `error_message` of an execution that was not sent because its user is disabled.
pub const ACCOUNT_DISABLED: &str = "account_disabled";
/// `error_message` of executions that were queued when the user revoked all API keys at a device login.
pub const KEYS_REVOKED: &str = "keys_revoked";

/// `error_message` of executions that wait, because the account may not call more often until its address is confirmed.
pub const ADDRESS_UNCONFIRMED: &str = "address_unconfirmed";
/// What lifts the bounds on an account with an unconfirmed address, for error messages.
pub const CONFIRM: &str = "confirm the address of the account by signing in with a mailed link, and keep its API keys there";

pub const MAX_REGISTRATIONS: u32 = 10;

pub const REGISTRATION_WINDOW: SignedDuration = SignedDuration::from_hours(1);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    pub user_key: UserKey,
    pub user_id: String,
    pub credential: Credential,
    pub plan: String,
    pub limits: PlanLimits,
    /// May manage the server over HTTP.
    pub is_operator: bool,
    pub executions: i64,
}

word_enum! {
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum CredentialKind {
        Key = "key",
        Session = "session",
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Credential {
    ApiKey { key: i64, hash: [u8; 32] },
    Session { id: String, api_key: Option<i64>, hash: [u8; 32] },
}

impl Credential {
    pub fn api_key(&self) -> Option<i64> {
        match self {
            Self::ApiKey { key, .. } => Some(*key),
            Self::Session { api_key, .. } => *api_key,
        }
    }

    pub fn session_id(&self) -> Option<&str> {
        match self {
            Self::ApiKey { .. } => None,
            Self::Session { id, .. } => Some(id),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    pub key: UserKey,
    pub id: String,
    pub email: String,
    pub plan: String,
    /// `monthly` or `annual` if a subscription pays for the plan.
    pub plan_interval: Option<String>,
    pub alert_webhook_url: Option<String>,
    pub active_cues: i64,
    pub cue_count: i64,
    pub stored_bytes: i64,
    pub disabled_at: Option<Timestamp>,
    pub created_at: Timestamp,
    /// When the address was proved to receive mail, or added by the operator; `None` before.
    pub confirmed_at: Option<Timestamp>,
    pub is_operator: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiKeyInfo {
    pub key: i64,
    pub id: String,
    pub name: String,
    pub prefix: String,
    pub created_at: Timestamp,
}

word_enum! {
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub enum RegistrationPolicy {
        #[default]
        FirstUser = "first-user",
        Open = "open",
        Closed = "closed",
    }
}

impl RegistrationPolicy {
    /// The number that is stored, from 1 on in the order of the words.
    pub fn number(self) -> i64 {
        self as i64 + 1
    }

    pub fn from_number(number: i64) -> Option<Self> {
        Self::ALL.into_iter().find(|policy| policy.number() == number)
    }

    pub fn admits(self, users_exist: bool) -> bool {
        match self {
            Self::FirstUser => !users_exist,
            Self::Open => true,
            Self::Closed => false,
        }
    }
}

/// The UTC calendar month of an instant as a number: year × 12 + month − 1.
pub fn month_of(at: Timestamp) -> i64 {
    let date = at.to_zoned(TimeZone::UTC).date();
    i64::from(date.year()) * 12 + i64::from(date.month()) - 1
}

/// The first instant of the UTC calendar month of `at`, and of the next month.
pub fn month_bounds(at: Timestamp) -> (Timestamp, Timestamp) {
    let first = at.to_zoned(TimeZone::UTC).date().first_of_month();
    let next = first.checked_add(Span::new().months(1)).ok();
    let midnight = |date: Date| date.to_zoned(TimeZone::UTC).ok().map(|zoned| zoned.timestamp());
    // Only the first and the last month of representable time are cut short.
    (midnight(first).unwrap_or(Timestamp::MIN), next.and_then(midnight).unwrap_or(Timestamp::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_month_lasts_until_the_next_one_begins() {
        for (at, first, next) in [
            ("2026-12-31T23:59:59.999Z", "2026-12-01T00:00:00Z", "2027-01-01T00:00:00Z"),
            ("2028-02-01T00:00:00Z", "2028-02-01T00:00:00Z", "2028-03-01T00:00:00Z"),
            ("2026-03-31T23:30:00-01:00", "2026-04-01T00:00:00Z", "2026-05-01T00:00:00Z"),
        ] {
            let (from, until) = month_bounds(at.parse().unwrap());
            assert_eq!(
                (from.to_string(), until.to_string()),
                (first.to_owned(), next.to_owned()),
                "{at}"
            );
        }
    }
}
