//! The lists of executions, newest first. A page is its row keys along an index, from the nearer end, then its rows:
//! the last of a million costs as much as the first. Ids around a range of times bound its row keys, with room for a
//! wrong clock.

use jiff::{SignedDuration, Timestamp};

use crate::domain::cue::tags::Tags;
use crate::domain::execution::attempt::FailureCause;
use crate::domain::execution::outcome::OutcomeState;
use crate::domain::execution::{CANCELLED, ExecutionStatus, Trigger};
use crate::domain::ids::ExecutionId;
use crate::domain::row_keys::{CueKey, UserKey};
use crate::domain::time::{saturating_add, saturating_sub};
use crate::error::Result;
use crate::store::executions::{DETAILS, ExecutionDetails};
use crate::store::maintenance::retention;
use crate::store::scan::Scan;
use crate::store::{MAX_LIST_BYTES, ReadTx, cues};

/// Corrections of the clock that are allowed for: a wrong setting of daylight saving. By more, rows are found by the
/// time the clock showed, unless a range ends then.
const CLOCK_SLACK: SignedDuration = SignedDuration::from_hours(1);

const FIRST_FROM: &str = "SELECT key FROM executions WHERE id >= ?1 ORDER BY id LIMIT 1";
const LAST_BEFORE: &str = "SELECT key FROM executions WHERE id < ?1 ORDER BY id DESC LIMIT 1";

/// The partial indexes of the queues hold exactly these. `?1` is the user, the first parameter of the scan.
const UNFINISHED: &str = "e.key IN (
    SELECT key FROM executions INDEXED BY executions_to_claim WHERE queue_name = 'claim' AND user_key = ?1
    UNION ALL
    SELECT key FROM executions INDEXED BY executions_to_send WHERE queue_name = 'send' AND user_key = ?1
    UNION ALL
    SELECT key FROM executions INDEXED BY executions_waiting_by_user WHERE queue_name = 'waiting' AND user_key = ?1
    UNION ALL
    SELECT key FROM executions INDEXED BY executions_in_flight WHERE status = 'delivering' AND user_key = ?1)";

const FAILING_CUES: &str = "e.cue_key IN (
    SELECT c.key FROM cues c WHERE c.user_key = ? AND EXISTS (
        SELECT 1 FROM consecutive_failures f WHERE f.cue_key = c.key AND f.failures > 0))";

/// A cancelled run was not wanted, so it is not replayed. A worker may report the same message by chance.
const NOT_CANCELLED: &str =
    "(e.error_message IS NOT ? OR (e.transport = 'worker' AND e.outcome_state IS NOT NULL))";

#[derive(Debug, Clone, Default)]
pub struct ExecutionFilter {
    pub cue_id: Option<String>,
    pub statuses: Vec<ExecutionStatus>,
    pub outcome_state: Option<OutcomeState>,
    pub worker_id: Option<String>,
    pub triggered_by: Option<Trigger>,
    pub cause: Option<FailureCause>,
    pub replayed_from: Option<ExecutionId>,
    pub of_failing_cues: bool,
    /// Their cues have all of them.
    pub tags: Tags,
    pub created: CreatedRange,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CreatedRange {
    pub since: Option<Timestamp>,
    /// The first instant after the range.
    pub until: Option<Timestamp>,
}

/// When the claim was made that is held longest.
const OLDEST_CLAIM: &str = "SELECT min(claimed_at) FROM executions INDEXED BY executions_in_flight
  WHERE status = 'delivering' AND user_key = ?1";

pub fn oldest_claimed_at(read: &ReadTx<'_>, user_key: UserKey) -> Result<Option<Timestamp>> {
    read.one(OLDEST_CLAIM, [user_key])
}

pub fn list(
    read: &ReadTx<'_>,
    user_key: UserKey,
    filter: &ExecutionFilter,
    limit: u32,
    offset: u64,
) -> Result<(Vec<ExecutionDetails>, i64)> {
    let Some(filter) = ResolvedFilter::new(read, user_key, filter)? else {
        return Ok((Vec::new(), 0));
    };
    let mut total = 0;
    for scan in filter.disjoint_scans() {
        total += scan.count(read)?;
    }
    Ok((page(read, &filter.ordered_scan(), total, limit, offset)?, total))
}

pub fn select_for_replay(
    read: &ReadTx<'_>,
    user_key: UserKey,
    filter: &ExecutionFilter,
    limit: usize,
) -> Result<Vec<ExecutionId>> {
    let Some(filter) = ResolvedFilter::new(read, user_key, filter)? else { return Ok(Vec::new()) };
    let mut scan = filter.ordered_scan();
    scan.filter(NOT_CANCELLED, Some(CANCELLED));
    let sql = format!("{} ORDER BY e.key LIMIT ? + 0", scan.sql("e.id"));
    read.all(&sql, (scan.values(), limit))
}

/// A page of a cue's executions, newest first, and their total number. The caller checks that the cue is the user's.
pub fn list_by_cue(
    read: &ReadTx<'_>,
    cue_key: CueKey,
    limit: u32,
    offset: u64,
) -> Result<(Vec<ExecutionDetails>, i64)> {
    let mut scan = Scan::new(source("executions_by_cue"));
    scan.filter("e.cue_key = ?", Some(cue_key));
    let total = scan.count(read)?;
    Ok((page(read, &scan, total, limit, offset)?, total))
}

/// The rows of the `total` that the scan finds, newest first, until their texts are too long for a list.
fn page(
    read: &ReadTx<'_>,
    scan: &Scan,
    total: i64,
    limit: u32,
    offset: u64,
) -> Result<Vec<ExecutionDetails>> {
    let offset = i64::try_from(offset).unwrap_or(i64::MAX).min(total);
    let limit = i64::from(limit).min(total - offset);
    let after = total - offset - limit;
    let (order, skipped) = if offset <= after { ("DESC", offset) } else { ("ASC", after) };
    let keys = format!("{} ORDER BY e.key {order} LIMIT ? + 0 OFFSET ?", scan.sql("e.key"));
    let sql = format!("{DETAILS} e.key IN ({keys}) ORDER BY e.key DESC");
    let (page, _) = read.page(&sql, (scan.values(), limit, skipped), u32::MAX, MAX_LIST_BYTES)?;
    Ok(page)
}

/// The executions along an index; an empty name leaves the choice to SQLite.
fn source(index: &str) -> String {
    match index {
        "" => "executions e".to_owned(),
        index => format!("executions e INDEXED BY {index}"),
    }
}

struct ResolvedFilter<'a> {
    /// That with the fewest entries for the conditions.
    index: String,
    /// All conditions except that of the status.
    base: Scan,
    statuses: &'a [ExecutionStatus],
}

impl<'a> ResolvedFilter<'a> {
    /// `None` if the user has no such cue.
    fn new(
        read: &ReadTx<'_>,
        user_key: UserKey,
        filter: &'a ExecutionFilter,
    ) -> Result<Option<Self>> {
        let cue_key = match &filter.cue_id {
            None => None,
            Some(id) => match cues::find_key(read, user_key, id)? {
                None => return Ok(None),
                found => found,
            },
        };
        let created = filter.created.conditions(read)?;
        let is_by_tags = reads_tagged(read, user_key, filter)?;
        let mut resolved = Self::from_keys(user_key, cue_key, &created, filter, is_by_tags);
        if retention::has_deleted_cues(read, user_key)? {
            resolved.base.condition("e.cue_key NOT IN (SELECT cue_key FROM deleted_cues)");
        }
        Ok(Some(resolved))
    }

    fn from_keys(
        user_key: UserKey,
        cue_key: Option<CueKey>,
        created: &[(&'static str, i64)],
        filter: &'a ExecutionFilter,
        is_by_tags: bool,
    ) -> Self {
        let by_value = [
            ("original", filter.replayed_from.is_some()),
            ("cue", cue_key.is_some()),
            ("cause", filter.cause.is_some()),
            ("worker", filter.worker_id.is_some()),
            ("outcome", filter.outcome_state.is_some()),
            ("trigger", matches!(filter.triggered_by, Some(Trigger::ManualFire | Trigger::Replay))),
            // The cues are few: counting their entries is far quicker than reading all rows of the user. A page is
            // sorted.
            ("cue", is_by_tags || (filter.of_failing_cues && filter.statuses.is_empty())),
        ];
        // None of these indexes holds the status, so a filter by status is checked on the row of every entry.
        let index =
            by_value.iter().find(|(_, is_given)| *is_given).map_or("user", |(index, _)| *index);
        let mut base = Scan::new("");
        // The cues of that index are the user's, so the query need not read the row to check the user.
        base.filter("e.user_key = ?", Some(user_key).filter(|_| index != "cue"));
        base.filter("e.replayed_from = ?", filter.replayed_from);
        base.filter("e.cue_key = ?", cue_key);
        base.filter("e.cause = ?", filter.cause);
        base.filter("e.claimed_by_worker = ?", filter.worker_id.clone());
        base.filter("e.outcome_state = ?", filter.outcome_state);
        for (condition, value) in created {
            base.filter(condition, Some(*value));
        }
        base.filter(FAILING_CUES, Some(user_key).filter(|_| filter.of_failing_cues));
        base.filter_by_tags("e.cue_key", user_key, &filter.tags);
        // A literal, as the statuses below, because SQLite uses a partial index only then.
        if let Some(trigger) = filter.triggered_by {
            base.condition(format!("e.triggered_by = '{}'", trigger.as_str()));
        }
        Self { index: format!("executions_by_{index}"), base, statuses: &filter.statuses }
    }

    fn ordered_scan(&self) -> Scan {
        let mut scans = self.disjoint_scans();
        match scans.pop() {
            Some(scan) if scans.is_empty() => scan,
            // Finished and unfinished executions together are nearly all, so the index of the user is the right one.
            _ => self.scan("executions_by_user", Some(status_condition(self.statuses))),
        }
    }

    /// Scans that together yield every match exactly once, each of them quick to count.
    fn disjoint_scans(&self) -> Vec<Scan> {
        let index = &self.index;
        if index != "executions_by_user" || self.statuses.is_empty() {
            let status = (!self.statuses.is_empty()).then(|| status_condition(self.statuses));
            return vec![self.scan(index, status)];
        }
        let (finished, unfinished): (Vec<ExecutionStatus>, Vec<ExecutionStatus>) =
            self.statuses.iter().partition(|status| status.is_over());
        let by_status = |status: &ExecutionStatus| {
            self.scan("executions_finished", Some(format!("e.status = '{}'", status.as_str())))
        };
        let mut scans: Vec<Scan> = finished.iter().map(by_status).collect();
        if !unfinished.is_empty() {
            let mut scan = self.scan("", Some(status_condition(&unfinished)));
            scan.condition(UNFINISHED);
            scans.push(scan);
        }
        scans
    }

    fn scan(&self, index: &str, status: Option<String>) -> Scan {
        let mut scan = self.base.clone();
        scan.source = source(index);
        if let Some(status) = status {
            scan.condition(status);
        }
        scan
    }
}

/// Returns whether the executions of the cues with the tags are read, and not those of the user with a status: the fewer.
/// To count entries of an index costs a tenth of reading their rows.
fn reads_tagged(read: &ReadTx<'_>, user_key: UserKey, filter: &ExecutionFilter) -> Result<bool> {
    if filter.tags.is_empty() {
        return Ok(false);
    }
    let finished: Vec<_> = filter.statuses.iter().filter(|status| status.is_over()).collect();
    let [status] = finished.as_slice() else {
        // Those that have not ended are found in the queues, and the others together are nearly all.
        return Ok(filter.statuses.is_empty() || !finished.is_empty());
    };
    let mut tagged = Scan::new(source("executions_by_cue"));
    tagged.filter_by_tags("e.cue_key", user_key, &filter.tags);
    let mut others = Scan::new(source("executions_finished"));
    others.filter("e.user_key = ?", Some(user_key));
    others.condition(format!("e.status = '{}'", status.as_str()));
    let sql = format!("{} LIMIT 1 OFFSET ?", others.sql("1"));
    read.any(&sql, (others.values(), tagged.count(read)?))
}

fn status_condition(statuses: &[ExecutionStatus]) -> String {
    let statuses: Vec<String> =
        statuses.iter().map(|status| format!("'{}'", status.as_str())).collect();
    format!("e.status IN ({})", statuses.join(", "))
}

impl CreatedRange {
    /// They hold for the rows in the range, and an index that ends in `key` bounds the rows that are read.
    fn conditions(&self, read: &ReadTx<'_>) -> Result<Vec<(&'static str, i64)>> {
        // Both neighbours of an end count: if a wrong clock created one, the other bounds the keys.
        let keys = |at| -> Result<(Option<i64>, Option<i64>)> {
            let id = ExecutionId::lowest_at(at);
            Ok((read.find(FIRST_FROM, [id])?, read.find(LAST_BEFORE, [id])?))
        };
        let mut conditions = Vec::new();
        if let Some(since) = self.since {
            let first = match keys(saturating_sub(since, CLOCK_SLACK))? {
                (_, None) => i64::MIN,
                (None, Some(_)) => i64::MAX,
                (Some(from), Some(before)) => from.min(before + 1),
            };
            conditions.push(("e.key >= ?", first));
            conditions.push(("e.created_at >= ?", since.as_millisecond()));
        }
        if let Some(until) = self.until {
            let last = match keys(saturating_add(until, CLOCK_SLACK))? {
                (None, _) => i64::MAX,
                (Some(_), None) => i64::MIN,
                (Some(from), Some(before)) => before.max(from - 1),
            };
            conditions.push(("e.key <= ?", last));
            conditions.push(("e.created_at < ?", until.as_millisecond()));
        }
        Ok(conditions)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::test_support::{assert_plans, plan_test};

    plan_test! { the_ends_of_a_range_are_one_entry_each_of_the_index_of_ids:
        FIRST_FROM => "SEARCH executions USING INDEX sqlite_autoindex",
        LAST_BEFORE => "SEARCH executions USING INDEX sqlite_autoindex",
        OLDEST_CLAIM => "executions_in_flight (user_key=?)",
    }

    #[test]
    fn every_filter_uses_an_index_and_none_but_those_of_several_cues_sort() {
        let filter = |set: fn(&mut ExecutionFilter)| {
            let mut filter = ExecutionFilter::default();
            set(&mut filter);
            filter
        };
        fn tags() -> Tags {
            Tags::new(vec!["a".to_owned(), "b".to_owned()])
        }
        let failed = |set: fn(&mut ExecutionFilter)| ExecutionFilter {
            statuses: vec![ExecutionStatus::Failed],
            ..filter(set)
        };
        for (filter, index) in [
            (filter(|_| ()), "by_user (user_key=?)"),
            (filter(|it| it.cue_id = Some("c".to_owned())), "by_cue (cue_key=?)"),
            (
                filter(|it| it.worker_id = Some("w".to_owned())),
                "by_worker (user_key=? AND claimed_by_worker=?)",
            ),
            (
                filter(|it| it.outcome_state = Some(OutcomeState::VerificationPending)),
                "by_outcome (user_key=? AND outcome_state=?)",
            ),
            (
                filter(|it| it.triggered_by = Some(Trigger::Replay)),
                "by_trigger (user_key=? AND triggered_by=?)",
            ),
            (
                filter(|it| it.cause = Some(FailureCause::Timeout)),
                "by_cause (user_key=? AND cause=?)",
            ),
            (
                filter(|it| {
                    it.replayed_from = Some(ExecutionId::from_bytes([7; 16]));
                    it.cue_id = Some("c".to_owned());
                }),
                "by_original (user_key=? AND replayed_from=?)",
            ),
            (failed(|_| ()), "finished (user_key=? AND status=?)"),
            (
                filter(|it| it.statuses = vec![ExecutionStatus::Pending]),
                "by_user (user_key=? AND key=?)",
            ),
            (
                filter(|it| it.statuses = vec![ExecutionStatus::Failed, ExecutionStatus::Pending]),
                "by_user (user_key=?)",
            ),
            (filter(|it| it.of_failing_cues = true), "by_cue (cue_key=?)"),
            (failed(|it| it.of_failing_cues = true), "finished (user_key=? AND status=?)"),
            (filter(|it| it.tags = tags()), "by_cue (cue_key=?)"),
            (failed(|it| it.tags = tags()), "by_cue (cue_key=?)"),
            (
                filter(|it| it.created.since = Some(Timestamp::UNIX_EPOCH)),
                "by_user (user_key=? AND key>?)",
            ),
            (
                failed(|it| it.created.since = Some(Timestamp::UNIX_EPOCH)),
                "finished (user_key=? AND status=? AND key>?)",
            ),
        ] {
            let created = [("e.key >= ?", 3), ("e.created_at >= ?", 4)];
            let created = if filter.created.since.is_some() { &created[..] } else { &[] };
            let cue_key = filter.cue_id.as_ref().map(|_| CueKey::new(7));
            let is_by_tags = !filter.tags.is_empty();
            let resolved =
                ResolvedFilter::from_keys(UserKey::new(1), cue_key, created, &filter, is_by_tags);
            let sql = format!("{} ORDER BY e.key DESC", resolved.ordered_scan().sql("e.key"));
            let index = format!("executions_{index}");
            // Of several cues, the executions come in the order of the cues.
            let sorts = is_by_tags || (filter.of_failing_cues && filter.statuses.is_empty());
            let order = if sorts { "USE TEMP B-TREE FOR ORDER BY" } else { index.as_str() };
            assert_plans(&[(&sql, &index), (&sql, order)]);
        }
    }
}
