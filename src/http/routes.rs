//! THE table: every path of the API, its method, its door and its handler; and how a request finds its row.

use std::pin::Pin;

use hyper::Method;

use crate::domain::webhook::echo::MAX_PAYLOAD;
use crate::error::Result;
use crate::http::api::account::{auth, device_login};
use crate::http::api::executions::{claims, verification};
use crate::http::api::operations::{health, info, metrics, test_clock};
use crate::http::api::{alerts, billing, cues, echo, executions, usage, workers};
use crate::http::input::query::percent_decoded;
use crate::http::pages::manual_billing;
use crate::http::request::Request;
use crate::http::response::Response;

/// Most bytes of a request's body unless the row says otherwise (contract §2).
pub const BODY_LIMIT: usize = 2_097_152;

/// Most bytes of what a page's form posts.
const FORM_LIMIT: usize = 16_384;

/// A handler's answer under way.
pub type HandlerFuture = Pin<Box<dyn Future<Output = Result<Response>> + Send>>;

/// One row of the table.
#[derive(Debug)]
pub struct Route {
    /// What is asked for; `GET` answers `HEAD` as well.
    pub method: Method,
    /// Literal segments and `{parameters}`.
    pub path: &'static str,
    /// Who may come in.
    pub access: Access,
    /// Most bytes of a body.
    pub body_limit: usize,
    /// What is done.
    pub handler: fn(Request) -> HandlerFuture,
}

/// Who may come in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Everybody.
    Public,
    /// Everybody, as often as they like: a key is not looked at, and the request does not count.
    Unmetered,
    /// Who shows a key that is known.
    ApiKey,
    /// Everybody, with a browser: answers carry the headers of a page (contract §9).
    Page,
}

/// Writes a table of routes, a row a line: `GET "/v1/cues/{cue_id}" ApiKey cues::show,`, or with a body limit of
/// its own `POST "/v1/echo/{token}" Public echo::receive; 1_048_576,`.
#[macro_export]
macro_rules! routes {
    ($($method:ident $path:literal $access:ident $handler:path $(; $limit:expr)?,)*) => {
        &[$($crate::http::routes::Route {
            method: ::hyper::Method::$method,
            path: $path,
            access: $crate::http::routes::Access::$access,
            body_limit: $crate::routes!(@limit $($limit)?),
            handler: |request| ::std::boxed::Box::pin($handler(request)),
        },)*]
    };
    (@limit) => { $crate::http::routes::BODY_LIMIT };
    (@limit $limit:expr) => { $limit };
}

/// The API.
#[rustfmt::skip]
pub static ROUTES: &[Route] = routes! {
    GET    "/health"                                  Unmetered health::health,
    GET    "/status"                                  Unmetered health::status,
    GET    "/v1/info"                                 Public    info::info,

    POST   "/v1/auth/register"                        Public    auth::register,
    GET    "/v1/auth/me"                              ApiKey    auth::me,
    PATCH  "/v1/auth/me"                              ApiKey    auth::update_me,
    POST   "/v1/auth/key/regenerate"                  ApiKey    auth::regenerate_key,
    GET    "/v1/auth/keys"                            ApiKey    auth::list_keys,
    POST   "/v1/auth/keys"                            ApiKey    auth::make_key,
    DELETE "/v1/auth/keys/{key_id}"                   ApiKey    auth::revoke_key,
    GET    "/v1/auth/webhook-secret"                  ApiKey    auth::webhook_secret,
    POST   "/v1/auth/webhook-secret/regenerate"       ApiKey    auth::rotate_secret,
    GET    "/v1/auth/alert-webhook-secret"            ApiKey    auth::alert_secret,
    POST   "/v1/auth/alert-webhook-secret/regenerate" ApiKey    auth::rotate_alert_secret,

    POST   "/v1/auth/device-code"                     Public    device_login::start,
    POST   "/v1/auth/device-code/submit-email"        Public    device_login::submit_email,
    POST   "/v1/auth/device-code/poll"                Public    device_login::poll,
    GET    "/auth/device"                             Page      device_login::device_page,
    POST   "/auth/device"                             Page      device_login::device_form; 16_384,
    GET    "/v1/auth/verify"                          Page      device_login::verify_page,
    POST   "/v1/auth/verify"                          Page      device_login::confirm; 16_384,

    POST   "/v1/cues"                                 ApiKey    cues::create,
    GET    "/v1/cues"                                 ApiKey    cues::list,
    GET    "/v1/cues/{cue_id}"                        ApiKey    cues::show,
    PATCH  "/v1/cues/{cue_id}"                        ApiKey    cues::update,
    DELETE "/v1/cues/{cue_id}"                        ApiKey    cues::delete,
    POST   "/v1/cues/{cue_id}/fire"                   ApiKey    cues::fire,
    GET    "/v1/cues/{cue_id}/upcoming"               ApiKey    cues::upcoming,
    GET    "/v1/cues/{cue_id}/missed"                 ApiKey    cues::missed,
    POST   "/v1/schedule/preview"                     ApiKey    cues::preview,

    GET    "/v1/executions"                           ApiKey    executions::list,
    GET    "/v1/executions/claimable"                 ApiKey    claims::list,
    POST   "/v1/executions/claim"                     ApiKey    claims::claim_next,
    GET    "/v1/executions/{execution_id}"            ApiKey    executions::show,
    POST   "/v1/executions/{execution_id}/replay"     ApiKey    executions::replay,
    POST   "/v1/executions/{execution_id}/claim"      ApiKey    claims::claim,
    POST   "/v1/executions/{execution_id}/outcome"    ApiKey    executions::report,
    PATCH  "/v1/executions/{execution_id}/evidence"   ApiKey    verification::append_evidence,
    POST   "/v1/executions/{execution_id}/verify"     ApiKey    verification::verify,
    POST   "/v1/executions/{execution_id}/verification-pending"  ApiKey    verification::make_pending,
    POST   "/v1/executions/{execution_id}/heartbeat"  ApiKey    executions::extend,
    POST   "/v1/worker/heartbeat"                     ApiKey    workers::beat,
    GET    "/v1/workers"                              ApiKey    workers::list,
    DELETE "/v1/workers/{worker_id}"                  ApiKey    workers::remove,

    GET    "/v1/alerts"                               ApiKey    alerts::list,

    GET    "/v1/usage"                                ApiKey    usage::usage,

    POST   "/v1/echo/{token}"                         Public    echo::receive; MAX_PAYLOAD,
    GET    "/v1/echo/{token}"                         ApiKey    echo::show,

    POST   "/v1/billing/checkout"                     ApiKey    billing::checkout,
    POST   "/v1/billing/portal"                       ApiKey    billing::portal,
    POST   "/v1/billing/webhook"                      Public    billing::webhook,
    GET    "/billing/checkout"                        Page      manual_billing::checkout,
    POST   "/billing/checkout"                        Page      manual_billing::confirm; FORM_LIMIT,
    GET    "/billing/portal"                          Page      manual_billing::portal,
    POST   "/billing/portal"                          Page      manual_billing::cancel; FORM_LIMIT,
    GET    "/billing/thanks"                          Page      manual_billing::thanks,
    GET    "/billing/closed"                          Page      manual_billing::closed,

    GET    "/v1/test/clock"                           Unmetered test_clock::show,
    POST   "/v1/test/clock"                           Unmetered test_clock::advance,
};

/// What the listener for metrics serves, and nobody else: to the API `/metrics` is an unknown path.
#[rustfmt::skip]
pub static METRICS: &[Route] = routes! {
    GET    "/metrics"                                 Unmetered metrics::metrics,
};

/// What a method and a path lead to.
#[derive(Debug)]
pub enum RouteMatch {
    /// A row, with the decoded values of its parameters.
    Found(&'static Route, PathParams),
    /// The path is known, for these methods (as `Allow` writes them).
    WrongMethod(String),
    /// No row has this path.
    NoPath,
}

/// Names and decoded values of a path's parameters.
pub type PathParams = Vec<(&'static str, String)>;

/// Finds the row of a request; where several fit, the one with the fewest parameters.
///
/// Segments are compared as they are written: a trailing slash or an escaped letter is another path.
#[must_use]
pub fn match_route(table: &'static [Route], method: &Method, path: &str) -> RouteMatch {
    let wanted = if method == Method::HEAD { &Method::GET } else { method };
    let slashes = count_slashes(path);
    let fitting: Vec<(&Route, PathParams)> = table
        .iter()
        .filter(|route| may_match(route.path, path, slashes))
        .filter_map(|route| Some((route, match_path(route.path, path)?)))
        .collect();
    // `/v1/executions/claim` is not the execution "claim", whatever the method.
    let fewest = fitting.iter().map(|(_, params)| params.len()).min();
    let (mut allowed, mut found) = (Vec::new(), None);
    for (route, params) in fitting.into_iter().filter(|(_, params)| Some(params.len()) == fewest) {
        allowed.push(&route.method);
        if route.method == wanted {
            found = Some(RouteMatch::Found(route, params));
        }
    }
    found.unwrap_or_else(|| {
        if allowed.is_empty() { RouteMatch::NoPath } else { RouteMatch::WrongMethod(allow(&allowed)) }
    })
}

/// Whether `path` begins as `pattern` does up to its first parameter, and has as many segments: what tells most rows of
/// the table apart at the price of a few bytes.
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
            // What is no UTF-8 names nothing that we could hold.
            Some(name) => params.push((name, String::from_utf8(percent_decoded(segment)).ok()?)),
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
