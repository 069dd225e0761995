//! `GET /v1/cues`.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::Value;

use crate::api::cue_view::{CueView, LastRunView, RecentView};
use crate::domain::account::credentials::sha256;
use crate::domain::cue::list::{
    CueFilter, CueSort, ListPosition, MAX_RECENT_RUNS, MAX_SEARCH, SearchText, SortValue,
};
use crate::domain::cue::slug::SlugFilter;
use crate::domain::cue::{CueStatus, Transport};
use crate::domain::row_keys::{CueKey, UserKey};
use crate::domain::time::JsonTimestamp;
use crate::error::Result;
use crate::http::limits::Turn;
use crate::http::list::{ListBody, Pagination, Query};
use crate::http::message::{Request, Response};
use crate::store::ReadTx;
use crate::store::cues::cue_list::{self, RecentRuns};
use crate::store::cues::cue_list::{CueList, CuePage, ListStart};

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
        q: query.text("q", 1..=MAX_SEARCH).map(SearchText::new),
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
    let mut start = ListStart::Offset(pagination.offset);
    if let Some(text) = query.raw("cursor") {
        match decode_cursor(text, &filter, sort) {
            Ok(_) if query.raw("offset").is_some() => {
                query.reject(
                    "cursor",
                    "should be left out beside offset: a page begins at one of the two",
                );
            }
            Ok(last) => start = ListStart::After(last),
            Err(error) => query.reject("cursor", &error.to_string()),
        }
    }
    (CueList { filter, sort, start, limit: pagination.limit, runs }, pagination)
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
    let views = page.cues.iter().map(|(cue, runs)| CueView::new(cue, runs.as_ref().map(recent)));
    let body = ListBody::new("cues", views)?;
    let shown = body.count();
    let has_more = page.has_more || shown < page.cues.len();
    let last = page.cues.get(..shown).and_then(<[_]>::last).filter(|_| has_more);
    let next =
        last.map(|(cue, _)| encode_cursor(&list.filter, list.sort, &list.sort.position_of(cue)));
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

/// The kinds of a sort value.
const NONE: u8 = 0;
const INSTANT: u8 = 1;
const NAME: u8 = 2;

/// Digest length: distinguishes the lists of one user; no security.
const DIGEST_BYTES: usize = 4;

/// The text of a cursor after `last`: the place of the last entry of a page, and a digest of the list that it belongs
/// to. Callers take it from a response and send it back as it is.
fn encode_cursor(filter: &CueFilter, sort: CueSort, last: &ListPosition) -> String {
    let mut bytes = digest(filter, sort).to_vec();
    bytes.extend(last.key.number().to_be_bytes());
    match &last.value {
        SortValue::None => bytes.push(NONE),
        SortValue::Instant(millis) => {
            bytes.push(INSTANT);
            bytes.extend(millis.to_be_bytes());
        }
        SortValue::Name(name) => {
            bytes.push(NAME);
            bytes.extend(name.bytes());
        }
    }
    URL_SAFE_NO_PAD.encode(bytes)
}

/// The place that a cursor stands for.
fn decode_cursor(
    text: &str,
    filter: &CueFilter,
    sort: CueSort,
) -> std::result::Result<ListPosition, CursorError> {
    let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| CursorError::Malformed)?;
    let (digest_given, rest) =
        bytes.split_first_chunk::<DIGEST_BYTES>().ok_or(CursorError::Malformed)?;
    let (key, rest) = rest.split_first_chunk().ok_or(CursorError::Malformed)?;
    let value = match rest.split_first() {
        Some((&NONE, [])) => SortValue::None,
        Some((&INSTANT, millis)) => {
            let millis = millis.try_into().map_err(|_| CursorError::Malformed)?;
            SortValue::Instant(i64::from_be_bytes(millis))
        }
        Some((&NAME, name)) => {
            let name = std::str::from_utf8(name).map_err(|_| CursorError::Malformed)?;
            SortValue::Name(name.to_owned())
        }
        _ => return Err(CursorError::Malformed),
    };
    if *digest_given != digest(filter, sort) {
        return Err(CursorError::OtherList);
    }
    Ok(ListPosition { value, key: CueKey::new(i64::from_be_bytes(*key)) })
}

fn digest(filter: &CueFilter, sort: CueSort) -> [u8; DIGEST_BYTES] {
    let CueFilter { q, status, transport, slug, tags, failing } = filter;
    let failing = match failing {
        None => "",
        Some(false) => "0",
        Some(true) => "1",
    };
    let mut tags: Vec<&str> = tags.iter().collect();
    tags.sort_unstable();
    let (slugs, _) = slug.as_ref().map(SlugFilter::bounds).unwrap_or_default();
    let list = [
        sort.as_str(),
        status.map_or("", CueStatus::as_str),
        transport.map_or("", Transport::as_str),
        failing,
        q.as_ref().map_or("", SearchText::as_str),
        &tags.join(","),
        &slugs,
    ];
    let [a, b, c, d, ..] = sha256(list.join("\n").as_bytes());
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
            CueFilter { q: Some(SearchText::new("a")), ..filter.clone() },
        ];
        for (sort, value) in [
            (CueSort::Newest, SortValue::None),
            (CueSort::NextRun, SortValue::Instant(-1)),
            (CueSort::LastRunDescending, SortValue::None),
            (CueSort::Name, SortValue::name("Straße \u{0} 𝄞")),
            (CueSort::Name, SortValue::name("")),
        ] {
            let last = ListPosition { value, key: CueKey::new(1 << 40) };
            let text = encode_cursor(&filter, sort, &last);
            assert!(
                text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte)),
                "{text}"
            );
            assert_eq!(decode_cursor(&text, &filter, sort), Ok(last));
            assert_eq!(decode_cursor(&text, &filter, CueSort::Oldest), Err(CursorError::OtherList));
            for other in &others {
                assert_eq!(
                    decode_cursor(&text, other, sort),
                    Err(CursorError::OtherList),
                    "{other:?}"
                );
            }
        }
    }
}
