//! The executions of a user as a list with filters, newest first.
//!
//! A page is found in two steps: the keys, along an index that holds them in order, from whichever end is nearer; then
//! the rows of the page. So the last page of a million costs what the first one does, and neither reads other rows.

use rusqlite::types::Value;
use rusqlite::{OptionalExtension, params_from_iter};

use crate::domain::execution::verification::OutcomeState;
use crate::domain::execution::{ExecutionStatus, Trigger};
use crate::error::Result;
use crate::store::executions::{ExecutionDetails, find_by_key};
use crate::store::maintenance::cue_deletion;
use crate::store::{ReadTx, cues};

/// Most bytes of the texts in one page: a hundred executions may hold 50 MB. The page is then shorter.
const PAGE_BYTES: i64 = 8 << 20;

const TEXT_BYTES: &str =
    "SELECT coalesce(octet_length(e.response_body), 0) + coalesce(octet_length(e.error_message), 0)
        + coalesce(octet_length(o.result), 0) + coalesce(octet_length(o.error), 0)
        + coalesce(octet_length(o.metadata), 0) + coalesce(octet_length(o.evidence), 0)
        + coalesce(octet_length(o.reason), 0)
   FROM executions e LEFT JOIN outcomes o ON o.execution_key = e.key WHERE e.key = ?1";

/// Which executions a list shows; what is `None` or empty filters nothing.
#[derive(Debug, Clone, Default)]
pub struct ExecutionFilter {
    pub cue_id: Option<String>,
    /// Any of these.
    pub statuses: Vec<ExecutionStatus>,
    pub outcome_state: Option<OutcomeState>,
    pub worker_id: Option<String>,
    pub triggered_by: Option<Trigger>,
}

/// One page of the user's executions that fit the filter, newest first, and how many there are in all.
pub fn list(
    read: &ReadTx<'_>,
    user_key: i64,
    filter: &ExecutionFilter,
    limit: u32,
    offset: u64,
) -> Result<(Vec<ExecutionDetails>, i64)> {
    let cue_key = match &filter.cue_id {
        None => None,
        Some(id) => match cues::find_key(read, user_key, id)? {
            None => return Ok((Vec::new(), 0)),
            found => found,
        },
    };
    let is_removing = cue_deletion::any_of(read, user_key)?;
    let filter = ResolvedFilter { user_key, cue_key, is_removing, filter };
    let mut total = 0;
    for walk in filter.parts() {
        total += walk.count(read)?;
    }
    let page = filter.walk().page(read, total, limit, offset)?;
    Ok((rows(read, &page)?, total))
}

/// One page of the executions of a cue (which was found for its owner), newest first, and how many there are in all.
pub fn list_by_cue(
    read: &ReadTx<'_>,
    cue_key: i64,
    limit: u32,
    offset: u64,
) -> Result<(Vec<ExecutionDetails>, i64)> {
    let mut walk = IndexScan::along("executions_by_cue");
    walk.with("e.cue_key = ?", cue_key);
    let total = walk.count(read)?;
    let page = walk.page(read, total, limit, offset)?;
    Ok((rows(read, &page)?, total))
}

/// The rows of a page, fewer where they are very large.
fn rows(read: &ReadTx<'_>, keys: &[i64]) -> Result<Vec<ExecutionDetails>> {
    let (mut rows, mut bytes) = (Vec::new(), 0);
    for key in keys {
        let size =
            read.prepare_cached(TEXT_BYTES)?.query_row([key], |row| row.get::<_, i64>(0)).optional()?;
        bytes += size.unwrap_or(0);
        if bytes > PAGE_BYTES && !rows.is_empty() {
            break;
        }
        rows.extend(find_by_key(read, *key)?);
    }
    Ok(rows)
}

/// Executions in the order of an index, and the conditions that hold for them, made of fixed text only.
struct IndexScan {
    index: &'static str,
    conditions: Vec<String>,
    values: Vec<Value>,
}

impl IndexScan {
    fn along(index: &'static str) -> Self {
        Self { index, conditions: Vec::new(), values: Vec::new() }
    }

    fn with(&mut self, condition: &str, value: impl Into<Value>) {
        self.conditions.push(condition.to_owned());
        self.values.push(value.into());
    }

    fn sql(&self, what: &str) -> String {
        let index = if self.index.is_empty() { String::new() } else { format!("INDEXED BY {}", self.index) };
        format!("SELECT {what} FROM executions e {index} WHERE {}", self.conditions.join(" AND "))
    }

    fn count(&self, read: &ReadTx<'_>) -> Result<i64> {
        let mut count = read.prepare_cached(&self.sql("count(*)"))?;
        Ok(count.query_row(params_from_iter(&self.values), |row| row.get(0))?)
    }

    /// The keys of a page of `total`, newest first.
    fn page(&self, read: &ReadTx<'_>, total: i64, limit: u32, offset: u64) -> Result<Vec<i64>> {
        let offset = i64::try_from(offset).unwrap_or(i64::MAX).min(total);
        let limit = i64::from(limit).min(total - offset);
        if limit <= 0 {
            return Ok(Vec::new());
        }
        let after = total - offset - limit;
        let (order, skipped) = if offset <= after { ("DESC", offset) } else { ("ASC", after) };
        let sql = format!("{} ORDER BY e.key {order} LIMIT ? + 0 OFFSET ?", self.sql("e.key"));
        let mut page = read.prepare_cached(&sql)?;
        let bounds = [Value::from(limit), Value::from(skipped)];
        let keys = page.query_map(params_from_iter(self.values.iter().chain(&bounds)), |row| row.get(0))?;
        let mut keys: Vec<i64> = keys.collect::<rusqlite::Result<_>>()?;
        if order == "ASC" {
            keys.reverse();
        }
        Ok(keys)
    }
}

/// Those that are not over: the partial indexes of the queue hold them, and nothing else. What waits for a worker may be
/// many, and is the user's own; the others are of all users, on their way.
const OPEN: &str = "e.key IN (SELECT key FROM executions WHERE queue_name = 'claim' AND user_key = ?
    UNION ALL SELECT key FROM executions WHERE queue_name = 'send'
    UNION ALL SELECT key FROM executions WHERE queue_name = 'waiting'
    UNION ALL SELECT key FROM executions WHERE status = 'delivering')";

/// A filter for a user, whose cue has been looked up.
struct ResolvedFilter<'a> {
    user_key: i64,
    cue_key: Option<i64>,
    /// Whether a cue of the user is gone whose executions are still there.
    is_removing: bool,
    filter: &'a ExecutionFilter,
}

impl ResolvedFilter<'_> {
    /// All that fit, in order.
    fn walk(&self) -> IndexScan {
        let mut parts = self.parts();
        match parts.pop() {
            Some(part) if parts.is_empty() => part,
            // Ended ones and others: nearly all, then.
            _ => {
                let mut all = IndexScan::along("executions_by_user");
                all.with("e.user_key = ?", self.user_key);
                self.narrow(&mut all);
                all
            }
        }
    }

    /// All that fit, as parts that have nothing in common, each of which is quick to count.
    fn parts(&self) -> Vec<IndexScan> {
        let (index, user_key, statuses) = (self.narrowest_index(), self.user_key, &self.filter.statuses);
        if index != "executions_by_user" || statuses.is_empty() {
            let mut walk = IndexScan::along(index);
            match self.cue_key {
                // It is the user's: the index need not be left to see that.
                Some(cue_key) => walk.with("e.cue_key = ?", cue_key),
                None => walk.with("e.user_key = ?", user_key),
            }
            self.narrow(&mut walk);
            return vec![walk];
        }
        let (over, open): (Vec<ExecutionStatus>, Vec<ExecutionStatus>) =
            statuses.iter().partition(|status| status.is_over());
        let mut parts = Vec::new();
        for status in over {
            let mut walk = IndexScan::along("executions_finished");
            walk.with("e.user_key = ?", user_key);
            // A literal: only so is it known to be in the partial index.
            walk.conditions.push(format!("e.status = '{}'", status.as_str()));
            walk.conditions.extend(self.trigger().into_iter().chain(self.is_there()));
            parts.push(walk);
        }
        if !open.is_empty() {
            let mut walk = IndexScan::along("");
            walk.with("e.user_key = ?", user_key);
            walk.with(OPEN, user_key);
            walk.conditions.push(is_one_of(&open));
            walk.conditions.extend(self.trigger().into_iter().chain(self.is_there()));
            parts.push(walk);
        }
        parts
    }

    /// The index whose entries are fewest for what is asked. One that says nothing of the status is walked to its end.
    fn narrowest_index(&self) -> &'static str {
        match self.filter {
            ExecutionFilter { cue_id: Some(_), .. } => "executions_by_cue",
            ExecutionFilter { worker_id: Some(_), .. } => "executions_by_worker",
            ExecutionFilter { outcome_state: Some(_), .. } => "executions_by_outcome",
            ExecutionFilter { triggered_by: Some(Trigger::ManualFire | Trigger::Replay), .. } => {
                "executions_by_trigger"
            }
            _ => "executions_by_user",
        }
    }

    /// Adds the conditions of the filter but for the cue.
    fn narrow(&self, walk: &mut IndexScan) {
        if let Some(worker_id) = &self.filter.worker_id {
            walk.with("e.claimed_by_worker = ?", worker_id.clone());
        }
        if let Some(state) = self.filter.outcome_state {
            walk.with("e.outcome_state = ?", state.as_str().to_owned());
        }
        walk.conditions.extend(self.trigger().into_iter().chain(self.is_there()));
        if !self.filter.statuses.is_empty() {
            walk.conditions.push(is_one_of(&self.filter.statuses));
        }
    }

    fn is_there(&self) -> Option<String> {
        self.is_removing.then(|| "e.cue_key NOT IN (SELECT cue_key FROM deleted_cues)".to_owned())
    }

    fn trigger(&self) -> Option<String> {
        self.filter.triggered_by.map(|trigger| format!("e.triggered_by = '{}'", trigger.as_str()))
    }
}

fn is_one_of(statuses: &[ExecutionStatus]) -> String {
    let words: Vec<String> = statuses.iter().map(|status| format!("'{}'", status.as_str())).collect();
    format!("e.status IN ({})", words.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::test_support::memory_database;

    #[test]
    fn every_filter_walks_an_index_and_sorts_nothing() {
        let file = memory_database();
        let plan = |walk: &IndexScan| -> Vec<String> {
            let sql = walk.sql("e.key");
            let mut explain = file.prepare(&format!("EXPLAIN QUERY PLAN {sql} ORDER BY e.key DESC")).unwrap();
            let steps = explain.query_map(params_from_iter(&walk.values), |row| row.get("detail")).unwrap();
            steps.map(rusqlite::Result::unwrap).collect()
        };
        let is = |filter: ExecutionFilter, step: &str| {
            let narrowed = ResolvedFilter {
                user_key: 1,
                cue_key: filter.cue_id.as_ref().map(|_| 7),
                is_removing: false,
                filter: &filter,
            };
            let steps = plan(&narrowed.walk());
            assert!(
                steps[0].starts_with("SEARCH e USING") && steps[0].contains(step),
                "{filter:?}: {steps:?}"
            );
            assert!(!steps.iter().any(|step| step.contains("TEMP B-TREE")), "{filter:?}: {steps:?}");
            // Of what waits and what is under way, which partial indexes hold and nothing else.
            let queue = ["to_send", "to_claim", "waiting", "in_flight"];
            let queue = queue.map(|index| format!("SCAN executions USING COVERING INDEX executions_{index}"));
            let scans = steps.iter().filter(|step| step.starts_with("SCAN"));
            assert!(scans.clone().all(|step| queue.contains(step)), "{filter:?}: {steps:?}");
        };
        let all = ExecutionFilter::default;
        let (failed, pending) =
            (vec![ExecutionStatus::Failed], vec![ExecutionStatus::Pending, ExecutionStatus::Retrying]);
        is(all(), "executions_by_user (user_key=?)");
        is(ExecutionFilter { cue_id: Some("c".to_owned()), ..all() }, "executions_by_cue (cue_key=?)");
        is(
            ExecutionFilter { worker_id: Some("w".to_owned()), ..all() },
            "executions_by_worker (user_key=? AND claimed_by_worker=?)",
        );
        is(
            ExecutionFilter { outcome_state: Some(OutcomeState::VerificationPending), ..all() },
            "executions_by_outcome (user_key=? AND outcome_state=?)",
        );
        is(
            ExecutionFilter { triggered_by: Some(Trigger::Replay), ..all() },
            "executions_by_trigger (user_key=? AND triggered_by=?)",
        );
        is(
            ExecutionFilter { statuses: failed.clone(), ..all() },
            "executions_finished (user_key=? AND status=?)",
        );
        is(
            ExecutionFilter { statuses: pending.clone(), ..all() },
            "executions_by_user (user_key=? AND key=?)",
        );
        is(
            ExecutionFilter { statuses: [failed, pending].concat(), ..all() },
            "executions_by_user (user_key=?)",
        );
    }
}
