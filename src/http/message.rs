//! The two messages of HTTP as a handler sees them: the [`Request`] that it receives, with caller, path parameters, body and
//! time, and the [`Response`] that it returns, with the format of errors. The only place that turns a `Refusal` into HTTP.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use http_body_util::BodyExt;
use hyper::StatusCode;
use hyper::body::{Body, Bytes};
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;
use tokio::sync::{OwnedSemaphorePermit, watch};
use uuid::Uuid;

use crate::api::fields::JsonFields;
use crate::api::refusal::error_body;
use crate::app::App;
use crate::domain::account::credentials::{may_contain_secret, sha256};
use crate::domain::account::rate_limit::RateLimitStatus;
use crate::domain::account::user::Caller;
use crate::domain::api_error::{ErrorCode, Refusal};
use crate::domain::ids::ExecutionId;
use crate::domain::json::{self, JsonError, JsonStr, JsonText};
use crate::domain::row_keys::UserKey;
use crate::error::{Error, Result};
use crate::http::limits::memory::Reservation;
use crate::http::limits::waiting::MAX_WAITING;
use crate::http::limits::{Owner, Shares};
use crate::service::executions::not_found;
use crate::store::ReadTx;
use crate::store::accounts::idempotency::{IdempotencyRequest, StoredResponse};
use crate::system::locks::Mutex;

/// Seconds for `Retry-After` of a long poll beyond the limit: a client that is refused needs no more than this to poll
/// without waiting.
const WAITING_RETRY_AFTER: u32 = 5;

/// The header and the field of a body that name an idempotency key (contract §4.14).
const KEY_HEADER: &str = "Idempotency-Key";
const KEY_FIELD: &str = "idempotency_key";
const MAX_KEY: usize = 255;

/// A body that arrives in pieces grows by a quarter of what it holds, at least by this much. A buffer that doubled would
/// hold twice what has arrived; with a quarter, a body of 2 MB is moved 25 times.
const MIN_GROWTH: usize = 4 << 10;

pub const HTML: &str = "text/html; charset=utf-8";

pub const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// `Retry-After` in seconds while the database cannot be used (contract §2.4).
const STORAGE_RETRY_AFTER: u32 = 5;

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
    /// The address of the peer, or the one that a trusted proxy forwards.
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
        self.caller.clone().ok_or_else(no_caller)
    }

    /// Returns the row key of the caller, as [`Self::caller`].
    pub fn user_key(&self) -> Result<UserKey> {
        let user_key = self.caller.as_ref().map(|caller| caller.user_key);
        user_key.ok_or_else(no_caller)
    }

    /// Reads a few rows of the caller by key.
    pub async fn read_own<T, F>(&self, read: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&ReadTx<'_>, UserKey) -> Result<T> + Send + 'static,
    {
        let user_key = self.user_key()?;
        self.app.store.read_inline(move |tx| read(tx, user_key)).await
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
    pub fn begin_waiting(&self) -> Result<Option<OwnedSemaphorePermit>> {
        if !self.app.config.plans.are_limited() {
            return Ok(None);
        }
        let place = self.shares.waiting.take(self.owner);
        Ok(Some(place.ok_or_else(too_many_waiting)?))
    }

    /// Waits for a result; `None` if the server stops before it comes.
    pub async fn unless_stopping<T>(&self, result: impl Future<Output = T>) -> Option<T> {
        let mut stopping = self.stopping.clone();
        tokio::select! {
            result = result => Some(result),
            _ = stopping.wait_for(|stopping| *stopping) => None,
        }
    }

    /// Reserves memory for a response of about `bytes`, before the change that it reports: a refused request then
    /// changes nothing. Not needed for responses of up to 64 KiB.
    /// Errors: 503 if the caller has no room.
    pub fn reserve_response(&self, bytes: usize) -> Result<()> {
        self.reserved.lock().grow_to(bytes)
    }

    /// Reserves memory of the caller for work that may outlast the request.
    /// Errors: 503 if the caller has no room.
    pub fn reserve(&self, bytes: usize) -> Result<Reservation> {
        self.shares.budget.reserve(self.owner, bytes)
    }

    /// Drops the body, once nothing of it is needed any more, and returns its memory.
    pub fn drop_body(&mut self) {
        self.body = BufferedBody::default();
        self.json = OnceLock::new();
    }

    /// On a route with `Access::DevicePoll`: the request does not count in the window of the client address.
    pub fn exempt_from_rate_limit(&self) {
        self.is_exempt.store(true, Ordering::Relaxed);
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

    /// Returns the `Idempotency-Key`, with a fingerprint of route and body: the same key on a different request is a
    /// conflict. `in_body` is the key of the body, if there is one.
    /// Errors: 422 for a header of another form, or one that differs from the body.
    pub fn idempotency(
        &self,
        route: &str,
        in_body: Option<String>,
    ) -> Result<Option<IdempotencyRequest>> {
        let in_header =
            self.headers.get(KEY_HEADER).map(|value| value.to_str().unwrap_or_default());
        if in_header.is_some_and(|key| !(1..=MAX_KEY).contains(&key.len())) {
            let reason = "must have 1 to 255 visible ASCII characters";
            return Err(Refusal::invalid_value(["header", KEY_HEADER], reason, Value::Null).into());
        }
        if let (Some(header), Some(body)) = (in_header, &in_body)
            && header != body
        {
            let reason = "differs from the header Idempotency-Key; send only one of the two";
            return Err(Refusal::invalid_value(["body", KEY_FIELD], reason, body.as_str()).into());
        }
        let Some(key) = in_header.map(str::to_owned).or(in_body) else { return Ok(None) };
        let content = [route.as_bytes(), b"\n", self.body()].concat();
        Ok(Some(IdempotencyRequest { key, fingerprint: sha256(&content) }))
    }
}

/// Reads the field that has the same meaning as the header `Idempotency-Key`.
pub fn read_idempotency_key(fields: &mut JsonFields<'_>) -> Option<String> {
    let key = fields.string(KEY_FIELD, 1..=MAX_KEY)?;
    if !key.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
        fields.reject(KEY_FIELD, "must have 1 to 255 visible ASCII characters");
    }
    Some(key)
}

fn no_caller() -> Error {
    Error::fault("a handler of a route without API keys needs a caller")
}

fn too_many_waiting() -> Refusal {
    let message = format!(
        "The account has {MAX_WAITING} long polls and event streams open, the most at a time; end one of them, or poll \
         without `wait`"
    );
    Refusal::new(ErrorCode::RateLimitExceeded, message).retry_after(WAITING_RETRY_AFTER)
}

/// Returns the `X-Request-Id` of the client if it is safe to log, otherwise a new id.
pub fn request_id(headers: &HeaderMap) -> String {
    let is_safe = |id: &&str| {
        // Clients do send API keys in the wrong header; the log must not store them.
        !may_contain_secret(id)
            && (1..=128).contains(&id.len())
            && id
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-'))
    };
    let sent = headers.get(REQUEST_ID).and_then(|value| value.to_str().ok()).filter(is_safe);
    sent.map_or_else(|| Uuid::new_v4().to_string(), str::to_owned)
}

/// A complete body. Dropping it returns its bytes to the budget.
#[derive(Debug, Default)]
pub struct BufferedBody {
    pub bytes: Bytes,
    _reservation: Option<Reservation>,
}

impl BufferedBody {
    /// Reads a body to its end. It holds of the budget what has arrived of it.
    /// Errors: 413 if the declared length is above `limit` (before any byte is read, so that `Expect: 100-continue` gets
    /// no 100), or as soon as more than `limit` bytes have arrived. 503 if the budget has no room for what arrives.
    pub async fn read<B>(mut body: B, limit: usize, mut reservation: Reservation) -> Result<Self>
    where
        B: Body<Data = Bytes> + Unpin,
        B::Error: std::fmt::Display,
    {
        if body.size_hint().lower() > limit as u64 {
            return Err(too_large(limit));
        }
        let mut bytes = Vec::new();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| {
                let message = format!("The body is incomplete ({error}); send the request again");
                Error::refused(ErrorCode::BadRequest, message)
            })?;
            let Ok(data) = frame.into_data() else { continue };
            if bytes.len() + data.len() > limit {
                return Err(too_large(limit));
            }
            reservation.grow_to(bytes.len() + data.len())?;
            if bytes.is_empty() && body.is_end_stream() {
                return Ok(Self { bytes: data, _reservation: Some(reservation) });
            }
            if bytes.capacity() - bytes.len() < data.len() {
                bytes.reserve_exact(data.len().max(bytes.len() / 4).max(MIN_GROWTH));
            }
            bytes.extend_from_slice(&data);
        }
        Ok(Self { bytes: bytes.into(), _reservation: Some(reservation) })
    }
}

fn too_large(limit: usize) -> Error {
    Error::refused(
        ErrorCode::PayloadTooLarge,
        format!("The body is too large; send at most {limit} bytes"),
    )
}

/// Status, body and specific headers of a response. The middleware adds the headers that all responses have.
#[derive(Debug)]
pub struct Response {
    pub status: StatusCode,
    pub body: Bytes,
    pub headers: HeaderMap,
    /// The body of a response without an end, in place of `body`.
    pub stream: Option<BodyStream>,
}

/// A part of a body and the rest, or the end of the body.
type NextPart = dyn Future<Output = Option<(Bytes, BodyStream)>> + Send;

/// A body whose parts come as time passes. Each part has a few KB at most.
pub struct BodyStream(Pin<Box<NextPart>>);

impl BodyStream {
    /// The body whose next part, with the rest, `next` returns.
    pub fn new(next: impl Future<Output = Option<(Bytes, Self)>> + Send + 'static) -> Self {
        Self(Box::pin(next))
    }

    /// The next part; `None` at the end.
    pub fn poll_part(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        self.0.as_mut().poll(context).map(|next| {
            next.map(|(part, rest)| {
                *self = rest;
                part
            })
        })
    }
}

impl std::fmt::Debug for BodyStream {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("BodyStream")
    }
}

/// A payload is shown as a JSON string: each of its characters takes at most so many there.
pub const MAX_ESCAPED: usize = 2;

/// Adds the field `payload`, stored text that is JSON, to a serialized object.
pub fn with_payload(mut object: String, payload: Option<String>) -> String {
    object.pop();
    object.push_str(",\"payload\":");
    enclosed(object, payload.unwrap_or_else(|| "null".to_owned()), "}")
}

/// As [`with_payload`], or with the field `payload_text`, the stored payload as a string: no reader of JSON changes the
/// numbers in it.
pub fn with_payload_as(
    is_text: bool,
    mut object: String,
    payload: Option<String>,
) -> Result<String> {
    if !is_text {
        return Ok(with_payload(object, payload));
    }
    object.pop();
    object.push_str(",\"payload_text\":");
    Ok(enclosed(object, to_json(&payload)?, "}"))
}

/// `text` between `before` and `after`. The longer one of the first two gets the other one, so that no third text of
/// their size is made.
pub fn enclosed(mut before: String, mut text: String, after: &str) -> String {
    if text.len() > before.len() {
        text.reserve_exact(before.len() + after.len());
        text.insert_str(0, &before);
        text.push_str(after);
        return text;
    }
    before.push_str(&text);
    before.push_str(after);
    before
}

/// Appends the JSON of `value`.
pub fn append_json(text: &mut Vec<u8>, value: &impl Serialize) -> Result<()> {
    serde_json::to_writer(JsonWriter(text), value)
        .map_err(|error| Error::fault_from("a response could not be written as JSON", error))
}

/// Most pieces of JSON are a quote, a colon or a comma, and the writer of `Vec` copies each as it would a long text. With
/// this one lists are a tenth faster.
struct JsonWriter<'a>(&'a mut Vec<u8>);

impl io::Write for JsonWriter<'_> {
    #[inline]
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        self.write_all(piece).map(|()| piece.len())
    }

    #[inline]
    fn write_all(&mut self, piece: &[u8]) -> io::Result<()> {
        match piece {
            [byte] => self.0.push(*byte),
            _ => self.0.extend_from_slice(piece),
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Serializes a body as JSON.
pub fn to_json(body: &impl Serialize) -> Result<String> {
    let mut text = Vec::with_capacity(1_024);
    append_json(&mut text, body)?;
    String::from_utf8(text).map_err(|error| Error::fault_from("JSON is not UTF-8", error))
}

impl Response {
    pub fn ok(value: &Value) -> Self {
        Self::json(StatusCode::OK, value.to_string())
    }

    /// 200 with a serialized body.
    pub fn from_body(body: &impl Serialize) -> Result<Self> {
        Ok(Self::json(StatusCode::OK, to_json(body)?))
    }

    pub fn created(value: &Value) -> Self {
        Self::json(StatusCode::CREATED, value.to_string())
    }

    pub fn no_content() -> Self {
        Self {
            status: StatusCode::NO_CONTENT,
            body: Bytes::new(),
            headers: HeaderMap::new(),
            stream: None,
        }
    }

    /// JSON that is already serialized.
    pub fn json(status: StatusCode, text: impl Into<Bytes>) -> Self {
        Self::text(status, "application/json", text)
    }

    pub fn html(status: StatusCode, text: String) -> Self {
        Self::text(status, HTML, text)
    }

    pub fn text(status: StatusCode, content_type: &'static str, text: impl Into<Bytes>) -> Self {
        let response = Self { status, body: text.into(), headers: HeaderMap::new(), stream: None };
        response.with(header::CONTENT_TYPE, HeaderValue::from_static(content_type))
    }

    /// 200 with a body that comes as time passes.
    pub fn stream(content_type: &'static str, stream: BodyStream) -> Self {
        Self { stream: Some(stream), ..Self::text(StatusCode::OK, content_type, "") }
    }

    pub fn with(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.insert(name, value);
        self
    }

    /// The response that was stored under an idempotency key, or that would be.
    pub fn stored(stored: StoredResponse) -> Self {
        Self::json(StatusCode::from_u16(stored.status).unwrap_or(StatusCode::OK), stored.body)
    }

    /// The response to a failed request. Logs an error that the caller cannot correct. `docs` is the URL that the paths of
    /// the documentation come after; `None` if the server has none.
    pub fn error(error: Error, request_id: &str, docs: Option<&str>) -> Self {
        Self::from_refusal(&to_refusal(error, request_id), docs)
    }

    fn from_refusal(refusal: &Refusal, docs: Option<&str>) -> Self {
        let mut body = error_body(refusal);
        if let (Some(base), Some(path)) = (docs, refusal.code.docs_path()) {
            body["error"]["docs_url"] = format!("{base}{path}").into();
        }
        let (_, status) = refusal.code.text_and_status();
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = Self::json(status, body.to_string());
        if let Some(seconds) = refusal.retry_after {
            response = response.with(header::RETRY_AFTER, seconds.into());
        }
        if status == StatusCode::UNAUTHORIZED {
            response = response.with(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

/// Runs a job that waits, for a disk or another server, on a thread that may block.
pub async fn run_blocking<T: Send + 'static>(
    job: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let done = tokio::task::spawn_blocking(job).await;
    done.map_err(|error| Error::fault_from("a job on another thread has failed", error))?
}

/// Returns the part of an error that the caller may see. Logs the rest, with the id of the request.
pub fn to_refusal(error: Error, request_id: &str) -> Refusal {
    match error {
        Error::Refused(refusal) => refusal,
        Error::Storage(reason) => {
            // The store has logged it, a full disk once and not for each request.
            tracing::debug!(request_id, error = %reason, "the database is unavailable");
            let message = format!(
                "The database cannot be used now: the disk may be full; try again in {STORAGE_RETRY_AFTER} s"
            );
            Refusal::new(ErrorCode::StorageUnavailable, message).retry_after(STORAGE_RETRY_AFTER)
        }
        Error::Fault(reason) | Error::Corrupt(reason) => {
            tracing::error!(request_id, error = %reason, "request failed");
            Refusal::new(
                ErrorCode::InternalError,
                "Internal error; the server log has the details under the request id",
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_id_of_the_client_is_kept_only_if_it_is_safe() {
        let id = |value: &str| {
            let value = HeaderValue::from_str(value).unwrap();
            request_id(&HeaderMap::from_iter([(REQUEST_ID, value)]))
        };
        assert_eq!(
            [id("Req-1_a.b"), id(&"a".repeat(128))],
            ["Req-1_a.b".to_owned(), "a".repeat(128)]
        );
        let secrets = ["cue_sk_0123456789abcdef0123456789abcdef", "whsec_0", "Bearer-cue_sk_0"];
        for bad in
            ["", "a b", "a/b", "a\tb", "<script>", "ä", &"a".repeat(129)].into_iter().chain(secrets)
        {
            assert!(Uuid::parse_str(&id(bad)).is_ok(), "{bad}");
        }
    }

    #[test]
    fn a_payload_is_added_to_an_object() {
        let object = || "{\"a\":1}".to_owned();
        assert_eq!(with_payload(object(), None), r#"{"a":1,"payload":null}"#);
        assert_eq!(with_payload(object(), Some("{}".to_owned())), r#"{"a":1,"payload":{}}"#);
        let long = format!("\"{}\"", "x".repeat(50));
        assert_eq!(
            with_payload(object(), Some(long.clone())),
            format!("{{\"a\":1,\"payload\":{long}}}")
        );
    }

    #[test]
    fn a_fault_hides_its_reason() {
        let response = Response::error(Error::fault("SQLite: no such table: cues"), "id", Some(""));
        assert_eq!(response.status, 500);
        let body = r#"{"error":{"code":"internal_error","message":"Internal error; the server log has the details under the request id","status":500}}"#;
        assert_eq!(response.body, body);
    }

    #[test]
    fn unavailable_storage_is_503_with_retry_after() {
        let response = Response::error(Error::storage("SQLITE_FULL in cued.db"), "id", None);
        assert_eq!(response.status, 503);
        assert_eq!(response.headers[header::RETRY_AFTER], "5");
        assert!(!String::from_utf8_lossy(&response.body).contains("cued.db"));
    }
}
