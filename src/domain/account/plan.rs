//! Plans and their limits (contract §8).

use std::collections::BTreeMap;

use serde::Deserialize;

/// The number shown for "no limit": clients divide by it, so it cannot be null (contract §8).
pub const NO_LIMIT: u32 = 1_000_000_000;

/// The limits of a plan. `None` is no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlanLimits {
    /// Active cues at a time.
    pub cues: Option<u32>,
    /// Executions in a UTC calendar month.
    pub executions: Option<u32>,
    /// Requests in any 60 seconds.
    pub requests_per_minute: Option<u32>,
}

impl PlanLimits {
    /// No limits, as with `--limits off`.
    pub const NONE: Self = Self { cues: None, executions: None, requests_per_minute: None };
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plans {
    table: BTreeMap<String, PlanLimits>,
    default: String,
    limited: bool,
}

/// An invalid table of plans, or an unknown plan.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct PlansError(String);

impl Default for Plans {
    fn default() -> Self {
        let limits = |cues, executions, requests| PlanLimits {
            cues: Some(cues),
            executions: Some(executions),
            requests_per_minute: Some(requests),
        };
        let table = [
            ("free", limits(10, 300, 60)),
            ("pro", limits(100, 5_000, 200)),
            ("scale", limits(500, 50_000, 500)),
        ];
        let table = table.into_iter().map(|(name, limits)| (name.to_owned(), limits)).collect();
        Self { table, default: "free".to_owned(), limited: true }
    }
}

impl Plans {
    /// Replaces the built-in table by `json`, the content of `--plans`.
    ///
    /// # Errors
    /// `json` is not an object of plans with exactly the three limits, or has no plan `free`, the fallback of every
    /// account.
    pub fn from_json(json: &str) -> Result<Self, PlansError> {
        let table: BTreeMap<String, PlanLimits> = serde_json::from_str(json).map_err(|error| {
            PlansError(format!(
                "not a valid table of plans: {error}. Write {{\"free\": {{\"cues\": 10, \"executions\": 300, \
                 \"requests_per_minute\": 60}}, …}}, with null for no limit"
            ))
        })?;
        if !table.contains_key("free") {
            return Err(PlansError(
                "the table has no plan \"free\", which accounts fall back to; add it".to_owned(),
            ));
        }
        Ok(Self { table, ..Self::default() })
    }

    /// Makes `name` the plan of new users.
    ///
    /// # Errors
    /// The plan does not exist.
    pub fn with_default(self, name: &str) -> Result<Self, PlansError> {
        self.ensure_exists(name)?;
        Ok(Self { default: name.to_owned(), ..self })
    }

    /// Enforces or lifts the limits for everyone (`--limits`).
    #[must_use]
    pub fn limited(self, limited: bool) -> Self {
        Self { limited, ..self }
    }

    #[must_use]
    pub fn are_limited(&self) -> bool {
        self.limited
    }

    #[must_use]
    pub fn default_plan(&self) -> &str {
        &self.default
    }

    /// The limits of `plan`. A plan that the table no longer has gets those of `free`.
    #[must_use]
    pub fn limits(&self, plan: &str) -> PlanLimits {
        if !self.limited {
            return PlanLimits::NONE;
        }
        self.table.get(plan).or_else(|| self.table.get("free")).copied().unwrap_or(PlanLimits::NONE)
    }

    /// Checks that the table has the plan `name`.
    ///
    /// # Errors
    /// The plan does not exist; the message lists the plans.
    pub fn ensure_exists(&self, name: &str) -> Result<(), PlansError> {
        if self.table.contains_key(name) {
            return Ok(());
        }
        let names: Vec<&str> = self.table.keys().map(String::as_str).collect();
        Err(PlansError(format!("there is no plan {name:?}; the plans are {}", names.join(", "))))
    }
}

/// A limit as shown to callers.
#[must_use]
pub fn limit_or_max(limit: Option<u32>) -> u32 {
    limit.unwrap_or(NO_LIMIT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn null_means_no_limit_and_is_shown_as_a_billion() {
        let plans =
            Plans::from_json(r#"{"free": {"cues": null, "executions": 5, "requests_per_minute": 7}}"#)
                .unwrap();
        assert_eq!(limit_or_max(plans.limits("free").cues), 1_000_000_000);
        assert_eq!(limit_or_max(plans.limits("free").executions), 5);
    }

    #[test]
    fn a_plan_absent_from_the_table_counts_as_free() {
        assert_eq!(Plans::default().limits("gold"), Plans::default().limits("free"));
    }

    #[test]
    fn limits_off_lifts_all_three_for_everyone() {
        assert_eq!(Plans::default().limited(false).limits("free"), PlanLimits::NONE);
    }

    #[test]
    fn tables_with_a_misspelt_limit_or_without_free_are_refused() {
        assert!(
            Plans::from_json(r#"{"free": {"cue": 1, "executions": 1, "requests_per_minute": 1}}"#).is_err()
        );
        let no_free = r#"{"pro": {"cues": 1, "executions": 1, "requests_per_minute": 1}}"#;
        assert!(Plans::from_json(no_free).unwrap_err().to_string().contains("free"));
        assert!(Plans::default().with_default("gold").unwrap_err().to_string().contains("free, pro, scale"));
    }
}
