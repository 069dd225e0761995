//! Matching of requests to routes, and the `routes!` macro that writes a routing table.

use std::pin::Pin;

use hyper::Method;
use percent_encoding::percent_decode_str;

use crate::error::Result;
use crate::http::message::{PathParams, Request, Response};

/// Bytes of a request body with an API key, unless the route sets its own limit (contract §11.1).
pub const BODY_LIMIT: usize = 2_097_152;

/// Bytes of a request body without a key, unless the route sets its own limit. Registrations and device logins need
/// less than 1 KB; a larger body would cost memory and time before anybody is known.
pub const KEYLESS_LIMIT: usize = 65_536;

/// Bytes of the body of `POST /v1/test/clock`: two fields of 64 characters.
const TEST_CLOCK_LIMIT: usize = 1_024;

/// Bytes of the body of a device's poll, which is read before it counts in a rate window: a code has 128 characters.
const DEVICE_POLL_LIMIT: usize = 4_096;

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
    /// Bytes of a body; 0 if the route takes none.
    pub body_limit: usize,
    pub handler: fn(Request) -> HandlerFuture,
}

/// The access rule of a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// No API key needed; requests count against the rate limit.
    Public,
    /// No API key needed; requests do not count, and a key is not read. Takes no body.
    Unmetered,
    /// As `Unmetered`, but with a small body, and the route exists only with a test clock.
    TestClock,
    /// As `Unmetered`: a file of the page. The route exists unless the page is switched off.
    Asset,
    /// No API key needed; a request does not count if its handler says so ([`Request::exempt_from_rate_limit`]).
    DevicePoll,
    /// A valid API key or session is required.
    ApiKey,
    /// As `ApiKey`, of an operator. For everybody else the route does not exist.
    Operator,
    /// An HTML page: public, and its responses carry the headers of a page (contract §9).
    Page,
}

impl Access {
    /// The body limit of a route that sets none and is not `GET`.
    pub const fn body_limit(self) -> usize {
        match self {
            Self::ApiKey => BODY_LIMIT,
            // A few short fields.
            Self::Operator => KEYLESS_LIMIT,
            Self::Public | Self::Page => KEYLESS_LIMIT,
            Self::DevicePoll => DEVICE_POLL_LIMIT,
            Self::TestClock => TEST_CLOCK_LIMIT,
            Self::Unmetered | Self::Asset => 0,
        }
    }

    /// True if only a user may call.
    pub fn needs_caller(self) -> bool {
        matches!(self, Self::ApiKey | Self::Operator)
    }

    /// True if requests never count in a rate window.
    pub fn is_unmetered(self) -> bool {
        matches!(self, Self::Unmetered | Self::TestClock | Self::Asset)
    }
}

/// Writes a routing table, one route per line: method, path, access rule, handler, and an optional body limit. Without
/// one, a `GET` route takes no body, and the access rule limits that of other methods.
#[macro_export]
macro_rules! routes {
    ($($method:ident $path:literal $access:ident $handler:path $(; $limit:expr)?,)*) => {
        &[$($crate::http::router::Route {
            method: ::hyper::Method::$method,
            path: $path,
            access: $crate::http::router::Access::$access,
            body_limit: $crate::routes!(@limit $method $access $($limit)?),
            handler: |request| ::std::boxed::Box::pin($handler(request)),
        },)*]
    };
    (@limit $method:ident $access:ident $limit:expr) => { $limit };
    (@limit GET $access:ident) => { 0 };
    (@limit $method:ident $access:ident) => { $crate::http::router::Access::$access.body_limit() };
}

#[derive(Debug)]
pub enum RouteMatch {
    /// A route, with the decoded values of its parameters.
    Found(&'static Route, PathParams),
    /// The path exists, but only for these methods (in the format of the `Allow` header).
    WrongMethod(String),
    NoPath,
}

impl RouteMatch {
    pub fn route(&self) -> Option<&'static Route> {
        if let Self::Found(route, _) = self { Some(route) } else { None }
    }
}

/// Finds the route of a request. If several routes match, the one with the fewest parameters wins.
///
/// Segments are compared byte by byte: a trailing slash or a percent-encoded letter makes a different path.
/// Routes whose access rule `exists` denies do not exist.
pub fn match_route(
    table: &'static [Route],
    method: &Method,
    path: &str,
    exists: impl Fn(Access) -> bool,
) -> RouteMatch {
    let method = if method == Method::HEAD { &Method::GET } else { method };
    let slashes = count_slashes(path);
    let candidates: Vec<(&Route, PathParams)> = table
        .iter()
        .filter(|route| may_match(route.path, path, slashes))
        .filter(|route| exists(route.access))
        .filter_map(|route| Some((route, match_path(route.path, path)?)))
        .collect();
    // `/v1/executions/claim` never means the execution with the id "claim", whatever the method.
    let fewest = candidates.iter().map(|(_, params)| params.len()).min();
    let (mut allowed, mut found) = (Vec::new(), None);
    for (route, params) in candidates.into_iter().filter(|(_, params)| Some(params.len()) == fewest)
    {
        allowed.push(&route.method);
        if route.method == method {
            found = Some(RouteMatch::Found(route, params));
        }
    }
    found.unwrap_or_else(|| {
        if allowed.is_empty() {
            RouteMatch::NoPath
        } else {
            RouteMatch::WrongMethod(allow(&allowed))
        }
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
            Some(name) => params.push((name, parameter(segment))),
            None if segment == expected => {}
            None => return None,
        }
    }
    segments.next().is_none().then_some(params)
}

/// Invalid UTF-8 gets a NUL, which no id contains, so that it names nothing.
fn parameter(segment: &str) -> String {
    match percent_decode_str(segment).decode_utf8() {
        Ok(text) => text.into_owned(),
        Err(_) => format!("{}\0", percent_decode_str(segment).decode_utf8_lossy()),
    }
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
        POST   "/v1/test/clock"                 TestClock ok,
        GET    "/ui/{a}/{b}"                    Asset     ok,
        GET    "/ui/{a}/{b}/{c}"                Asset     ok,
    };

    fn find(method: Method, path: &str) -> String {
        match match_route(TABLE, &method, path, |access| access != Access::TestClock) {
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
        assert_eq!(find(Method::HEAD, "/v1/cues"), "/v1/cues ");
        for (path, expected) in [
            ("/v1/cues", "/v1/cues "),
            ("/v1/cues/cue_1", "/v1/cues/{cue_id} cue_id=cue_1"),
            ("/v1/executions/claimable", "/v1/executions/claimable "),
            ("/v1/a/x%2Fy%20z/c/%C3%A4", "/v1/a/{b}/c/{d} b=x/y z&d=ä"),
            ("/v1/cues/a%FF", "/v1/cues/{cue_id} cue_id=a\u{fffd}\0"),
            ("/ui/1/x", "/ui/{a}/{b} a=1&b=x"),
            ("/ui/1/x/y", "/ui/{a}/{b}/{c} a=1&b=x&c=y"),
        ] {
            assert_eq!(find(Method::GET, path), expected, "{path}");
        }
    }

    #[test]
    fn unknown_paths_are_not_found() {
        for path in
            " / * /v1 /v1/cues/ /v1/cues// /v1/Cues /v1/%63ues //v1/cues /v1/cues/a/b".split(' ')
        {
            assert_eq!(find(Method::GET, path), "404", "{path}");
        }
    }

    #[test]
    fn a_wrong_method_lists_the_allowed_ones() {
        assert_eq!(find(Method::PUT, "/v1/cues"), "GET, HEAD, POST");
        assert_eq!(find(Method::OPTIONS, "/v1/cues/x"), "GET, HEAD, DELETE");
        assert_eq!(find(Method::POST, "/v1/executions/claimable"), "GET, HEAD");
        assert_eq!(find(Method::HEAD, "/v1/echo/x"), "POST");
    }

    #[test]
    fn a_route_of_the_test_clock_exists_only_with_one() {
        for method in [Method::GET, Method::POST, Method::PUT] {
            assert_eq!(find(method, "/v1/test/clock"), "404");
        }
        let matched = match_route(TABLE, &Method::POST, "/v1/test/clock", |_| true);
        assert!(matches!(matched, RouteMatch::Found(..)), "{matched:?}");
    }

    #[test]
    fn a_route_has_its_own_body_limit_or_that_of_its_access() {
        let limits: Vec<usize> = TABLE.iter().map(|route| route.body_limit).collect();
        assert_eq!(
            limits,
            [0, BODY_LIMIT, 0, BODY_LIMIT, 0, 0, 1_000_000, 0, TEST_CLOCK_LIMIT, 0, 0]
        );
        assert_eq!([Access::Public.body_limit(), Access::Page.body_limit()], [65_536, 65_536]);
        assert_eq!(Access::Unmetered.body_limit(), 0);
    }
}
