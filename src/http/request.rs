//! What a handler is given: the caller, the path's parameters, the query, the body, and the moment.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, OnceLock};

use hyper::HeaderMap;
use jiff::Timestamp;
use serde_json::{Map, Value};
use tokio::sync::watch;

use crate::app::App;
use crate::domain::account::sliding_window::RateLimitStatus;
use crate::domain::account::user::Caller;
use crate::domain::api_error::{FieldError, Refusal};
use crate::domain::json;
use crate::error::{Error, Result};
use crate::http::input::json_fields::{JsonFields, NOT_AN_OBJECT};
use crate::http::input::query::Query;
use crate::http::input::validation_errors::shown;
use crate::http::routes::PathParams;
use crate::http::server::body::BufferedBody;

/// One request that has passed the gate.
pub struct Request {
    /// What the rooms share.
    pub app: Arc<App>,
    /// Its id, as the response will carry it and the log names it.
    pub id: String,
    /// The moment it came: the one reading of the clock for all that it causes in `http`.
    pub now: Timestamp,
    /// The other end of the connection.
    pub peer: SocketAddr,
    /// The caller's address: the peer's, or the one that a trusted proxy names.
    pub client: IpAddr,
    /// Its headers.
    pub headers: HeaderMap,
    /// Turns true when the server stops: a long poll ends then.
    pub stopping: watch::Receiver<bool>,
    pub(super) caller: Option<Caller>,
    pub(super) rate: RateLimitStatus,
    pub(super) params: PathParams,
    pub(super) query: String,
    pub(super) body: BufferedBody,
    pub(super) object: OnceLock<Map<String, Value>>,
}

impl Request {
    /// Who calls. There is always one behind `Door::Key`.
    pub fn caller(&self) -> Result<Caller> {
        self.caller.clone().ok_or_else(|| Error::fault("a handler behind an open door asked for its caller"))
    }

    /// A parameter of the path, decoded; empty if the route's path does not have it.
    #[must_use]
    pub fn param(&self, name: &str) -> &str {
        self.params.iter().find(|(known, _)| *known == name).map_or("", |(_, value)| value)
    }

    /// The query, to be read field by field.
    #[must_use]
    pub fn query(&self) -> Query {
        Query::parse(&self.query)
    }

    /// The body that a page's form posted, to be read field by field.
    #[must_use]
    pub fn form(&self) -> Query {
        Query::parse_form(&self.body.bytes)
    }

    /// A header, if it is there and plain text.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// The body as it came.
    #[must_use]
    pub fn body(&self) -> &[u8] {
        &self.body.bytes
    }

    /// The body's fields; 400 when it is not JSON, 422 when it is not an object.
    pub fn fields(&self) -> Result<JsonFields<'_>> {
        self.json_object().map(JsonFields::of_body)
    }

    /// As [`Request::fields`], but no body, or `null`, is an object without fields.
    pub fn optional_fields(&self) -> Result<JsonFields<'_>> {
        let text = self.body.bytes.trim_ascii();
        if text.is_empty() || text == b"null" {
            return Ok(JsonFields::of_body(self.object.get_or_init(Map::new)));
        }
        self.fields()
    }

    /// The body's value, whatever it is; 400 when it is not JSON.
    pub fn json(&self) -> Result<Value> {
        Ok(json::read(&self.body.bytes).map_err(Refusal::from)?)
    }

    /// The body's object; 400 when it is not JSON, 422 when it is not an object.
    pub fn json_object(&self) -> Result<&Map<String, Value>> {
        if let Some(object) = self.object.get() {
            return Ok(object);
        }
        match self.json()? {
            Value::Object(object) => Ok(self.object.get_or_init(|| object)),
            other => Err(not_an_object(&other).into()),
        }
    }
}

fn not_an_object(value: &Value) -> Refusal {
    let (kind, msg) = NOT_AN_OBJECT;
    Refusal::invalid(vec![FieldError {
        kind,
        loc: vec!["body".into()],
        msg: msg.to_owned(),
        input: shown(value),
    }])
}
