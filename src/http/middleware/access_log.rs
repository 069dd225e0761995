//! The record of each finished request: its metrics, and its log line at debug level.
//!
//! Neither holds the path or the query of the request: these contain ids and, on some routes, tokens.

use std::time::Duration;

use hyper::{Method, StatusCode};

use crate::http::middleware::state::ServerState;
use crate::http::router::Route;
use crate::metrics::milliseconds;

/// Method and route of a request that matched no route.
const NONE: &str = "none";

pub struct AccessLogEntry<'a> {
    pub request_id: &'a str,
    pub route: Option<&'static Route>,
    /// `None` if the head of the request could not be read.
    pub method: Option<&'a Method>,
    /// `None` without a valid API key.
    pub user_id: Option<&'a str>,
    pub status: StatusCode,
    /// From the end of the head to the response.
    pub duration: Duration,
}

pub fn record(server: &ServerState, entry: &AccessLogEntry<'_>) {
    // `HEAD` counts as the `GET` that handles it.
    let (method, route) = entry.route.map_or((NONE, NONE), |route| (route.method.as_str(), route.path));
    server.app.requests.with([method, route, status_class(entry.status)]).observe_duration(entry.duration);
    tracing::debug!(
        request_id = entry.request_id,
        method = entry.method.map(method_name),
        route,
        status = entry.status.as_u16(),
        user_id = entry.user_id,
        duration_ms = milliseconds(entry.duration),
        "request completed"
    );
}

/// Returns `unknown` for a method that is not a standard one: a client can send any text as a method.
fn method_name(method: &Method) -> &str {
    let is_standard = [
        Method::GET,
        Method::HEAD,
        Method::POST,
        Method::PUT,
        Method::PATCH,
        Method::DELETE,
        Method::OPTIONS,
        Method::CONNECT,
        Method::TRACE,
    ]
    .contains(method);
    if is_standard { method.as_str() } else { "unknown" }
}

fn status_class(status: StatusCode) -> &'static str {
    match status.as_u16() {
        200..=299 => "2xx",
        300..=399 => "3xx",
        400..=499 => "4xx",
        500..=599 => "5xx",
        _ => "1xx",
    }
}
