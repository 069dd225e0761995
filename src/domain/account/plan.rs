//! Plans and their limits, and the monthly quota of executions: the warning level, and the grace period above the
//! limit, one in a month (contract §8).

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Deserializer};

/// The number shown for "no limit": clients divide by it, so it cannot be null (contract §8).
pub const NO_LIMIT: u32 = 1_000_000_000;

const MEGABYTE: i64 = 1 << 20;

/// Cues in all states for each active cue of the plan, paused and finished ones included.
const CUES_PER_ACTIVE: i64 = 10;

const MIN_CUES: i64 = 100;

/// `--limits off` multiplies the bounds of the largest plan: they protect the disk from a program that runs wild.
const UNLIMITED_FACTOR: i64 = 10;

/// API keys of an account: one for each device and program of a person, and few enough for a list.
const MAX_KEYS: i64 = 100;

const MAX_WORKERS: i64 = 1_000;

/// Bytes of the names in `handlers` of a worker, as JSON: a thousand workers then have at most 16 MB.
const MAX_HANDLERS: usize = 16 << 10;

/// Bytes that an account with an unconfirmed address stores: anybody makes such accounts, ten an hour from one address.
const MAX_UNCONFIRMED_BYTES: i64 = MEGABYTE;

/// All accounts with unconfirmed addresses together store at most this part of the free disk.
pub const UNCONFIRMED_DISK_PART: u64 = 4;

/// Calls of the runs of an account with an unconfirmed address in any hour, attempts included.
pub const MAX_UNCONFIRMED_CALLS: u32 = 60;

pub const CALL_WINDOW: SignedDuration = SignedDuration::from_hours(1);

/// The time between two runs that wait for the window: what it admits on average.
pub const CALL_INTERVAL: SignedDuration = SignedDuration::from_mins(1);

/// The time after which an account with an unconfirmed address is removed, if no cue of it ran in that time.
pub const UNCONFIRMED_LIFETIME: SignedDuration = SignedDuration::from_hours(7 * 24);

/// Storage of a custom plan without `storage_mb`: that of `pro`.
const DEFAULT_STORAGE_MB: u32 = 1_024;

/// The limits of a plan. `None` is no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlanLimits {
    pub cues: Option<u32>,
    pub executions: Option<u32>,
    pub requests_per_minute: Option<u32>,
    pub storage_mb: Option<u32>,
}

impl PlanLimits {
    pub const NONE: Self =
        Self { cues: None, executions: None, requests_per_minute: None, storage_mb: None };
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PlanEntry {
    cues: Option<u32>,
    executions: Option<u32>,
    requests_per_minute: Option<u32>,
    /// The outer `None` is an absent field, the inner one `null`.
    #[serde(default, deserialize_with = "present")]
    storage_mb: Option<Option<u32>>,
}

/// The bounds on what an account stores (contract §11.6). `None` is no bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StorageBounds {
    pub cues: Option<i64>,
    pub bytes: Option<i64>,
}

impl StorageBounds {
    fn new(plan: &PlanLimits, factor: i64) -> Self {
        Self {
            cues: plan.cues.map(|cues| factor * (CUES_PER_ACTIVE * i64::from(cues)).max(MIN_CUES)),
            bytes: plan.storage_mb.map(|megabytes| factor * i64::from(megabytes) * MEGABYTE),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plans {
    table: Arc<BTreeMap<String, PlanLimits>>,
    default: String,
    limited: bool,
    trusts_unconfirmed: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct PlansError(String);

impl Default for Plans {
    fn default() -> Self {
        let limits = |cues, executions, requests, storage_mb| PlanLimits {
            cues: Some(cues),
            executions: Some(executions),
            requests_per_minute: Some(requests),
            storage_mb: Some(storage_mb),
        };
        let table = [
            ("free", limits(10, 300, 60, 64)),
            ("pro", limits(100, 5_000, 200, 1_024)),
            ("scale", limits(500, 50_000, 500, 10_240)),
        ];
        let table: BTreeMap<_, _> =
            table.into_iter().map(|(name, limits)| (name.to_owned(), limits)).collect();
        Self {
            table: Arc::new(table),
            default: "free".to_owned(),
            limited: true,
            trusts_unconfirmed: false,
        }
    }
}

impl Plans {
    /// Reads the content of `--plans`. The plan `free` must exist: all accounts fall back to it.
    pub fn from_json(json: &str) -> Result<Self, PlansError> {
        let table: BTreeMap<String, PlanEntry> = serde_json::from_str(json).map_err(|error| {
            PlansError(format!(
                "not a valid table of plans: {error}. Write {{\"free\": {{\"cues\": 10, \"executions\": 300, \
                 \"requests_per_minute\": 60, \"storage_mb\": 64}}, …}}, with null for no limit"
            ))
        })?;
        if !table.contains_key("free") {
            return Err(PlansError(
                "the table has no plan \"free\", which accounts fall back to; add it".to_owned(),
            ));
        }
        let built_in = Self::default();
        let limits = |(name, entry): (String, PlanEntry)| {
            let usual =
                built_in.table.get(&name).map_or(Some(DEFAULT_STORAGE_MB), |plan| plan.storage_mb);
            let PlanEntry { cues, executions, requests_per_minute, storage_mb } = entry;
            let storage_mb = storage_mb.unwrap_or(usual);
            (name, PlanLimits { cues, executions, requests_per_minute, storage_mb })
        };
        let table = Arc::new(table.into_iter().map(limits).collect());
        Ok(Self { table, ..built_in })
    }

    pub fn with_default(self, name: &str) -> Result<Self, PlansError> {
        self.ensure_exists(name)?;
        Ok(Self { default: name.to_owned(), ..self })
    }

    pub fn limited(self, limited: bool) -> Self {
        Self { limited, ..self }
    }

    /// Lifts the bounds on accounts with unconfirmed addresses, if `trusted` (`--dev`).
    pub fn trusting_unconfirmed(self, trusted: bool) -> Self {
        Self { trusts_unconfirmed: trusted, ..self }
    }

    /// True if accounts with unconfirmed addresses are bounded (contract §3.10): `--limits off` trusts all.
    pub fn bounds_unconfirmed(&self) -> bool {
        self.limited && !self.trusts_unconfirmed
    }

    pub fn are_limited(&self) -> bool {
        self.limited
    }

    pub fn default_plan(&self) -> &str {
        &self.default
    }

    /// The limits of `plan`. A plan that the table no longer has gets those of `free`.
    pub fn limits(&self, plan: &str) -> PlanLimits {
        if self.limited { self.entry(plan) } else { PlanLimits::NONE }
    }

    pub fn storage_bounds(&self, plan: &str, is_confirmed: bool) -> StorageBounds {
        if self.limited {
            let bounds = StorageBounds::new(&self.entry(plan), 1);
            let unconfirmed =
                (!is_confirmed && self.bounds_unconfirmed()).then_some(MAX_UNCONFIRMED_BYTES);
            return StorageBounds {
                bytes: bounds.bytes.into_iter().chain(unconfirmed).min(),
                ..bounds
            };
        }
        let largest = |limit: fn(&PlanLimits) -> Option<u32>| {
            // A plan without the limit lifts it for everyone.
            let limits: Option<Vec<u32>> = self.table.values().map(limit).collect();
            limits.and_then(|limits| limits.into_iter().max())
        };
        let (cues, storage_mb) = (largest(|plan| plan.cues), largest(|plan| plan.storage_mb));
        StorageBounds::new(&PlanLimits { cues, storage_mb, ..PlanLimits::NONE }, UNLIMITED_FACTOR)
    }

    pub fn max_keys(&self) -> Option<i64> {
        self.limited.then_some(MAX_KEYS)
    }

    pub fn max_workers(&self) -> Option<i64> {
        self.limited.then_some(MAX_WORKERS)
    }

    pub fn max_handlers(&self) -> Option<usize> {
        self.limited.then_some(MAX_HANDLERS)
    }

    fn entry(&self, plan: &str) -> PlanLimits {
        self.table.get(plan).or_else(|| self.table.get("free")).copied().unwrap_or(PlanLimits::NONE)
    }

    pub fn ensure_exists(&self, name: &str) -> Result<(), PlansError> {
        if self.table.contains_key(name) {
            return Ok(());
        }
        let names: Vec<&str> = self.table.keys().map(String::as_str).collect();
        Err(PlansError(format!("there is no plan {name:?}; the plans are {}", names.join(", "))))
    }
}

pub fn limit_or_max(limit: Option<u32>) -> u32 {
    limit.unwrap_or(NO_LIMIT)
}

/// Bytes as shown to callers. No bound is shown as [`NO_LIMIT`] megabytes.
pub fn bytes_or_max(bytes: Option<i64>) -> i64 {
    bytes.unwrap_or(i64::from(NO_LIMIT) * MEGABYTE)
}

fn present<'de, D: Deserializer<'de>>(value: D) -> Result<Option<Option<u32>>, D::Error> {
    Option::deserialize(value).map(Some)
}

pub const GRACE: SignedDuration = SignedDuration::from_hours(24);

/// Within the grace period, which is for a busy day, executions run up to this multiple of the quota.
const GRACE_FACTOR: i64 = 2;

pub const LIMIT_EXCEEDED: &str = "execution_limit_exceeded";

/// A user's executions in one month, and the limit of its plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quota {
    pub limit: Option<u32>,
    pub used: i64,
    /// The creation time of the first execution of the month above the limit, or that of an earlier plan.
    pub over_quota_since: Option<Timestamp>,
}

impl Quota {
    /// Counts an execution created at `now`. Returns `false`, without counting, when it must not run.
    pub fn try_use(&mut self, now: Timestamp) -> bool {
        match self.limit.map(i64::from) {
            Some(limit) if self.used >= limit => {
                // Kept until the month ends: a change of plan and back does not start another grace period.
                let since = *self.over_quota_since.get_or_insert(now);
                if now.duration_since(since) >= GRACE
                    || self.used >= limit.saturating_mul(GRACE_FACTOR)
                {
                    return false;
                }
            }
            _ => {}
        }
        self.used += 1;
        true
    }
}

/// Returns whether `used` executions are at least 80 % of the limit.
pub fn is_nearly_used_up(limit: Option<u32>, used: i64) -> bool {
    limit.is_some_and(|limit| used.saturating_mul(5) >= i64::from(limit) * 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_without_storage_has_that_of_the_built_in_plan_of_its_name() {
        let entry = r#"{"cues": 20, "executions": 1, "requests_per_minute": 1"#;
        let json = format!(
            r#"{{"free": {entry}}}, "gold": {entry}}}, "small": {entry}, "storage_mb": 2}}, "any": {entry}, "storage_mb": null}}}}"#
        );
        let plans = Plans::from_json(&json).unwrap();
        for (plan, bytes) in [
            ("free", Some(64 << 20)),
            ("gold", Some(1 << 30)),
            ("small", Some(2 << 20)),
            ("any", None),
        ] {
            assert_eq!(
                plans.storage_bounds(plan, true),
                StorageBounds { cues: Some(200), bytes },
                "{plan}"
            );
        }
    }

    #[test]
    fn tables_with_a_misspelt_limit_or_without_free_are_refused() {
        assert!(
            Plans::from_json(r#"{"free": {"cue": 1, "executions": 1, "requests_per_minute": 1}}"#)
                .is_err()
        );
        let no_free = r#"{"pro": {"cues": 1, "executions": 1, "requests_per_minute": 1}}"#;
        assert!(Plans::from_json(no_free).unwrap_err().to_string().contains("free"));
        assert!(
            Plans::default()
                .with_default("gold")
                .unwrap_err()
                .to_string()
                .contains("free, pro, scale")
        );
    }

    fn at(text: &str) -> Timestamp {
        format!("2026-01-{text}:00Z").parse().unwrap()
    }

    #[test]
    fn a_clock_that_went_back_rejects_nothing() {
        let mut quota = Quota { limit: Some(10), used: 10, over_quota_since: Some(at("20T00:00")) };
        assert!(quota.try_use(at("01T00:00")));
    }
}
