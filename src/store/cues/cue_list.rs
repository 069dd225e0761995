//! The lists of a user's cues. By creation, a page costs the same whatever the user has: an index, and a stored total;
//! that of a tag is counted. Others read the rows of the user, or those with the tag, once and keep the places of the
//! page.

use std::cmp::Ordering;

use jiff::Timestamp;
use rusqlite::params_from_iter;
use rusqlite::types::Value;

use crate::domain::cue::list::{CueFacts, CueFilter, CueSort, ListPosition, SortValue, letters};
use crate::domain::cue::{Cue, Transport};
use crate::domain::execution::ExecutionStatus;
use crate::domain::ids::ExecutionId;
use crate::domain::row_keys::UserKey;
use crate::error::Result;
use crate::store::accounts::users;
use crate::store::cues::{COLUMNS, find_by_key, find_filters, tagged, text_bytes};
use crate::store::db::columns::{RowReader, from_row, row};
use crate::store::{MAX_LIST_BYTES, ReadTx};

/// Texts in a list read on the calling thread: more takes longer than a short read may. Twenty usual cues have a tenth.
const MAX_INLINE_BYTES: usize = 64 << 10;

/// Entries of an index that are passed on the calling thread to reach an offset: about 30 µs.
const MAX_INLINE_OFFSET: u64 = 1_000;

#[derive(Debug, Clone)]
pub struct CueList {
    pub filter: CueFilter,
    pub sort: CueSort,
    pub start: ListStart,
    pub limit: u32,
    pub runs: Option<u32>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListStart {
    Offset(u64),
    After(ListPosition),
}

#[derive(Debug)]
pub struct CuePage {
    pub cues: Vec<(Cue, Option<RecentRuns>)>,
    pub total: i64,
    pub has_more: bool,
}

impl CueList {
    pub fn newest(limit: u32) -> Self {
        let (filter, start) = (CueFilter::default(), ListStart::Offset(0));
        Self { filter, sort: CueSort::Newest, start, limit, runs: None }
    }

    pub fn is_indexed(&self) -> bool {
        let CueFilter { q, status: _, transport, slug: _, tags: _, failing } = &self.filter;
        self.sort.is_by_creation() && q.is_none() && transport.is_none() && failing.is_none()
    }

    pub fn is_short(&self) -> bool {
        let is_near = match self.start {
            ListStart::Offset(offset) => offset <= MAX_INLINE_OFFSET,
            ListStart::After(_) => true,
        };
        self.is_indexed()
            && is_near
            && self.runs.is_none()
            && self.filter.tags.is_empty()
            && self.filter.slug.is_none()
    }
}

pub fn read(read: &ReadTx<'_>, user_key: UserKey, list: &CueList) -> Result<CuePage> {
    if list.is_indexed() {
        let (page, _) = read_indexed(read, user_key, list, MAX_LIST_BYTES)?;
        return Ok(page);
    }
    read_scanned(read, user_key, list)
}

pub fn read_short(read: &ReadTx<'_>, user_key: UserKey, list: &CueList) -> Result<Option<CuePage>> {
    let (page, is_cut) = read_indexed(read, user_key, list, MAX_INLINE_BYTES)?;
    Ok((!is_cut).then_some(page))
}

/// The cues of a user that an index has in the order of their creation: all, those with a status, or with tags.
struct IndexedCues {
    /// The column of an index that orders them.
    key: &'static str,
    /// The clauses from `FROM` to the conditions.
    source: String,
    values: Vec<Value>,
}

impl IndexedCues {
    fn new(user_key: UserKey, filter: &CueFilter) -> Self {
        let (key, mut source, mut values) = if filter.tags.is_empty() {
            ("key", "FROM cues WHERE user_key = ?".to_owned(), vec![Value::from(user_key)])
        } else {
            let (tagged, values) = tagged(user_key, &filter.tags);
            // The tags first: SQLite may otherwise read all cues of the user.
            (
                "tagged",
                format!("FROM ({tagged}) CROSS JOIN cues ON key = tagged WHERE true"),
                values,
            )
        };
        if let Some(slug) = &filter.slug {
            let (from, before) = slug.bounds();
            source += " AND slug >= ? AND slug < ?";
            values.extend([from, before].map(Value::from));
        }
        if let Some(status) = filter.status {
            source += " AND status = ?";
            values.push(Value::from(status.as_str().to_owned()));
        }
        Self { key, source, values }
    }

    fn page_sql(&self, is_descending: bool) -> String {
        let (Self { key, source, .. }, (bound, order)) = (self, order(is_descending));
        format!("SELECT {COLUMNS} {source} AND {key} {bound} ? ORDER BY {key} {order} LIMIT ? + 0")
    }

    fn skip_sql(&self, is_descending: bool) -> String {
        let (Self { key, source, .. }, (_, order)) = (self, order(is_descending));
        format!("SELECT key {source} ORDER BY {key} {order} LIMIT 1 OFFSET ?")
    }

    fn count_sql(&self) -> String {
        format!("SELECT count(*) {}", self.source)
    }

    /// Texts are read only to be searched: they are behind the headers, which may be long.
    fn scan_sql(&self, filter: &CueFilter, columns: &str) -> String {
        let texts = match filter.q {
            Some(_) => "id, name, slug, description, callback_url, tags",
            None => "'', '', NULL, NULL, NULL, NULL",
        };
        let failures = match filter.failing {
            Some(_) => {
                "coalesce((SELECT failures FROM consecutive_failures WHERE cue_key = cues.key), 0)"
            }
            None => "0",
        };
        let Self { key, source, .. } = self;
        format!(
            "SELECT status, transport, {failures} > 0, {texts}, {columns} {source} ORDER BY {key}"
        )
    }

    fn with(&self, bounds: &[i64]) -> impl Iterator<Item = Value> {
        let bounds: Vec<Value> = bounds.iter().copied().map(Value::from).collect();
        self.values.iter().cloned().chain(bounds)
    }
}

fn order(is_descending: bool) -> (&'static str, &'static str) {
    if is_descending { ("<=", "DESC") } else { (">=", "ASC") }
}

/// Reads a page along the index. Returns whether it is cut because of `max_bytes`.
fn read_indexed(
    read: &ReadTx<'_>,
    user_key: UserKey,
    list: &CueList,
    max_bytes: usize,
) -> Result<(CuePage, bool)> {
    let rows = IndexedCues::new(user_key, &list.filter);
    let total = if list.filter.tags.is_empty() && list.filter.slug.is_none() {
        users::stored_cue_counts(read, user_key)?.of(list.filter.status)
    } else {
        read.one(&rows.count_sql(), params_from_iter(rows.with(&[])))?
    };
    let is_descending = list.sort.is_descending();
    let first = match &list.start {
        ListStart::Offset(0) => Some(if is_descending { i64::MAX } else { i64::MIN }),
        ListStart::Offset(offset) => key_at(read, &rows, is_descending, *offset, total)?,
        ListStart::After(last) => last.key.number().checked_add(if is_descending { -1 } else { 1 }),
    };
    let mut page = CuePage { cues: Vec::new(), total, has_more: false };
    let Some(first) = first else { return Ok((page, false)) };
    let limit = usize::try_from(list.limit).unwrap_or(usize::MAX);
    let mut query = read.prepare_cached(&rows.page_sql(is_descending))?;
    let mut rows = query.query(params_from_iter(rows.with(&[first, i64::from(list.limit) + 1])))?;
    let mut bytes = 0;
    page.cues.reserve(limit);
    while let Some(row) = rows.next()? {
        if page.cues.len() == limit || bytes >= max_bytes {
            page.has_more = true;
            break;
        }
        let cue: Cue = from_row(row)?;
        bytes += text_bytes(&cue);
        let runs = list.runs.map(|count| find_runs(read, &cue, count)).transpose()?;
        page.cues.push((cue, runs));
    }
    let is_cut = page.has_more && page.cues.len() < limit;
    Ok((page, is_cut))
}

fn key_at(
    read: &ReadTx<'_>,
    rows: &IndexedCues,
    is_descending: bool,
    offset: u64,
    total: i64,
) -> Result<Option<i64>> {
    let offset = i64::try_from(offset).unwrap_or(i64::MAX);
    let after = total.saturating_sub(offset) - 1;
    if after < 0 {
        return Ok(None);
    }
    let (is_descending, skipped) =
        if offset <= after { (is_descending, offset) } else { (!is_descending, after) };
    read.find(&rows.skip_sql(is_descending), params_from_iter(rows.with(&[skipped])))
}

fn read_scanned(read: &ReadTx<'_>, user_key: UserKey, list: &CueList) -> Result<CuePage> {
    let limit = usize::try_from(list.limit).unwrap_or(usize::MAX);
    let (skipped, after) = match &list.start {
        ListStart::Offset(offset) => (usize::try_from(*offset).unwrap_or(usize::MAX), None),
        ListStart::After(position) => (0, Some(position)),
    };
    let count = skipped.saturating_add(limit).saturating_add(1);
    let (mut places, mut total) = (Vec::new(), 0);
    let keep_first = |places: &mut Vec<ListPosition>| {
        places.sort_unstable_by(|one, other| list.sort.compare(one, other));
        places.truncate(count);
    };
    let columns = match list.sort {
        CueSort::Oldest | CueSort::Newest => "key",
        CueSort::Name | CueSort::NameDescending => "key, name",
        CueSort::NextRun | CueSort::NextRunDescending => "key, next_run",
        CueSort::LastRun | CueSort::LastRunDescending => "key, last_run",
    };
    scan(read, user_key, &list.filter, columns, |columns| {
        total += 1;
        let key = columns.get()?;
        let value = match list.sort {
            CueSort::Oldest | CueSort::Newest => SortValue::None,
            CueSort::Name | CueSort::NameDescending => SortValue::name(columns.text()?),
            _ => SortValue::instant(columns.get()?),
        };
        let position = ListPosition { value, key };
        if after.is_none_or(|after| list.sort.compare(after, &position) == Ordering::Less) {
            places.push(position);
        }
        // Sorting only when twice as many have come costs less than to keep them sorted.
        if places.len() >= count.saturating_mul(2) {
            keep_first(&mut places);
        }
        Ok(true)
    })?;
    keep_first(&mut places);
    let places = places.get(skipped..).unwrap_or_default();
    let mut page = CuePage { cues: Vec::new(), total, has_more: places.len() > limit };
    let mut bytes = 0;
    for place in places.iter().take(limit) {
        if bytes >= MAX_LIST_BYTES {
            page.has_more = true;
            break;
        }
        let Some(cue) = find_by_key(read, place.key)? else { continue };
        bytes += text_bytes(&cue);
        let runs = list.runs.map(|count| find_runs(read, &cue, count)).transpose()?;
        page.cues.push((cue, runs));
    }
    Ok(page)
}

/// The ids of the user's cues that match, oldest first, at most `limit`. Reads the user's rows, or those with the tags,
/// until it has found so many.
pub fn select(
    read: &ReadTx<'_>,
    user_key: UserKey,
    filter: &CueFilter,
    limit: usize,
) -> Result<Vec<String>> {
    let mut ids = Vec::new();
    scan(read, user_key, filter, "id", |columns| {
        ids.push(columns.get()?);
        Ok(ids.len() < limit)
    })?;
    Ok(ids)
}

pub(in crate::store) fn scan(
    read: &ReadTx<'_>,
    user_key: UserKey,
    filter: &CueFilter,
    columns: &str,
    mut found: impl FnMut(&mut RowReader<'_, '_>) -> rusqlite::Result<bool>,
) -> Result<()> {
    let rows = IndexedCues::new(user_key, filter);
    let mut query = read.prepare_cached(&rows.scan_sql(filter, columns))?;
    let mut rows = query.query(params_from_iter(&rows.values))?;
    while let Some(row) = rows.next()? {
        let mut columns = RowReader::new(row);
        if is_match(filter, &mut columns)? && !found(&mut columns)? {
            break;
        }
    }
    Ok(())
}

fn is_match(filter: &CueFilter, columns: &mut RowReader<'_, '_>) -> rusqlite::Result<bool> {
    let (status, transport, is_failing) = columns.get()?;
    Ok(filter.matches(&CueFacts {
        status,
        transport,
        is_failing,
        id: columns.text()?,
        name: columns.text()?,
        slug: columns.maybe_text()?,
        description: columns.maybe_text()?,
        callback_url: columns.maybe_text()?,
        tags: columns.get()?,
    }))
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

const LAST: &str = concat!(
    "SELECT ",
    run_columns!(),
    " FROM executions WHERE cue_key = ?1 ORDER BY key DESC LIMIT 1"
);

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
    use crate::domain::cue::list::SearchText;
    use crate::domain::cue::tags::Tags;
    use crate::store::test_support::{assert_plans, plan, plan_test};

    fn tags(tags: &[&str]) -> Tags {
        Tags::new(tags.iter().map(|tag| (*tag).to_owned()).collect())
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
            let rows = IndexedCues::new(UserKey::new(1), &filter);
            for (is_descending, bound) in [(false, ">"), (true, "<")] {
                let (page, skip) = (rows.page_sql(is_descending), rows.skip_sql(is_descending));
                assert_plans(&[
                    (&page, &format!("{index} AND {key}{bound}?)")),
                    (&skip, &format!("{index})")),
                ]);
            }
            assert_plans(&[(&rows.count_sql(), &format!("{index})"))]);
        }
    }

    #[test]
    fn only_rows_of_the_user_are_read_and_in_order() {
        let all = CueFilter {
            q: Some(SearchText::new("a")),
            failing: Some(true),
            ..CueFilter::default()
        };
        let paused = CueFilter { status: Some(CueStatus::Paused), ..all.clone() };
        let tagged = CueFilter { tags: tags(&["a", "b"]), ..paused.clone() };
        for (filter, step) in [
            (all, "SEARCH cues USING INDEX cues_by_user (user_key=?)"),
            (paused, "SEARCH cues USING INDEX cues_by_user_and_status (user_key=? AND status=?)"),
            (tagged, "SEARCH t USING PRIMARY KEY (user_key=? AND tag=?)"),
        ] {
            let steps = plan(&IndexedCues::new(UserKey::new(1), &filter).scan_sql(&filter, "key"));
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
