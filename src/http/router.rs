//! Matching of requests to routes, and the `routes!` macro that writes a routing table.

use std::pin::Pin;

use hyper::Method;
use percent_encoding::percent_decode_str;

use crate::error::Result;
use crate::http::request::{PathParams, Request};
use crate::http::response::Response;

/// Bytes of a request body unless the route sets its own limit (contract §11.1).
pub const BODY_LIMIT: usize = 2_097_152;

/// Bytes of a posted HTML form: its fields (code, token, email address) need less than 1 KB, and anybody may post one.
pub const FORM_LIMIT: usize = 16_384;

pub type HandlerFuture = Pin<Box<dyn Future<Output = Result<Response>> + Send>>;

/// One row of a routing table.
#[derive(Debug)]
pub struct Route {
    /// A `GET` route handles `HEAD` too.
    pub method: Method,
    /// Literal segments and `{parameters}`.
    pub path: &'static str,
    pub access: Access,
    pub body_limit: usize,
    pub handler: fn(Request) -> HandlerFuture,
}

/// The access rule of a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// No API key needed; requests count against the rate limit.
    Public,
    /// No API key needed; requests do not count, and a key is not read.
    Unmetered,
    /// A valid API key is required.
    ApiKey,
    /// An HTML page: public, and its responses carry the headers of a page (contract §9).
    Page,
}

/// Writes a routing table, one route per line: method, path, access rule, handler, and an optional body limit.
///
/// ```
/// use cued::error::Result;
/// use cued::http::request::Request;
/// use cued::http::response::Response;
/// use cued::http::router::{Access, BODY_LIMIT, Route};
/// use serde_json::json;
///
/// async fn show(request: Request) -> Result<Response> {
///     Ok(Response::ok(&json!({"id": request.param("item_id")})))
/// }
///
/// async fn upload(request: Request) -> Result<Response> {
///     Ok(Response::created(&json!({"bytes": request.body().len()})))
/// }
///
/// static TABLE: &[Route] = cued::routes! {
///     GET  "/v1/items/{item_id}" ApiKey show,
///     POST "/v1/items"           Public upload; 16_384,
/// };
///
/// assert_eq!(TABLE[0].access, Access::ApiKey);
/// assert_eq!(TABLE[0].body_limit, BODY_LIMIT);
/// assert_eq!(TABLE[1].body_limit, 16_384);
/// ```
#[macro_export]
macro_rules! routes {
    ($($method:ident $path:literal $access:ident $handler:path $(; $limit:expr)?,)*) => {
        &[$($crate::http::router::Route {
            method: ::hyper::Method::$method,
            path: $path,
            access: $crate::http::router::Access::$access,
            body_limit: $crate::routes!(@limit $($limit)?),
            handler: |request| ::std::boxed::Box::pin($handler(request)),
        },)*]
    };
    (@limit) => { $crate::http::router::BODY_LIMIT };
    (@limit $limit:expr) => { $limit };
}

#[derive(Debug)]
pub enum RouteMatch {
    /// A route, with the decoded values of its parameters.
    Found(&'static Route, PathParams),
    /// The path exists, but only for these methods (in the format of the `Allow` header).
    WrongMethod(String),
    NoPath,
}

/// Finds the route of a request. If several routes match, the one with the fewest parameters wins.
///
/// Segments are compared byte by byte: a trailing slash or a percent-encoded letter makes a different path.
pub fn match_route(table: &'static [Route], method: &Method, path: &str) -> RouteMatch {
    let method = if method == Method::HEAD { &Method::GET } else { method };
    let slashes = count_slashes(path);
    let candidates: Vec<(&Route, PathParams)> = table
        .iter()
        .filter(|route| may_match(route.path, path, slashes))
        .filter_map(|route| Some((route, match_path(route.path, path)?)))
        .collect();
    // `/v1/executions/claim` never means the execution with the id "claim", whatever the method.
    let fewest = candidates.iter().map(|(_, params)| params.len()).min();
    let (mut allowed, mut found) = (Vec::new(), None);
    for (route, params) in candidates.into_iter().filter(|(_, params)| Some(params.len()) == fewest) {
        allowed.push(&route.method);
        if route.method == method {
            found = Some(RouteMatch::Found(route, params));
        }
    }
    found.unwrap_or_else(|| {
        if allowed.is_empty() { RouteMatch::NoPath } else { RouteMatch::WrongMethod(allow(&allowed)) }
    })
}

/// Compares the segment count and the literal text before the first parameter: a cheap test that excludes most routes
/// before any segment is decoded.
fn may_match(pattern: &str, path: &str, slashes: usize) -> bool {
    let mut bytes = path.bytes();
    pattern.bytes().take_while(|byte| *byte != b'{').all(|byte| bytes.next() == Some(byte))
        && slashes == count_slashes(pattern)
}

fn count_slashes(path: &str) -> usize {
    path.bytes().filter(|byte| *byte == b'/').count()
}

fn match_path(pattern: &'static str, path: &str) -> Option<PathParams> {
    let mut params = PathParams::new();
    let mut segments = path.split('/');
    for expected in pattern.split('/') {
        let segment = segments.next()?;
        match expected.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')) {
            Some(_) if segment.is_empty() => return None,
            // No id in the database is invalid UTF-8, so such a segment matches nothing.
            Some(name) => params.push((name, percent_decode_str(segment).decode_utf8().ok()?.into_owned())),
            None if segment == expected => {}
            None => return None,
        }
    }
    segments.next().is_none().then_some(params)
}

fn allow(methods: &[&Method]) -> String {
    let mut names: Vec<&str> = Vec::new();
    for method in methods {
        if !names.contains(&method.as_str()) {
            names.push(method.as_str());
            if **method == Method::GET {
                names.push("HEAD");
            }
        }
    }
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn ok(_: Request) -> Result<Response> {
        Ok(Response::no_content())
    }

    static TABLE: &[Route] = routes! {
        GET    "/v1/cues"                       ApiKey    ok,
        POST   "/v1/cues"                       ApiKey    ok,
        GET    "/v1/cues/{cue_id}"              ApiKey    ok,
        DELETE "/v1/cues/{cue_id}"              ApiKey    ok,
        GET    "/v1/executions/{execution_id}"  ApiKey    ok,
        GET    "/v1/executions/claimable"       ApiKey    ok,
        POST   "/v1/echo/{token}"               Public    ok; 1_000_000,
        GET    "/v1/a/{b}/c/{d}"                Page      ok,
    };

    fn find(method: Method, path: &str) -> String {
        match match_route(TABLE, &method, path) {
            RouteMatch::Found(route, params) => {
                let params: Vec<String> =
                    params.iter().map(|(name, value)| format!("{name}={value}")).collect();
                format!("{} {}", route.path, params.join("&"))
            }
            RouteMatch::WrongMethod(allow) => allow,
            RouteMatch::NoPath => "404".to_owned(),
        }
    }

    #[test]
    fn a_path_matches_its_route_and_parameters() {
        assert_eq!(find(Method::GET, "/v1/cues"), "/v1/cues ");
        assert_eq!(find(Method::HEAD, "/v1/cues"), "/v1/cues ");
        assert_eq!(find(Method::GET, "/v1/cues/cue_1"), "/v1/cues/{cue_id} cue_id=cue_1");
        assert_eq!(find(Method::GET, "/v1/a/x%2Fy%20z/c/%C3%A4"), "/v1/a/{b}/c/{d} b=x/y z&d=ä");
    }

    #[test]
    fn a_literal_segment_wins_over_a_parameter() {
        assert_eq!(find(Method::GET, "/v1/executions/claimable"), "/v1/executions/claimable ");
    }

    #[test]
    fn unknown_paths_are_not_found() {
        for path in [
            "",
            "/",
            "*",
            "/v1",
            "/v1/cues/",
            "/v1/cues//",
            "/v1/Cues",
            "/v1/%63ues",
            "//v1/cues",
            "/v1/cues/a/b",
        ] {
            assert_eq!(find(Method::GET, path), "404", "{path}");
        }
        assert_eq!(find(Method::GET, "/v1/cues/%FF"), "404");
    }

    #[test]
    fn a_wrong_method_lists_the_allowed_ones() {
        assert_eq!(find(Method::PUT, "/v1/cues"), "GET, HEAD, POST");
        assert_eq!(find(Method::OPTIONS, "/v1/cues/x"), "GET, HEAD, DELETE");
        assert_eq!(find(Method::POST, "/v1/executions/claimable"), "GET, HEAD");
        assert_eq!(find(Method::HEAD, "/v1/echo/x"), "POST");
    }

    #[test]
    fn a_route_has_its_own_body_limit_or_the_default() {
        assert_eq!(TABLE.iter().map(|route| route.body_limit).max(), Some(BODY_LIMIT));
        assert_eq!(TABLE.iter().map(|route| route.body_limit).min(), Some(1_000_000));
    }
}
