//! Users: who calls, what an account holds, who may register, and how its secret is replaced (contract §3).

use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Span, Timestamp};

use crate::domain::account::plan::PlanLimits;

/// How long the old webhook secret signs beside the new one (contract §3).
pub const SECRET_OVERLAP: SignedDuration = SignedDuration::from_hours(24);

/// The name of the key that registration makes.
pub const FIRST_KEY: &str = "default";

/// The `error_message` of an execution that was not sent because its user was disabled.
pub const ACCOUNT_DISABLED: &str = "account_disabled";

/// The account and key behind a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// The user's row.
    pub user_key: i64,
    /// The user's id.
    pub user_id: String,
    /// The API key's row.
    pub key: i64,
    /// The API key's hash: what `key/regenerate` replaces.
    pub key_hash: [u8; 32],
    /// The user's plan by name.
    pub plan: String,
    /// What the plan allows.
    pub limits: PlanLimits,
    /// Executions that count in this month.
    pub executions: i64,
}

/// A stored user.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct User {
    /// Its row.
    pub key: i64,
    pub id: String,
    pub email: String,
    pub plan: String,
    /// `monthly` or `annual` where a subscription pays for the plan.
    pub plan_interval: Option<String>,
    /// Where its alerts are sent.
    pub alert_webhook_url: Option<String>,
    pub active_cues: i64,
    pub disabled_at: Option<Timestamp>,
    pub created_at: Timestamp,
}

/// An API key as it may be shown: the key itself is not stored.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct ApiKeyInfo {
    /// Its row.
    pub key: i64,
    pub id: String,
    pub name: String,
    /// Its first characters.
    pub prefix: String,
    pub created_at: Timestamp,
}

/// Who may register over HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RegistrationPolicy {
    /// Anyone, until one user exists.
    FirstUser,
    /// Anyone.
    Open,
    /// Nobody: users are added with `cued user add`.
    Closed,
}

impl RegistrationPolicy {
    /// The word for it, as `--registration` takes it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::FirstUser => "first-user",
            Self::Open => "open",
            Self::Closed => "closed",
        }
    }

    /// Whether someone may register.
    #[must_use]
    pub fn admits(self, users_exist: bool) -> bool {
        match self {
            Self::FirstUser => !users_exist,
            Self::Open => true,
            Self::Closed => false,
        }
    }
}

/// The UTC calendar month of an instant as one number: year × 12 + month − 1.
#[must_use]
pub fn month_of(at: Timestamp) -> i64 {
    let date = at.to_zoned(TimeZone::UTC).date();
    i64::from(date.year()) * 12 + i64::from(date.month()) - 1
}

/// The UTC calendar month of an instant: its first instant, and that of the next one.
#[must_use]
pub fn month_around(at: Timestamp) -> (Timestamp, Timestamp) {
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
    fn first_user_registration_closes_after_the_first() {
        assert!(RegistrationPolicy::FirstUser.admits(false));
        assert!(!RegistrationPolicy::FirstUser.admits(true));
    }

    #[test]
    fn open_and_closed_registration_ignore_existing_users() {
        for users_exist in [false, true] {
            assert!(RegistrationPolicy::Open.admits(users_exist));
            assert!(!RegistrationPolicy::Closed.admits(users_exist));
        }
    }

    #[test]
    fn months_are_those_of_utc() {
        let month = |text: &str| month_of(text.parse().unwrap());
        assert_eq!(month("2026-12-31T23:59:59Z") + 1, month("2027-01-01T00:00:00Z"));
        assert_eq!(month("2026-12-31T23:59:59-05:00"), month("2027-01-01T00:00:00Z"));
    }

    #[test]
    fn a_month_lasts_until_the_next_one_begins() {
        for (at, first, next) in [
            ("2026-12-31T23:59:59.999Z", "2026-12-01T00:00:00Z", "2027-01-01T00:00:00Z"),
            ("2028-02-01T00:00:00Z", "2028-02-01T00:00:00Z", "2028-03-01T00:00:00Z"),
            ("2026-03-31T23:30:00-01:00", "2026-04-01T00:00:00Z", "2026-05-01T00:00:00Z"),
        ] {
            let (from, until) = month_around(at.parse().unwrap());
            assert_eq!((from.to_string(), until.to_string()), (first.to_owned(), next.to_owned()), "{at}");
        }
    }
}
