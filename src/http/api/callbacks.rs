//! `/v1/callbacks`: the test call of a callback, which need not be that of a cue.

use tokio::sync::oneshot;

use crate::api::test_call::{TestCallView, new_test_call};
use crate::domain::api_error::{ErrorCode, Refusal};
use crate::error::{Error, Result};
use crate::http::message::{Request, Response};
use crate::service::test_calls;

/// Seconds for `Retry-After` when the server stops: a restart takes about as long.
const STOPPING_RETRY_AFTER: u32 = 5;

/// `POST /v1/callbacks/test`: calls the URL at once, and answers when the call has ended.
///
/// If the client goes away or the server stops, nothing waits for the call any more. Its thread ends at the timeout of the
/// call, or with the program.
pub async fn test(mut request: Request) -> Result<Response> {
    let (callback, payload) = new_test_call(request.fields()?, &request.app.config.callbacks)?;
    request.drop_body();
    // What is sent takes up to six times the bytes of the payload, and is held until the call ends.
    let memory = request.reserve(payload.as_ref().map_or(0, |payload| payload.body.len()))?;
    let sender = request.read_own(test_calls::find_sender).await?;
    let (method, url) = (callback.method, callback.url.clone());
    let (end, ended) = oneshot::channel();
    test_calls::start(&request.app, sender, callback, payload, move |result| {
        drop(memory);
        // Nobody waits for it if the client has gone away.
        drop(end.send(result));
    })?;
    let result = request.unless_stopping(ended).await.ok_or_else(server_stops)?;
    let result = result.map_err(|error| Error::fault_from("a test call has no result", error))?;
    Response::from_body(&TestCallView::new(method, &url, &result))
}

fn server_stops() -> Error {
    let message = "The server stops, and the result of the test is lost; make it again";
    Refusal::new(ErrorCode::ServerBusy, message).retry_after(STOPPING_RETRY_AFTER).into()
}
