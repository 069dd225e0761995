//! `GET /v1/cues`.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use crate::api::cue_view::{CueView, LastRunView, RecentView};
use crate::domain::account::credentials::sha256;
use crate::domain::cue::list::{
    CueFilter, CueSort, ListPosition, MAX_RECENT_RUNS, MAX_SEARCH, SortValue, fold,
};
use crate::domain::cue::slug::SlugFilter;
use crate::domain::cue::{CueStatus, Transport};
use crate::domain::row_keys::{CueKey, UserKey};
use crate::domain::time::JsonTimestamp;
use crate::error::Result;
use crate::http::limits::turns::Turn;
use crate::http::list::{ListBody, Pagination, Query};
use crate::http::message::{Request, Response, to_json};
use crate::store::ReadTx;
use crate::store::cues::cue_list::{self, RecentRuns};
use crate::store::cues::cue_list::{CueList, CuePage};

/// `GET /v1/cues?q&status&transport&slug&namespace&tag&failing&sort&runs&limit&offset&cursor`
pub async fn list(request: Request) -> Result<Response> {
    let (caller, query) = (request.caller()?, request.query());
    let (list, pagination) = requested_list(&query);
    query.finish()?;
    let (page, _turn) = read_page(&request, caller.user_key, &list).await?;
    render(&list, pagination, &page)
}

/// The requested list. `query.finish()` reports errors.
fn requested_list(query: &Query) -> (CueList, Pagination) {
    let pagination = query.pagination(20);
    let filter = CueFilter {
        q: query.text("q", 1..=MAX_SEARCH).map(fold),
        status: query.one_of("status", &CueStatus::WORDS).and_then(CueStatus::parse),
        transport: query.one_of("transport", &Transport::WORDS).and_then(Transport::parse),
        slug: SlugFilter::parse(query.raw("slug"), query.raw("namespace")).unwrap_or_else(
            |(name, reason)| {
                query.reject(name, reason);
                None
            },
        ),
        tags: query.tags(),
        failing: query.boolean("failing"),
    };
    let sort =
        query.one_of("sort", &CueSort::WORDS).and_then(CueSort::parse).unwrap_or(CueSort::Newest);
    let runs = query.integer("runs", 0..=i64::from(MAX_RECENT_RUNS));
    let Pagination { limit, offset } = pagination;
    let mut list = CueList { filter, sort, offset, after: None, limit, runs };
    if let Some(text) = query.raw("cursor") {
        match decode_cursor(text, &list) {
            Ok(_) if query.raw("offset").is_some() => {
                query.reject(
                    "cursor",
                    "must be left out beside offset: a page begins at one of the two",
                );
            }
            Ok(last) => list.after = Some(last),
            Err(error) => query.reject("cursor", &error.to_string()),
        }
    }
    (list, pagination)
}

/// Reads the page. A short one is read on this thread, because passing it to another and back takes as long as the
/// read; the others wait for their turn, which ends when the response is rendered.
async fn read_page(
    request: &Request,
    user_key: UserKey,
    list: &CueList,
) -> Result<(CuePage, Option<Turn>)> {
    let store = &request.app.store;
    if list.is_short() {
        let list = list.clone();
        let read = move |read: &ReadTx<'_>| cue_list::read_short(read, user_key, &list);
        if let Some(page) = store.read_inline(read).await? {
            return Ok((page, None));
        }
    }
    let (list, is_slow) = (list.clone(), !list.is_indexed());
    let read = move |read: &ReadTx<'_>| cue_list::read(read, user_key, &list);
    let (page, turn) = request.read_list(is_slow, read).await?;
    Ok((page, Some(turn)))
}

fn render(list: &CueList, pagination: Pagination, page: &CuePage) -> Result<Response> {
    let runs_of = |index: usize| page.runs.as_ref()?.get(index).map(recent);
    let views = page.cues.iter().enumerate();
    let views = views.map(|(index, cue)| CueView::new(cue, runs_of(index)));
    let body = ListBody::new("cues", views)?;
    let shown = body.count();
    let has_more = page.has_more || shown < page.cues.len();
    let last = page.cues.get(..shown).and_then(<[_]>::last).filter(|_| has_more);
    let next = last.map(|cue| encode_cursor(list, list.sort.position_of(cue))).transpose()?;
    let body = body
        .with("total", &page.total.to_string())
        .with("limit", &pagination.limit.to_string())
        .with("offset", &pagination.offset.to_string())
        .with("has_more", if has_more { "true" } else { "false" })
        .with("next_cursor", &next.map_or(Value::Null, Value::from).to_string());
    Ok(body.into_response())
}

fn recent(runs: &RecentRuns) -> RecentView<'_> {
    let last = runs.last.as_ref().map(|last| LastRunView {
        execution_id: last.execution_id.to_string(),
        status: last.status.as_str(),
        at: JsonTimestamp(last.at),
        cause: last.cause.as_deref(),
        duration_ms: last.duration_ms,
    });
    RecentView { statuses: &runs.letters, last, task: runs.task.as_deref() }
}

/// The reason to refuse a cursor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
enum CursorError {
    #[error("is none of this list; start again without one")]
    Malformed,
    #[error("belongs to a list with another filter or sort; start again without one")]
    OtherList,
}

/// The text of a cursor after `last`: a digest of the list that it belongs to, and the place of the last entry of a page.
/// Callers take it from a response and send it back as it is.
fn encode_cursor(list: &CueList, last: ListPosition) -> Result<String> {
    let place = to_json(&(digest(list), last.value, last.key.number()))?;
    Ok(URL_SAFE_NO_PAD.encode(place))
}

/// The place that a cursor stands for.
fn decode_cursor(text: &str, list: &CueList) -> std::result::Result<ListPosition, CursorError> {
    let place = URL_SAFE_NO_PAD.decode(text).map_err(|_| CursorError::Malformed)?;
    let (digest_given, value, key): ([u8; 4], SortValue, i64) =
        serde_json::from_slice(&place).map_err(|_| CursorError::Malformed)?;
    if digest_given == digest(list) {
        Ok(ListPosition { value, key: CueKey::new(key) })
    } else {
        Err(CursorError::OtherList)
    }
}

/// Distinguishes the lists of one user; no security. The same on every machine and after an update, because a cursor is
/// valid for any time.
fn digest(list: &CueList) -> [u8; 4] {
    let CueFilter { q, status, transport, slug, tags, failing } = &list.filter;
    let tags: Vec<&str> = tags.iter().collect();
    let words = (status.map(CueStatus::as_str), transport.map(Transport::as_str));
    let slugs = slug.as_ref().map(SlugFilter::bounds);
    let [a, b, c, d, ..] =
        sha256(json!([list.sort.as_str(), words, q, failing, tags, slugs]).to_string().as_bytes());
    [a, b, c, d]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::cue::tags::Tags;

    #[test]
    fn a_cursor_is_read_back_by_the_list_that_made_it_only() {
        let filter = CueFilter { status: Some(CueStatus::Active), ..CueFilter::default() };
        let others = [
            CueFilter::default(),
            CueFilter { status: Some(CueStatus::Paused), ..filter.clone() },
            CueFilter { transport: Some(Transport::Worker), ..filter.clone() },
            CueFilter { slug: Some(SlugFilter::Namespace("a".to_owned())), ..filter.clone() },
            CueFilter { tags: Tags::new(vec!["a".to_owned()]), ..filter.clone() },
            CueFilter { failing: Some(true), ..filter.clone() },
            CueFilter { failing: Some(false), ..filter.clone() },
            CueFilter { q: Some("a".to_owned()), ..filter.clone() },
        ];
        for (sort, value) in [
            (CueSort::Newest, SortValue::None),
            (CueSort::NextRun, SortValue::Instant(-1)),
            (CueSort::LastRunDescending, SortValue::None),
            (CueSort::Name, SortValue::Name("straße \u{0} 𝄞".to_owned())),
            (CueSort::Name, SortValue::Name(String::new())),
        ] {
            let last = ListPosition { value, key: CueKey::new(1 << 40) };
            let list = |filter: &CueFilter, sort| CueList {
                filter: filter.clone(),
                sort,
                offset: 0,
                after: None,
                limit: 20,
                runs: None,
            };
            let text = encode_cursor(&list(&filter, sort), last.clone()).unwrap();
            assert!(
                text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte)),
                "{text}"
            );
            assert_eq!(decode_cursor(&text, &list(&filter, sort)), Ok(last));
            assert_eq!(
                decode_cursor(&text, &list(&filter, CueSort::Oldest)),
                Err(CursorError::OtherList)
            );
            for other in &others {
                assert_eq!(
                    decode_cursor(&text, &list(other, sort)),
                    Err(CursorError::OtherList),
                    "{other:?}"
                );
            }
        }
    }
}
