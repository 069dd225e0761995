//! The headers of every response (contract §2.2).

use hyper::body::Bytes;
use hyper::header::{self, HeaderMap, HeaderValue};
use jiff::fmt::rfc2822::DateTimePrinter;

use crate::domain::account::plan::limit_or_max;
use crate::http::middleware::context::{REQUEST_ID, RequestContext};
use crate::http::pages;
use crate::http::response::{BodyStream, Response};

/// Adds the common headers. A header that the response has already wins. Returns the stream apart from the response.
pub fn with_common_headers(
    response: Response,
    context: &RequestContext,
) -> (hyper::Response<Bytes>, Option<BodyStream>) {
    let mut headers = HeaderMap::with_capacity(16);
    headers.insert("x-ratelimit-limit", limit_or_max(context.rate_limit.limit).into());
    headers.insert("x-ratelimit-remaining", limit_or_max(context.rate_limit.remaining()).into());
    headers.insert("x-ratelimit-reset", context.rate_limit.reset.into());
    if context.near_quota {
        headers.insert("x-cueapi-usage-warning", HeaderValue::from_static("approaching_limit"));
    }
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if let Ok(id) = HeaderValue::from_str(&context.id) {
        headers.insert(REQUEST_ID, id);
    }
    // Replaces the `Date` of hyper, which reads the system clock: a test clock must govern this header too.
    if let Ok(date) = DateTimePrinter::new().timestamp_to_rfc9110_string(&context.now)
        && let Ok(date) = HeaderValue::try_from(date)
    {
        headers.insert(header::DATE, date);
    }
    if context.is_page() {
        headers.insert(header::CONTENT_SECURITY_POLICY, pages::CONTENT_SECURITY_POLICY.clone());
        // With `no-referrer` browsers send `Origin: null` with the forms of these pages, as sandboxed frames do.
        headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("same-origin"));
        headers.insert(header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
    }
    // A 304 may only give the length of the response that it stands for.
    if response.status != 204 && response.status != 304 && response.stream.is_none() {
        headers.insert(header::CONTENT_LENGTH, response.body.len().into());
    }
    if let Some(cookie) = &context.set_cookie {
        headers.insert(header::SET_COOKIE, cookie.clone());
    }
    headers.extend(response.headers);
    let mut complete = hyper::Response::new(response.body);
    *complete.status_mut() = response.status;
    *complete.headers_mut() = headers;
    (complete, response.stream)
}
