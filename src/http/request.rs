//! A request as a handler receives it: caller, path parameters, query, body and time.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use hyper::HeaderMap;
use jiff::Timestamp;
use tokio::sync::watch;

use crate::api::fields::JsonFields;
use crate::app::App;
use crate::domain::account::sliding_window::RateLimitStatus;
use crate::domain::account::user::Caller;
use crate::domain::api_error::{ErrorCode, Refusal};
use crate::domain::ids::ExecutionId;
use crate::domain::json::{self, JsonError, JsonStr, JsonText};
use crate::error::{Error, Result};
use crate::http::input::body::BufferedBody;
use crate::http::input::query::Query;
use crate::http::limits::budget::{Owner, Reservation};
use crate::http::limits::{MAX_WAITING, Shares, Turn};
use crate::locks::Mutex;
use crate::service::executions::not_found;

/// Seconds for `Retry-After` of a long poll beyond the limit: a client that is refused needs no more than this to poll
/// without waiting.
const WAITING_RETRY_AFTER: u32 = 5;

/// Names and decoded values of the parameters of a path.
pub type PathParams = Vec<(&'static str, String)>;

/// A request that has passed the middleware.
pub struct Request {
    pub app: Arc<App>,
    /// The id in the response and in the log.
    pub id: String,
    /// The time when the request arrived: `http` reads the clock once per request.
    pub now: Timestamp,
    /// The host that the request names.
    pub host: String,
    /// The other end of the connection, which may be a proxy.
    pub peer: SocketAddr,
    /// The address of the client: that of the peer, or the one that a trusted proxy forwards.
    pub client_ip: IpAddr,
    pub headers: HeaderMap,
    /// Becomes `true` when the server starts to shut down. A long poll must then return.
    pub stopping: watch::Receiver<bool>,
    pub(super) caller: Option<Caller>,
    pub(super) rate_limit: RateLimitStatus,
    /// The handler has exempted the request from the rate limit.
    pub(super) is_exempt: Arc<AtomicBool>,
    pub(super) params: PathParams,
    pub(super) query: String,
    pub(super) body: BufferedBody,
    pub(super) shares: Arc<Shares>,
    /// The owner of the memory for the body and the response.
    pub(super) owner: Owner,
    /// Memory for the response, taken by the middleware.
    pub(super) reserved: Arc<Mutex<Reservation>>,
    /// The body as JSON, once it is read.
    pub(super) json: OnceLock<std::result::Result<JsonText, JsonError>>,
}

impl Request {
    /// Returns the owner of the API key or the session.
    /// Errors: [`Error::Fault`] on a route that does not require a key.
    pub fn caller(&self) -> Result<Caller> {
        self.caller
            .clone()
            .ok_or_else(|| Error::fault("a handler of a route without API keys needs a caller"))
    }

    /// Returns a decoded path parameter; empty if the path of the route does not have it.
    pub fn param(&self, name: &str) -> &str {
        self.params.iter().find(|(known, _)| *known == name).map_or("", |(_, value)| value)
    }

    /// Returns the path parameter `execution_id`.
    /// Errors: `execution_not_found` if it is not a UUID.
    pub fn execution_id(&self) -> Result<ExecutionId> {
        Ok(ExecutionId::parse(self.param("execution_id")).ok_or_else(not_found)?)
    }

    /// Takes a place for a long poll or an event stream, to be held until it ends. `None` where limits are off.
    /// Errors: 429 if the caller has too many of both.
    pub fn begin_waiting(&self) -> Result<Option<Arc<()>>> {
        if !self.app.config.plans.are_limited() {
            return Ok(None);
        }
        let place = self.shares.waiting.take(self.caller()?.user_key);
        Ok(Some(place.ok_or_else(too_many_waiting)?))
    }

    /// Reserves memory for a response of about `bytes`, before the change that it reports: a refused request then
    /// changes nothing. Not needed for responses of up to 64 KiB.
    /// Errors: 503 if the caller has no room.
    pub fn reserve_response(&self, bytes: usize) -> Result<()> {
        self.reserved.lock().grow_to(bytes)
    }

    /// Drops the body and returns its memory, once nothing of it is needed any more. Then it is empty.
    pub fn drop_body(&mut self) {
        self.body = BufferedBody::default();
        self.json = OnceLock::new();
    }

    /// Waits for the caller's turn to read a list. The permit is to be held until the response is rendered.
    pub async fn list_turn(&self) -> Result<Turn> {
        self.shares.lists.wait(self.owner).await
    }

    /// As [`Request::list_turn`], for a list of a long history.
    pub async fn slow_list_turn(&self) -> Result<Turn> {
        self.shares.slow_lists.wait(self.owner).await
    }

    /// On a route with `Access::DevicePoll`: the request does not count in the window of the client address.
    pub fn exempt_from_rate_limit(&self) {
        self.is_exempt.store(true, Ordering::Relaxed);
    }

    pub fn query(&self) -> Query {
        Query::parse(&self.query)
    }

    pub fn form(&self) -> Query {
        Query::parse_form(&self.body.bytes)
    }

    /// Returns a header; `None` if it is absent or not plain text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    pub fn body(&self) -> &[u8] {
        &self.body.bytes
    }

    /// Returns the fields of the body.
    /// Errors: 400 if the body is not JSON, 422 if it is not an object.
    pub fn fields(&self) -> Result<JsonFields<'_>> {
        Ok(JsonFields::of_body(self.json()?)?)
    }

    /// Same as [`Request::fields`], but an empty body or `null` is an object without fields.
    pub fn optional_fields(&self) -> Result<JsonFields<'_>> {
        let text = self.body.bytes.trim_ascii();
        if text.is_empty() || text == b"null" {
            return Ok(JsonFields::of_body(JsonStr::EMPTY_OBJECT)?);
        }
        self.fields()
    }

    /// Returns the body, any JSON value, in compact form. A large one was read before, on another thread.
    /// Errors: 400 if the body is not JSON.
    pub fn json(&self) -> Result<JsonStr<'_>> {
        let read = self.json.get_or_init(|| json::read(&self.body.bytes));
        Ok(read.as_ref().map(JsonText::get).map_err(|error| Refusal::from(error.clone()))?)
    }
}

fn too_many_waiting() -> Refusal {
    let message = format!(
        "The account has {MAX_WAITING} long polls and event streams open, the most at a time; end one of them, or poll \
         without `wait`"
    );
    Refusal::new(ErrorCode::RateLimitExceeded, message).retry_after(WAITING_RETRY_AFTER)
}
