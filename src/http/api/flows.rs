//! `GET /v1/flows`: the flows of an account, with what waits and runs in them (contract §4.16).

use serde::Serialize;

use crate::error::Result;
use crate::http::list::{ListBody, Pagination};
use crate::http::message::{Request, Response};
use crate::store::ReadTx;
use crate::store::cues::flows::{self, FlowSummary};

pub async fn list(request: Request) -> Result<Response> {
    let (caller, query) = (request.caller()?, request.query());
    let pagination = query.pagination(50);
    query.finish()?;
    let Pagination { limit, offset } = pagination;
    let list = move |read: &ReadTx<'_>| flows::list(read, caller.user_key, limit, offset);
    let ((page, total), _turn) = request.read_list(true, list).await?;
    let list = ListBody::new("flows", page.iter().map(FlowView::from))?;
    Ok(list.with_page("", total, pagination).into_response())
}

#[derive(Debug, Serialize)]
struct FlowView<'a> {
    key: &'a str,
    parallelism: Option<u32>,
    per_minute: Option<u32>,
    cues: i64,
    waiting: i64,
    running: i64,
}

impl<'a> From<&'a FlowSummary> for FlowView<'a> {
    fn from(flow: &'a FlowSummary) -> Self {
        let FlowSummary { key, parallelism, per_minute, cues, waiting, running } = flow;
        let (parallelism, per_minute) = (*parallelism, *per_minute);
        Self { key, parallelism, per_minute, cues: *cues, waiting: *waiting, running: *running }
    }
}
