//! Plans and their limits (contract §8).

use std::collections::BTreeMap;

use serde::Deserialize;

/// What "no limit" is shown as: clients divide by it (contract §8).
pub const NO_LIMIT: u32 = 1_000_000_000;

/// What one plan allows. `None` is no limit.
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
    /// No limit at all, as under `--limits off`.
    pub const NONE: Self = Self { cues: None, executions: None, requests_per_minute: None };
}

/// The table of plans.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plans {
    table: BTreeMap<String, PlanLimits>,
    default: String,
    limited: bool,
}

/// Why a table of plans was not taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlansError(String);

impl std::fmt::Display for PlansError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for PlansError {}

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
    /// The table in `json` (the text of `--plans`) in place of the built-in one.
    ///
    /// # Errors
    /// When it is not an object of plans with exactly the three limits, or has no plan `free`, which every account
    /// falls back to.
    pub fn from_json(json: &str) -> Result<Self, PlansError> {
        let table: BTreeMap<String, PlanLimits> = serde_json::from_str(json).map_err(|error| {
            PlansError(format!(
                "not a table of plans: {error}. Write {{\"free\": {{\"cues\": 10, \"executions\": 300, \
                 \"requests_per_minute\": 60}}, …}}, with null for no limit"
            ))
        })?;
        if !table.contains_key("free") {
            return Err(PlansError(
                "the table needs a plan \"free\": it is what accounts fall back to".to_owned(),
            ));
        }
        Ok(Self { table, ..Self::default() })
    }

    /// The same table with `name` as the plan of new users.
    ///
    /// # Errors
    /// When there is no such plan.
    pub fn with_default(self, name: &str) -> Result<Self, PlansError> {
        self.ensure_exists(name)?;
        Ok(Self { default: name.to_owned(), ..self })
    }

    /// The same table with its limits in force or lifted for everyone (`--limits`).
    #[must_use]
    pub fn limited(self, limited: bool) -> Self {
        Self { limited, ..self }
    }

    /// Whether the limits are in force.
    #[must_use]
    pub fn are_limited(&self) -> bool {
        self.limited
    }

    /// The plan of a new user.
    #[must_use]
    pub fn default_plan(&self) -> &str {
        &self.default
    }

    /// What `plan` allows. A plan that the table no longer has counts as `free`.
    #[must_use]
    pub fn limits(&self, plan: &str) -> PlanLimits {
        if !self.limited {
            return PlanLimits::NONE;
        }
        self.table.get(plan).or_else(|| self.table.get("free")).copied().unwrap_or(PlanLimits::NONE)
    }

    /// Nothing where the table has the plan `name`, else an error that lists those it has.
    ///
    /// # Errors
    /// When there is no such plan.
    pub fn ensure_exists(&self, name: &str) -> Result<(), PlansError> {
        if self.table.contains_key(name) {
            return Ok(());
        }
        let names: Vec<&str> = self.table.keys().map(String::as_str).collect();
        Err(PlansError(format!("there is no plan {name:?}; the plans are {}", names.join(", "))))
    }
}

/// A limit as callers see it.
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
