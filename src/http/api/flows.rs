//! `GET /v1/flows`: the flows of an account, with what waits and runs in them (contract §4.16).

use crate::error::Result;
use crate::http::list::{ListBody, Pagination};
use crate::http::message::{Request, Response};
use crate::store::ReadTx;
use crate::store::cues::flows;

pub async fn list(request: Request) -> Result<Response> {
    let (user_key, query) = (request.user_key()?, request.query());
    let pagination = query.pagination(50);
    query.finish()?;
    let Pagination { limit, offset } = pagination;
    let list = move |read: &ReadTx<'_>| flows::list(read, user_key, limit, offset);
    let ((page, total), _turn) = request.read_list(true, list).await?;
    let list = ListBody::new("flows", page.iter())?;
    Ok(list.with_page("", total, pagination).into_response())
}
