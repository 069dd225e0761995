//! What is kept of each request that was answered: its figures, and at debug level its line in the log.
//!
//! Neither has the path or the query as they were sent: those hold ids, and some of them tokens.

use std::time::Duration;

use hyper::{Method, StatusCode};

use crate::http::routes::Route;
use crate::http::server::ServerState;
use crate::metrics::milliseconds;

/// The path of a request that found no row of the table, and its method.
const NONE: &str = "none";

/// A request that was answered.
pub struct AccessLogEntry<'a> {
    /// Its id.
    pub id: &'a str,
    /// The row that it found.
    pub route: Option<&'static Route>,
    /// What its head asked for; none where there was no head to be read.
    pub method: Option<&'a Method>,
    /// The caller's id, where a key was shown that is known.
    pub user_id: Option<&'a str>,
    /// Of the answer.
    pub status: StatusCode,
    /// From the end of the head to the answer.
    pub took: Duration,
}

/// Notes an answered request.
pub fn note(server: &ServerState, entry: &AccessLogEntry<'_>) {
    // `HEAD` counts as what it is answered like.
    let (method, route) = entry.route.map_or((NONE, NONE), |row| (row.method.as_str(), row.path));
    server.app.requests.with([method, route, class(entry.status)]).observe_duration(entry.took);
    tracing::debug!(
        request_id = entry.id,
        method = entry.method.map(known),
        route,
        status = entry.status.as_u16(),
        user_id = entry.user_id,
        duration_ms = milliseconds(entry.took),
        "a request was answered"
    );
}

/// A method by its name, unless a caller made it up.
fn known(method: &Method) -> &str {
    let is_known = [
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
    if is_known { method.as_str() } else { "unknown" }
}

fn class(status: StatusCode) -> &'static str {
    match status.as_u16() {
        200..=299 => "2xx",
        300..=399 => "3xx",
        400..=499 => "4xx",
        500..=599 => "5xx",
        _ => "1xx",
    }
}
