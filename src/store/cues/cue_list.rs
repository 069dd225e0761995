//! The lists of a user's cues.
//!
//! A list by creation, of all cues or of one status, is read along an index, and its total is a stored count: a page costs
//! the same whatever the user has. A page at an offset is found through the nearer end of the index. For other lists the
//! rows of the user are read once, of which only the places of the asked page are kept.

use std::cmp::Ordering;

use rusqlite::params;

use crate::domain::cue::list::{CueFilter, CueSort, ListPosition, SortValue};
use crate::domain::cue::{Cue, CueStatus};
use crate::error::Result;
use crate::store::accounts::users;
use crate::store::cues::matching::scan;
use crate::store::cues::recent_runs::RecentRuns;
use crate::store::cues::{COLUMNS, find_by_key, recent_runs, text_bytes};
use crate::store::db::columns::from_row;
use crate::store::{MAX_LIST_BYTES, ReadTx};

/// Bytes of texts in a list that is read on the calling thread: with more of them, reading and writing it takes longer than
/// a short read may. Twenty cues with all texts of usual length have a tenth of it.
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

/// The place at which a page of a list begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListStart {
    /// After so many entries.
    Offset(u64),
    /// After this position, which the last entry of another page had.
    After(ListPosition),
}

#[derive(Debug)]
pub struct CuePage {
    /// The cues, and their runs if the list asks for them.
    pub cues: Vec<(Cue, Option<RecentRuns>)>,
    pub total: i64,
    /// True if the list goes on after the page.
    pub has_more: bool,
}

impl CueList {
    /// The first page of all cues, newest first.
    pub fn newest(limit: u32) -> Self {
        let (filter, start) = (CueFilter::default(), ListStart::Offset(0));
        Self { filter, sort: CueSort::Newest, start, limit, runs: None }
    }

    pub fn is_indexed(&self) -> bool {
        let CueFilter { q, status: _, transport, failing } = &self.filter;
        self.sort.is_by_creation() && q.is_none() && transport.is_none() && failing.is_none()
    }

    /// True if [`read_short`] may read the list.
    pub fn is_short(&self) -> bool {
        let is_near = match self.start {
            ListStart::Offset(offset) => offset <= MAX_INLINE_OFFSET,
            ListStart::After(_) => true,
        };
        self.is_indexed() && is_near && self.runs.is_none()
    }
}

/// A page of the user's cues. Fewer than asked for if their texts exceed [`MAX_LIST_BYTES`].
pub fn read(read: &ReadTx<'_>, user_key: i64, list: &CueList) -> Result<CuePage> {
    if list.is_indexed() {
        let (page, _) = read_indexed(read, user_key, list, MAX_LIST_BYTES)?;
        return Ok(page);
    }
    read_scanned(read, user_key, list)
}

/// As [`read`], for a list that is short; `None` if its texts are too long for the calling thread.
pub fn read_short(read: &ReadTx<'_>, user_key: i64, list: &CueList) -> Result<Option<CuePage>> {
    let (page, is_cut) = read_indexed(read, user_key, list, MAX_INLINE_BYTES)?;
    Ok((!is_cut).then_some(page))
}

/// The rows of a page, from key ?3 on.
fn page_sql(has_status: bool, is_descending: bool) -> String {
    let (bound, order) = if is_descending { ("<=", "DESC") } else { (">=", "ASC") };
    let status = status_condition(has_status);
    format!(
        "SELECT {COLUMNS} FROM cues WHERE user_key = ?1 AND {status} AND key {bound} ?3
          ORDER BY key {order} LIMIT ?4 + 0"
    )
}

/// The key of number ?3 of the list, from 0.
fn skip_sql(has_status: bool, is_descending: bool) -> String {
    let order = if is_descending { "DESC" } else { "ASC" };
    let status = status_condition(has_status);
    format!("SELECT key FROM cues WHERE user_key = ?1 AND {status} ORDER BY key {order} LIMIT 1 OFFSET ?3")
}

fn status_condition(has_status: bool) -> &'static str {
    if has_status { "status = ?2" } else { "?2 IS NULL" }
}

/// Reads a page along the index. Returns whether it is cut because of `max_bytes`.
fn read_indexed(
    read: &ReadTx<'_>,
    user_key: i64,
    list: &CueList,
    max_bytes: usize,
) -> Result<(CuePage, bool)> {
    let status = list.filter.status;
    let total = users::stored_cue_counts(read, user_key)?.of(status);
    let is_descending = list.sort.is_descending();
    let first = match &list.start {
        ListStart::Offset(0) => Some(if is_descending { i64::MAX } else { i64::MIN }),
        ListStart::Offset(offset) => key_at(read, user_key, list, *offset, total)?,
        ListStart::After(last) => last.key.checked_add(if is_descending { -1 } else { 1 }),
    };
    let mut page = CuePage { cues: Vec::new(), total, has_more: false };
    let Some(first) = first else { return Ok((page, false)) };
    let limit = usize::try_from(list.limit).unwrap_or(usize::MAX);
    let mut rows = read.prepare_cached(&page_sql(status.is_some(), is_descending))?;
    // One more than asked for tells whether the list goes on.
    let mut rows =
        rows.query(params![user_key, status.map(CueStatus::as_str), first, i64::from(list.limit) + 1])?;
    let mut bytes = 0;
    page.cues.reserve(limit);
    while let Some(row) = rows.next()? {
        if page.cues.len() == limit || bytes >= max_bytes {
            page.has_more = true;
            break;
        }
        let cue: Cue = from_row(row)?;
        bytes += text_bytes(&cue);
        let runs = list.runs.map(|count| recent_runs::find(read, &cue, count)).transpose()?;
        page.cues.push((cue, runs));
    }
    let is_cut = page.has_more && page.cues.len() < limit;
    Ok((page, is_cut))
}

/// The key of the cue at `offset` of the list, found from the nearer end.
fn key_at(read: &ReadTx<'_>, user_key: i64, list: &CueList, offset: u64, total: i64) -> Result<Option<i64>> {
    let offset = i64::try_from(offset).unwrap_or(i64::MAX);
    let after = total.saturating_sub(offset) - 1;
    if after < 0 {
        return Ok(None);
    }
    let is_descending = list.sort.is_descending();
    let (is_descending, skipped) =
        if offset <= after { (is_descending, offset) } else { (!is_descending, after) };
    let status = list.filter.status;
    let sql = skip_sql(status.is_some(), is_descending);
    read.find(&sql, params![user_key, status.map(CueStatus::as_str), skipped])
}

fn read_scanned(read: &ReadTx<'_>, user_key: i64, list: &CueList) -> Result<CuePage> {
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
        let runs = list.runs.map(|count| recent_runs::find(read, &cue, count)).transpose()?;
        page.cues.push((cue, runs));
    }
    Ok(page)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::test_support::assert_plans;

    #[test]
    fn pages_are_read_along_an_index_that_begins_with_the_user() {
        for (has_status, index) in [
            (false, "SEARCH cues USING INDEX cues_by_user (user_key=?"),
            (true, "SEARCH cues USING INDEX cues_by_user_and_status (user_key=? AND status=?"),
        ] {
            for (is_descending, key) in [(false, " AND key>?)"), (true, " AND key<?)")] {
                let page = page_sql(has_status, is_descending);
                let skip = skip_sql(has_status, is_descending);
                assert_plans(&[(&page, &format!("{index}{key}")), (&skip, &format!("{index})"))]);
            }
        }
    }
}
