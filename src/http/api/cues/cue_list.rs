//! `GET /v1/cues`.

use serde_json::Value;

use crate::domain::cue::filter::{CueFilter, MAX_SEARCH, SearchText};
use crate::domain::cue::list_order::CueSort;
use crate::domain::cue::recent_runs::MAX_RECENT_RUNS;
use crate::domain::cue::{CueStatus, Transport};
use crate::error::Result;
use crate::http::api::cues::cue_response::CueView;
use crate::http::api::cues::cursor;
use crate::http::input::query::{Pagination, Query};
use crate::http::limits::turns::Turn;
use crate::http::list::ListBody;
use crate::http::request::Request;
use crate::http::response::Response;
use crate::store::ReadTx;
use crate::store::cues::cue_list;
use crate::store::cues::cue_list::{CueList, CuePage, ListStart};

/// `GET /v1/cues?q&status&transport&failing&sort&runs&limit&offset&cursor`
pub async fn list(request: Request) -> Result<Response> {
    let (caller, query) = (request.caller()?, request.query());
    let (list, pagination) = requested_list(&query);
    query.finish()?;
    let (page, _turn) = read_page(&request, caller.user_key, &list).await?;
    render(&list, pagination, &page)
}

/// The list that the query asks for. `query.finish()` tells whether it is valid.
fn requested_list(query: &Query) -> (CueList, Pagination) {
    let pagination = query.pagination(20);
    let filter = CueFilter {
        q: query.text("q", 1..=MAX_SEARCH).map(SearchText::new),
        status: query.one_of("status", &CueStatus::WORDS).and_then(CueStatus::parse),
        transport: query.one_of("transport", &Transport::WORDS).and_then(Transport::parse),
        failing: query.boolean("failing"),
    };
    let sort = query.one_of("sort", &CueSort::WORDS).and_then(CueSort::parse).unwrap_or(CueSort::Newest);
    let runs = query.optional_integer("runs", 0..=i64::from(MAX_RECENT_RUNS));
    let mut start = ListStart::Offset(pagination.offset);
    if let Some(text) = query.raw("cursor") {
        match cursor::decode(text, &filter, sort) {
            Ok(_) if query.raw("offset").is_some() => {
                query.reject("cursor", "a page begins at a cursor or at an offset; send one of the two");
            }
            Ok(last) => start = ListStart::After(last),
            Err(error) => query.reject("cursor", &error.to_string()),
        }
    }
    let runs = runs.and_then(|runs| u32::try_from(runs).ok());
    (CueList { filter, sort, start, limit: pagination.limit, runs }, pagination)
}

/// Reads the page. A short one is read on this thread, because passing it to another and back takes as long as the read; the
/// others wait for their turn, which ends when the response is rendered.
async fn read_page(request: &Request, user_key: i64, list: &CueList) -> Result<(CuePage, Option<Turn>)> {
    let store = &request.app.store;
    if list.is_short() {
        let list = list.clone();
        let read = move |read: &ReadTx<'_>| cue_list::read_short(read, user_key, &list);
        if let Some(page) = store.read_inline(read).await? {
            return Ok((page, None));
        }
    }
    let is_indexed = list.is_indexed();
    let turn = if is_indexed { request.list_turn().await? } else { request.slow_list_turn().await? };
    let list = list.clone();
    let read = move |read: &ReadTx<'_>| Ok((cue_list::read(read, user_key, &list)?, Some(turn)));
    if is_indexed { store.read(read).await } else { store.read_slow(read).await }
}

fn render(list: &CueList, pagination: Pagination, page: &CuePage) -> Result<Response> {
    let views = page.cues.iter().map(|(cue, runs)| CueView::from(cue).with_recent(runs.as_ref()));
    let body = ListBody::new("cues", views)?;
    let shown = body.count();
    let has_more = page.has_more || shown < page.cues.len();
    let last = page.cues.get(..shown).and_then(<[_]>::last).filter(|_| has_more);
    let next = last.map(|(cue, _)| cursor::encode(&list.filter, list.sort, &list.sort.position_of(cue)));
    let body = body
        .with("total", &page.total.to_string())
        .with("limit", &pagination.limit.to_string())
        .with("offset", &pagination.offset.to_string())
        .with("has_more", if has_more { "true" } else { "false" })
        .with("next_cursor", &next.map_or(Value::Null, Value::from).to_string());
    Ok(body.into_response())
}
