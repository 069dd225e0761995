//! The executions of a user as a list with filters, newest first.

use rusqlite::types::Value;
use rusqlite::{ToSql, params_from_iter};

use super::executions::{Listed, listed, select};
use super::{Read, removal};
use crate::domain::execution::{Status, Trigger};
use crate::domain::verification::OutcomeState;
use crate::error::Result;

/// Which executions a list shows; what is `None` or empty filters nothing.
#[derive(Debug, Clone, Default)]
#[allow(missing_docs)]
pub struct Filter {
    pub cue_id: Option<String>,
    /// Any of these.
    pub statuses: Vec<Status>,
    pub outcome_state: Option<OutcomeState>,
    pub worker_id: Option<String>,
    pub triggered_by: Option<Trigger>,
}

/// One page of the user's executions that fit the filter, newest first, and how many there are in all.
///
/// # Errors
/// When the file cannot be read.
pub fn list(
    read: &Read<'_>,
    user_key: i64,
    filter: &Filter,
    limit: u32,
    offset: u64,
) -> Result<(Vec<Listed>, i64)> {
    let (mut conditions, mut values) = filter.conditions(user_key);
    if removal::any_of(read, user_key)? {
        // The page is read with `cues`, where they are gone; the count is not.
        conditions += " AND e.cue_key NOT IN (SELECT key FROM removed_cues)";
    }
    let total = read
        .prepare_cached(&format!("SELECT count(*) FROM executions e WHERE {conditions}"))?
        .query_row(params_from_iter(&values), |row| row.get(0))?;
    values.push(i64::from(limit).into());
    values.push(i64::try_from(offset).unwrap_or(i64::MAX).into());
    let page = read
        .prepare_cached(&select(&format!("WHERE {conditions} ORDER BY e.key DESC LIMIT ? + 0 OFFSET ?")))?
        .query_map(params_from_iter(values.iter().map(|value| value as &dyn ToSql)), listed)?
        .collect::<rusqlite::Result<Vec<_>>>()?;
    Ok((page, total))
}

impl Filter {
    /// The SQL condition, made of fixed text only, and its values.
    fn conditions(&self, user_key: i64) -> (String, Vec<Value>) {
        let mut conditions = vec!["e.user_key = ?".to_owned()];
        let mut values = vec![Value::from(user_key)];
        let mut add = |condition: &str, value: Option<String>| {
            if let Some(value) = value {
                conditions.push(condition.to_owned());
                values.push(value.into());
            }
        };
        add("e.cue_key = (SELECT key FROM cues WHERE id = ?)", self.cue_id.clone());
        add("e.outcome_state = ?", self.outcome_state.map(|state| state.as_str().to_owned()));
        add("e.claimed_by = ?", self.worker_id.clone());
        add("e.triggered_by = ?", self.triggered_by.map(|trigger| trigger.as_str().to_owned()));
        if !self.statuses.is_empty() {
            conditions.push(format!("e.status IN ({})", vec!["?"; self.statuses.len()].join(", ")));
            values.extend(self.statuses.iter().map(|status| status.as_str().to_owned().into()));
        }
        (conditions.join(" AND "), values)
    }
}
