//! The lists of a user's cues. By creation, a page is read along an index and its total is stored, or counted for a
//! tag. Other lists read the rows of the user, or those with the tag.

use jiff::Timestamp;

use crate::domain::cue::list::{CueFilter, CueSort, ListPosition, SortValue, letters};
use crate::domain::cue::slug::SlugFilter;
use crate::domain::cue::{Cue, Transport};
use crate::domain::execution::ExecutionStatus;
use crate::domain::ids::ExecutionId;
use crate::domain::row_keys::UserKey;
use crate::error::Result;
use crate::store::accounts::users;
use crate::store::cues::{COLUMNS, find_filters};
use crate::store::db::columns::{Binder, ToRow, row, row_count, select};
use crate::store::scan::Scan;
use crate::store::{MAX_LIST_BYTES, ReadTx};

/// Texts in a list read on the calling thread: more takes longer than a short read may. Twenty usual cues have a tenth.
const MAX_INLINE_BYTES: usize = 64 << 10;

/// Entries of an index that are passed on the calling thread to reach an offset: about 30 µs.
const MAX_INLINE_OFFSET: u64 = 1_000;

#[derive(Debug, Clone)]
pub struct CueList {
    pub filter: CueFilter,
    pub sort: CueSort,
    pub offset: u64,
    /// The last entry of the page before.
    pub after: Option<ListPosition>,
    pub limit: u32,
    pub runs: Option<u32>,
}

#[derive(Debug)]
pub struct CuePage {
    pub cues: Vec<Cue>,
    /// Those of each cue, if they are asked for.
    pub runs: Option<Vec<RecentRuns>>,
    pub total: i64,
    pub has_more: bool,
}

impl CueList {
    /// Returns whether an index has the entries in their order.
    pub fn is_indexed(&self) -> bool {
        let CueFilter { q, status: _, transport, slug: _, tags: _, failing } = &self.filter;
        self.sort.is_by_creation() && q.is_none() && transport.is_none() && failing.is_none()
    }

    pub fn is_short(&self) -> bool {
        self.is_indexed()
            && self.offset <= MAX_INLINE_OFFSET
            && self.runs.is_none()
            && self.filter.is_by_status()
    }
}

pub fn read(read: &ReadTx<'_>, user_key: UserKey, list: &CueList) -> Result<CuePage> {
    read_page(read, user_key, list, MAX_LIST_BYTES)
}

/// Returns `None` if the texts are too long to be read on the calling thread.
pub fn read_short(read: &ReadTx<'_>, user_key: UserKey, list: &CueList) -> Result<Option<CuePage>> {
    let page = read_page(read, user_key, list, MAX_INLINE_BYTES)?;
    let is_cut = page.has_more && (page.cues.len() as u64) < u64::from(list.limit);
    Ok((!is_cut).then_some(page))
}

fn read_page(
    read: &ReadTx<'_>,
    user_key: UserKey,
    list: &CueList,
    max_bytes: usize,
) -> Result<CuePage> {
    let all = matching(user_key, &list.filter);
    let mut page = all.clone();
    let sql = page_sql(&mut page, list);
    let parameters = (page.values(), u64::from(list.limit) + 1, list.offset);
    let (cues, has_more): (Vec<Cue>, bool) = read.page(&sql, parameters, list.limit, max_bytes)?;
    let is_whole = list.after.is_none() && list.offset == 0 && !has_more;
    let total = if list.filter.is_by_status() {
        users::stored_cue_counts(read, user_key)?.of(list.filter.status)
    } else if is_whole {
        row_count(cues.len())
    } else {
        all.count(read)?
    };
    let find_all =
        |count| cues.iter().map(|cue| find_runs(read, cue, count)).collect::<Result<_>>();
    let runs = list.runs.map(find_all).transpose()?;
    Ok(CuePage { cues, runs, total, has_more })
}

fn matching(user_key: UserKey, filter: &CueFilter) -> Scan {
    let CueFilter { q, status, transport, slug, tags, failing } = filter;
    let mut scan = if tags.is_empty() { Scan::new("cues") } else { Scan::tagged(user_key, tags) };
    if tags.is_empty() {
        scan.filter("user_key = ?", Some(user_key));
    } else {
        // The tags first: SQLite may otherwise read all cues of the user.
        scan.source += " CROSS JOIN cues ON cues.key = tagged";
    }
    scan.filter("slug >= ? AND slug < ?", slug.as_ref().map(SlugFilter::bounds));
    scan.filter("status = ?", *status);
    scan.filter("transport = ?", *transport);
    scan.filter(
        "EXISTS (SELECT 1 FROM consecutive_failures WHERE cue_key = cues.key AND failures > 0) = ?",
        *failing,
    );
    // After the other conditions: the texts are behind the headers, which may be long.
    let found = "is_found(?, id, name, slug, description, callback_url, tags)";
    scan.filter(found, q.clone());
    scan
}

/// The column of an index that has the matching cues in the order of their creation.
fn key_of(filter: &CueFilter) -> &'static str {
    if filter.tags.is_empty() { "cues.key" } else { "tagged" }
}

/// Limits the scan to the entries after the page before. The query has two more parameters, limit and offset.
fn page_sql(page: &mut Scan, list: &CueList) -> String {
    let (key, is_descending) = (key_of(&list.filter), list.sort.is_descending());
    let (direction, sign) = if is_descending { ("DESC", '<') } else { ("ASC", '>') };
    let value = match list.sort {
        CueSort::Oldest | CueSort::Newest => {
            page.filter(&format!("{key} {sign} ?"), list.after.as_ref().map(|last| last.key));
            let rows = page.sql(COLUMNS);
            return format!("{rows} ORDER BY {key} {direction} LIMIT ? + 0 OFFSET ?");
        }
        CueSort::Name | CueSort::NameDescending => "fold(name)",
        CueSort::NextRun | CueSort::NextRunDescending => "next_run",
        CueSort::LastRun | CueSort::LastRunDescending => "last_run",
    };
    // Cues without a value are last in either direction.
    let not = if is_descending { "NOT" } else { "" };
    let last = list.after.clone().map(|ListPosition { value, key }| {
        let is_first = (value == SortValue::None) != is_descending;
        (is_first, value, key)
    });
    let place = format!("({value} IS {not} NULL, coalesce({value}, 0), {key}) {sign} (?, ?, ?)");
    page.filter(&place, last);
    let order = format!("{value} IS NULL, {value} {direction}, cues.key {direction}");
    // The rows of the page alone are read as a whole.
    let keys = page.sql("cues.key");
    format!(
        "SELECT {COLUMNS} FROM cues WHERE key IN ({keys} ORDER BY {order} LIMIT ? + 0 OFFSET ?) ORDER BY {order}"
    )
}

impl ToRow for SortValue {
    /// No value counts as 0 among those without one.
    fn bind(&self, to: &mut Binder<'_, '_>) -> rusqlite::Result<()> {
        match self {
            Self::None => to.add(0),
            Self::Instant(millis) => to.add(millis),
            Self::Name(name) => to.add(name),
        }
    }
}

/// The ids of the user's cues that match, oldest first, at most `limit`.
pub fn select(
    read: &ReadTx<'_>,
    user_key: UserKey,
    filter: &CueFilter,
    limit: usize,
) -> Result<Vec<String>> {
    let scan = matching(user_key, filter);
    let sql = format!("{} ORDER BY {} LIMIT ? + 0", scan.sql("id"), key_of(filter));
    read.all(&sql, (scan.values(), limit))
}

row! { run_columns, "",
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LastRun {
    pub execution_id: ExecutionId = "id",
    pub status: ExecutionStatus,
    /// The start of its latest attempt, or its scheduled time before the first.
    pub at: Timestamp = "coalesce(last_attempt_at, scheduled_for)",
    pub cause: Option<String>,
    pub duration_ms: Option<i64>,
} }

const LAST: &str =
    select!(run_columns, "FROM executions WHERE cue_key = ?1 ORDER BY key DESC LIMIT 1");

const STATUSES: &str = "SELECT status, scheduled_for FROM executions WHERE cue_key = ?1 ORDER BY key DESC LIMIT ?2 + 0";

const MISSED: &str =
    "SELECT last FROM missed_runs WHERE cue_key = ?1 ORDER BY key DESC LIMIT ?2 + 0";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecentRuns {
    pub letters: String,
    pub last: Option<LastRun>,
    /// That of a worker cue, from its payload.
    pub task: Option<String>,
}

/// The newest `count` runs of a cue. The caller checks that the cue is the user's.
pub fn find_runs(read: &ReadTx<'_>, cue: &Cue, count: u32) -> Result<RecentRuns> {
    let last: Option<LastRun> = read.find(LAST, [cue.key])?;
    // A cue that has neither is not asked for it: most have no missed runs, and a new one has no executions.
    let has_runs = count > 0 && last.is_some();
    let executions = if has_runs { read.all(STATUSES, (cue.key, count))? } else { Vec::new() };
    let has_missed = count > 0 && cue.missed_count > 0;
    let missed = if has_missed { read.all(MISSED, (cue.key, count))? } else { Vec::new() };
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    let payload_key = cue.payload_key.filter(|_| cue.fields.transport == Transport::Worker);
    let filters = payload_key.map(|key| find_filters(read, key)).transpose()?;
    let task = filters.and_then(|(task, _)| task);
    Ok(RecentRuns { letters: letters(&executions, &missed, count), last, task })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::cue::CueStatus;
    use crate::domain::cue::tags::Tags;
    use crate::domain::row_keys::CueKey;
    use crate::store::test_support::{assert_plans, plan, plan_test};

    fn tags(tags: &[&str]) -> Tags {
        Tags::new(tags.iter().map(|tag| (*tag).to_owned()).collect())
    }

    fn list(filter: CueFilter, sort: CueSort) -> CueList {
        CueList { filter, sort, offset: 0, after: None, limit: 20, runs: None }
    }

    #[test]
    fn pages_are_read_along_an_index_that_begins_with_the_user() {
        for (filter, index, key) in [
            (CueFilter::default(), "SEARCH cues USING INDEX cues_by_user (user_key=?", "key"),
            (
                CueFilter { status: Some(CueStatus::Paused), ..CueFilter::default() },
                "SEARCH cues USING INDEX cues_by_user_and_status (user_key=? AND status=?",
                "key",
            ),
            (
                CueFilter {
                    tags: tags(&["a", "b", "c"]),
                    status: Some(CueStatus::Paused),
                    ..CueFilter::default()
                },
                "SEARCH t USING PRIMARY KEY (user_key=? AND tag=?",
                "cue_key",
            ),
        ] {
            let all = matching(UserKey::new(1), &filter);
            for (sort, bound) in [(CueSort::Oldest, ">"), (CueSort::Newest, "<")] {
                let mut list = list(filter.clone(), sort);
                assert_plans(&[(&page_sql(&mut all.clone(), &list), &format!("{index})"))]);
                let last = ListPosition { value: SortValue::None, key: CueKey::new(7) };
                list.after = Some(last);
                let after = page_sql(&mut all.clone(), &list);
                assert_plans(&[(&after, &format!("{index} AND {key}{bound}?)"))]);
            }
            assert_plans(&[(&all.sql("count(*)"), &format!("{index})"))]);
        }
    }

    #[test]
    fn only_rows_of_the_user_are_read_and_in_order() {
        let all =
            CueFilter { q: Some("a".to_owned()), failing: Some(true), ..CueFilter::default() };
        let paused = CueFilter { status: Some(CueStatus::Paused), ..all.clone() };
        let tagged = CueFilter { tags: tags(&["a", "b"]), ..paused.clone() };
        for (filter, step) in [
            (all, "SEARCH cues USING INDEX cues_by_user (user_key=?)"),
            (paused, "SEARCH cues USING INDEX cues_by_user_and_status (user_key=? AND status=?)"),
            (tagged, "SEARCH t USING PRIMARY KEY (user_key=? AND tag=?)"),
        ] {
            let mut all = matching(UserKey::new(1), &filter);
            let steps = plan(&page_sql(&mut all, &list(filter, CueSort::Oldest)));
            assert_eq!(steps[0], step);
            assert!(
                steps.iter().all(|step| !step.contains("SCAN ") && !step.contains("TEMP")),
                "{steps:?}"
            );
            assert_eq!(
                steps.last().unwrap(),
                "SEARCH consecutive_failures USING INTEGER PRIMARY KEY (rowid=?)"
            );
        }
    }

    plan_test! { the_latest_runs_are_found_by_index_and_in_order:
        LAST => "SEARCH executions USING INDEX executions_by_cue (cue_key=?)",
        STATUSES => "SEARCH executions USING INDEX executions_by_cue (cue_key=?)",
        MISSED => "SEARCH missed_runs USING INDEX missed_runs_by_cue (cue_key=?)",
    }
}
