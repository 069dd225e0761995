//! The filtered lists of executions, newest first.
//!
//! A page is read in two steps: first its row keys, along an index that holds them in order and from the nearer end,
//! then its rows. The last page of a million executions therefore costs as much as the first, and no other row is read.

use crate::domain::execution::failure_cause::FailureCause;
use crate::domain::execution::verification::OutcomeState;
use crate::domain::execution::{ExecutionStatus, Trigger};
use crate::domain::ids::ExecutionId;
use crate::error::Result;
use crate::store::executions::created_range::CreatedRange;
use crate::store::executions::index_scan::IndexScan;
use crate::store::executions::{ExecutionDetails, find_by_key};
use crate::store::maintenance::cue_deletion;
use crate::store::{MAX_LIST_BYTES, ReadTx, cues};

const TEXT_BYTES: &str =
    "SELECT coalesce(octet_length(e.response_body), 0) + coalesce(octet_length(e.error_message), 0)
        + coalesce(octet_length(o.result), 0) + coalesce(octet_length(o.error), 0)
        + coalesce(octet_length(o.metadata), 0) + coalesce(octet_length(o.evidence), 0)
        + coalesce(octet_length(o.reason), 0)
   FROM executions e LEFT JOIN outcomes o ON o.execution_key = e.key WHERE e.key = ?1";

/// Filter of a list. A field that is `None` or empty matches all executions.
#[derive(Debug, Clone, Default)]
pub struct ExecutionFilter {
    pub cue_id: Option<String>,
    /// Matches any of these.
    pub statuses: Vec<ExecutionStatus>,
    pub outcome_state: Option<OutcomeState>,
    pub worker_id: Option<String>,
    pub triggered_by: Option<Trigger>,
    /// The cause of the latest attempt.
    pub cause: Option<FailureCause>,
    /// The execution that the matches repeat.
    pub replayed_from: Option<ExecutionId>,
    /// Only executions of cues with a failure streak.
    pub of_failing_cues: bool,
    pub created: CreatedRange,
}

/// A page of the user's executions that match the filter, newest first, and the total number of matches.
pub fn list(
    read: &ReadTx<'_>,
    user_key: i64,
    filter: &ExecutionFilter,
    limit: u32,
    offset: u64,
) -> Result<(Vec<ExecutionDetails>, i64)> {
    let Some(filter) = ResolvedFilter::new(read, user_key, filter)? else { return Ok((Vec::new(), 0)) };
    let total = filter.count(read)?;
    let page = filter.ordered_scan().page(read, total, limit, offset)?;
    Ok((read_rows(read, &page)?, total))
}

/// The number of the user's executions that match the filter.
pub fn count(read: &ReadTx<'_>, user_key: i64, filter: &ExecutionFilter) -> Result<i64> {
    ResolvedFilter::new(read, user_key, filter)?.map_or(Ok(0), |filter| filter.count(read))
}

/// The row keys of the user's executions that match the filter, oldest first, after row `after`, at most `limit`.
pub fn keys_after(
    read: &ReadTx<'_>,
    user_key: i64,
    filter: &ExecutionFilter,
    after: i64,
    limit: u32,
) -> Result<Vec<i64>> {
    let Some(filter) = ResolvedFilter::new(read, user_key, filter)? else { return Ok(Vec::new()) };
    let mut scan = filter.ordered_scan();
    scan.filter("e.key > ?", after);
    scan.keys(read, "ASC", limit.into(), 0)
}

/// A page of a cue's executions, newest first, and their total number. The caller checks that the cue is the user's.
pub fn list_by_cue(
    read: &ReadTx<'_>,
    cue_key: i64,
    limit: u32,
    offset: u64,
) -> Result<(Vec<ExecutionDetails>, i64)> {
    let mut scan = IndexScan::new("executions_by_cue");
    scan.filter("e.cue_key = ?", cue_key);
    let total = scan.count(read)?;
    let page = scan.page(read, total, limit, offset)?;
    Ok((read_rows(read, &page)?, total))
}

/// The rows of a page, fewer if they exceed [`MAX_LIST_BYTES`].
fn read_rows(read: &ReadTx<'_>, keys: &[i64]) -> Result<Vec<ExecutionDetails>> {
    let (mut rows, mut bytes) = (Vec::new(), 0_usize);
    for key in keys {
        let size: Option<i64> = read.find(TEXT_BYTES, [key])?;
        bytes += usize::try_from(size.unwrap_or(0)).unwrap_or(usize::MAX);
        if bytes > MAX_LIST_BYTES && !rows.is_empty() {
            break;
        }
        rows.extend(find_by_key(read, *key)?);
    }
    Ok(rows)
}

/// The user's unfinished executions: the partial indexes of the queues hold exactly these, and the user is the first
/// column of each. `?1` is the user, which is the first parameter of the scan.
const UNFINISHED: &str = "e.key IN (
    SELECT key FROM executions INDEXED BY executions_to_claim WHERE queue_name = 'claim' AND user_key = ?1
    UNION ALL
    SELECT key FROM executions INDEXED BY executions_to_send WHERE queue_name = 'send' AND user_key = ?1
    UNION ALL
    SELECT key FROM executions INDEXED BY executions_waiting_by_user WHERE queue_name = 'waiting' AND user_key = ?1
    UNION ALL
    SELECT key FROM executions INDEXED BY executions_in_flight WHERE status = 'delivering' AND user_key = ?1)";

/// The user's cues with a failure streak.
const FAILING_CUES: &str = "e.cue_key IN (
    SELECT c.key FROM cues c WHERE c.user_key = ? AND EXISTS (
        SELECT 1 FROM consecutive_failures f WHERE f.cue_key = c.key AND f.failures > 0))";

/// A filter with the row keys of its user and cue.
struct ResolvedFilter<'a> {
    user_key: i64,
    cue_key: Option<i64>,
    /// True if the user has a deleted cue whose executions are not all deleted yet.
    has_deleted_cues: bool,
    /// The conditions of the range of creation times.
    created: Vec<(&'static str, i64)>,
    filter: &'a ExecutionFilter,
}

impl<'a> ResolvedFilter<'a> {
    /// `None` if the user has no such cue.
    fn new(read: &ReadTx<'_>, user_key: i64, filter: &'a ExecutionFilter) -> Result<Option<Self>> {
        let cue_key = match &filter.cue_id {
            None => None,
            Some(id) => match cues::find_key(read, user_key, id)? {
                None => return Ok(None),
                found => found,
            },
        };
        let has_deleted_cues = cue_deletion::has_pending(read, user_key)?;
        let created = filter.created.conditions(read)?;
        Ok(Some(Self { user_key, cue_key, has_deleted_cues, created, filter }))
    }

    fn count(&self, read: &ReadTx<'_>) -> Result<i64> {
        let mut total = 0;
        for scan in self.disjoint_scans() {
            total += scan.count(read)?;
        }
        Ok(total)
    }

    /// One scan over all matches, in order.
    fn ordered_scan(&self) -> IndexScan {
        let mut scans = self.disjoint_scans();
        match scans.pop() {
            Some(scan) if scans.is_empty() => scan,
            // Finished and unfinished executions together are nearly all, so the index of the user is the right one.
            _ => {
                let mut all = IndexScan::new("executions_by_user");
                all.filter("e.user_key = ?", self.user_key);
                self.apply_filters(&mut all);
                all
            }
        }
    }

    /// Scans that together yield every match exactly once, each of them quick to count.
    fn disjoint_scans(&self) -> Vec<IndexScan> {
        let (index, user_key, statuses) = (self.best_index(), self.user_key, &self.filter.statuses);
        if index != "executions_by_user" || statuses.is_empty() {
            let mut scan = IndexScan::new(index);
            // The cues of that index are the user's, so the query need not read the row to check the user.
            if index != "executions_by_cue" {
                scan.filter("e.user_key = ?", user_key);
            }
            if let Some(cue_key) = self.cue_key {
                scan.filter("e.cue_key = ?", cue_key);
            }
            self.apply_filters(&mut scan);
            return vec![scan];
        }
        let (finished, unfinished): (Vec<ExecutionStatus>, Vec<ExecutionStatus>) =
            statuses.iter().partition(|status| status.is_over());
        let mut scans = Vec::new();
        for status in finished {
            let mut scan = IndexScan::new("executions_finished");
            scan.filter("e.user_key = ?", user_key);
            // A literal, because SQLite uses the partial index only then.
            scan.conditions.push(format!("e.status = '{}'", status.as_str()));
            self.apply_common(&mut scan);
            scans.push(scan);
        }
        if !unfinished.is_empty() {
            let mut scan = IndexScan::new("");
            scan.filter("e.user_key = ?", user_key);
            scan.conditions.push(UNFINISHED.to_owned());
            scan.conditions.push(status_condition(&unfinished));
            self.apply_common(&mut scan);
            scans.push(scan);
        }
        scans
    }

    /// The index with the fewest entries for the filter. None of these indexes holds the status, so a filter by status
    /// is checked on the row of every entry.
    fn best_index(&self) -> &'static str {
        match self.filter {
            ExecutionFilter { replayed_from: Some(_), .. } => "executions_by_original",
            ExecutionFilter { cue_id: Some(_), .. } => "executions_by_cue",
            ExecutionFilter { cause: Some(_), .. } => "executions_by_cause",
            ExecutionFilter { worker_id: Some(_), .. } => "executions_by_worker",
            ExecutionFilter { outcome_state: Some(_), .. } => "executions_by_outcome",
            ExecutionFilter { triggered_by: Some(Trigger::ManualFire | Trigger::Replay), .. } => {
                "executions_by_trigger"
            }
            // The cues are few, and counting their entries is far quicker than reading all rows of the user. A page is
            // sorted.
            ExecutionFilter { of_failing_cues: true, statuses, .. } if statuses.is_empty() => {
                "executions_by_cue"
            }
            _ => "executions_by_user",
        }
    }

    /// Adds the conditions of the filter, except that of the cue.
    fn apply_filters(&self, scan: &mut IndexScan) {
        if let Some(original) = self.filter.replayed_from {
            scan.filter("e.replayed_from = ?", original.bytes().to_vec());
        }
        if let Some(cause) = self.filter.cause {
            scan.filter("e.cause = ?", cause.as_str().to_owned());
        }
        if let Some(worker_id) = &self.filter.worker_id {
            scan.filter("e.claimed_by_worker = ?", worker_id.clone());
        }
        if let Some(state) = self.filter.outcome_state {
            scan.filter("e.outcome_state = ?", state.as_str().to_owned());
        }
        if !self.filter.statuses.is_empty() {
            scan.conditions.push(status_condition(&self.filter.statuses));
        }
        self.apply_common(scan);
    }

    /// Adds the conditions that no index serves, and the range of row keys, which every index serves.
    fn apply_common(&self, scan: &mut IndexScan) {
        for (condition, value) in &self.created {
            scan.filter(condition, *value);
        }
        if self.filter.of_failing_cues {
            scan.filter(FAILING_CUES, self.user_key);
        }
        scan.conditions.extend(self.trigger_condition().into_iter().chain(self.cue_exists_condition()));
    }

    fn cue_exists_condition(&self) -> Option<String> {
        self.has_deleted_cues.then(|| "e.cue_key NOT IN (SELECT cue_key FROM deleted_cues)".to_owned())
    }

    fn trigger_condition(&self) -> Option<String> {
        self.filter.triggered_by.map(|trigger| format!("e.triggered_by = '{}'", trigger.as_str()))
    }
}

fn status_condition(statuses: &[ExecutionStatus]) -> String {
    let statuses: Vec<String> = statuses.iter().map(|status| format!("'{}'", status.as_str())).collect();
    format!("e.status IN ({})", statuses.join(", "))
}

#[cfg(test)]
mod tests {
    use rusqlite::params_from_iter;

    use super::*;
    use crate::store::test_support::memory_database;

    fn assert_plan(filter: ExecutionFilter, step: &str) {
        let database = memory_database();
        let plan = |scan: &IndexScan| -> Vec<String> {
            let sql = scan.sql("e.key");
            let mut explain =
                database.prepare(&format!("EXPLAIN QUERY PLAN {sql} ORDER BY e.key DESC")).unwrap();
            let steps = explain.query_map(params_from_iter(&scan.values), |row| row.get("detail")).unwrap();
            steps.map(rusqlite::Result::unwrap).collect()
        };

        let is_ranged = !filter.created.is_open();
        let created = [("e.key >= ?", 3), ("e.created_at >= ?", 4)].into_iter().filter(|_| is_ranged);
        let resolved = ResolvedFilter {
            user_key: 1,
            cue_key: filter.cue_id.as_ref().map(|_| 7),
            has_deleted_cues: false,
            created: created.collect(),
            filter: &filter,
        };
        let steps = plan(&resolved.ordered_scan());
        assert!(steps[0].starts_with("SEARCH e USING") && steps[0].contains(step), "{filter:?}: {steps:?}");
        // Of several cues, the executions come in the order of the cues.
        let may_sort = filter.of_failing_cues && step.starts_with("executions_by_cue");
        let sorts = steps.iter().any(|step| step.contains("TEMP B-TREE"));
        assert!(may_sort || !sorts, "{filter:?}: {steps:?}");
        assert!(!steps.iter().any(|step| step.starts_with("SCAN")), "{filter:?}: {steps:?}");
        // Every index begins with the user or one of its cues, so rows of others are never read.
        let mut reads = steps.iter().filter(|step| step.contains("executions_"));
        let is_own = |step: &String| step.contains("(user_key=?") || step.contains("(cue_key=?");
        assert!(reads.all(is_own), "{filter:?}: {steps:?}");
    }

    #[test]
    fn every_filter_uses_an_index_and_never_sorts() {
        let all = ExecutionFilter::default;
        let (failed, pending) =
            (vec![ExecutionStatus::Failed], vec![ExecutionStatus::Pending, ExecutionStatus::Retrying]);
        assert_plan(all(), "executions_by_user (user_key=?)");
        assert_plan(
            ExecutionFilter { cue_id: Some("c".to_owned()), ..all() },
            "executions_by_cue (cue_key=?)",
        );
        assert_plan(
            ExecutionFilter { worker_id: Some("w".to_owned()), ..all() },
            "executions_by_worker (user_key=? AND claimed_by_worker=?)",
        );
        assert_plan(
            ExecutionFilter { outcome_state: Some(OutcomeState::VerificationPending), ..all() },
            "executions_by_outcome (user_key=? AND outcome_state=?)",
        );
        assert_plan(
            ExecutionFilter { triggered_by: Some(Trigger::Replay), ..all() },
            "executions_by_trigger (user_key=? AND triggered_by=?)",
        );
        assert_plan(
            ExecutionFilter { statuses: failed.clone(), ..all() },
            "executions_finished (user_key=? AND status=?)",
        );
        assert_plan(
            ExecutionFilter { statuses: pending.clone(), ..all() },
            "executions_by_user (user_key=? AND key=?)",
        );
        assert_plan(
            ExecutionFilter { statuses: [failed, pending].concat(), ..all() },
            "executions_by_user (user_key=?)",
        );
    }

    #[test]
    fn filters_by_cause_original_streak_and_time_use_an_index() {
        let (all, failed) = (ExecutionFilter::default, vec![ExecutionStatus::Failed]);
        assert_plan(
            ExecutionFilter { cause: Some(FailureCause::Timeout), ..all() },
            "executions_by_cause (user_key=? AND cause=?)",
        );
        let original = Some(ExecutionId::from_bytes([7; 16]));
        for cue_id in [None, Some("c".to_owned())] {
            assert_plan(
                ExecutionFilter { replayed_from: original, cue_id, ..all() },
                "executions_by_original (user_key=? AND replayed_from=?)",
            );
        }
        let failing = || ExecutionFilter { of_failing_cues: true, ..all() };
        assert_plan(failing(), "executions_by_cue (cue_key=?)");
        assert_plan(
            ExecutionFilter { statuses: failed.clone(), ..failing() },
            "executions_finished (user_key=? AND status=?)",
        );
        // The rows of a range are found by their keys.
        let created = CreatedRange { since: Some(jiff::Timestamp::UNIX_EPOCH), until: None };
        assert_plan(ExecutionFilter { created, ..all() }, "executions_by_user (user_key=? AND key>?)");
        assert_plan(
            ExecutionFilter { created, statuses: failed, ..all() },
            "executions_finished (user_key=? AND status=? AND key>?)",
        );
        assert_plan(
            ExecutionFilter { created, cause: Some(FailureCause::Timeout), ..all() },
            "executions_by_cause (user_key=? AND cause=? AND key>?)",
        );
    }
}
