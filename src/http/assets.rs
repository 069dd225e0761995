//! The texts that the program contains compressed, and the page for browsers that is made of them: `GET /` and its files
//! (contract §9).
//!
//! The path of a file has the build of the page, so that a browser keeps it for ever and asks only for `/` again.

use hyper::body::Bytes;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Method, StatusCode};

use crate::domain::api_error::ErrorCode;
use crate::error::{Error, Result};
use crate::http::message::{HTML, Request, Response};

// `BUILD`, `INDEX` and `FILES`, from `src/build/page.rs`.
include!(concat!(env!("OUT_DIR"), "/page_files.rs"));

/// A file of the page.
#[derive(Debug)]
pub struct PageFile {
    /// Below `/ui/{build}/`.
    pub path: &'static str,
    pub content_type: &'static str,
    pub gzip: &'static [u8],
}

/// The bytes of a gzip file (RFC 1952) before and after the deflated content; the last four are the length of the text.
const GZIP_HEAD: usize = 10;
const GZIP_TAIL: usize = 8;

/// All that the page loads comes from this server, and a text becomes markup only in its template library.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
    connect-src 'self'; manifest-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; \
    require-trusted-types-for 'script'; trusted-types lit-html";

/// The headers of an HTML page with its content security policy. Other files take the rules of the page that loads them.
pub fn as_page(response: Response, policy: &'static str) -> Response {
    let headers = HEADERS.into_iter().chain([(header::CONTENT_SECURITY_POLICY, policy)]);
    headers.fold(response, |response, (name, value)| {
        response.with(name, HeaderValue::from_static(value))
    })
}

const HEADERS: [(HeaderName, &str); 5] = [
    // Asks each time, so that a new build is seen at once.
    (header::CACHE_CONTROL, "no-cache"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("permissions-policy"), "camera=(), microphone=(), geolocation=()"),
];

pub async fn index(request: Request) -> Result<Response> {
    let text = CompressedText { content_type: HTML, gzip: INDEX, version: BUILD };
    Ok(as_page(text.respond(&request.headers)?, CONTENT_SECURITY_POLICY))
}

/// How the addresses of the screens begin: `ROUTES` in `page/app/router.js`.
pub const SCREENS: [&str; 9] =
    ["cues", "runs", "day", "workers", "alerts", "notifications", "account", "settings", "admin"];

/// Leads a browser from the path of a screen, as a person types it, to the page, which has its addresses in the hash.
/// `None` for all other requests.
pub fn to_screen(head: &Parts) -> Option<Response> {
    let accepted = head.headers.get(header::ACCEPT)?.to_str().ok()?;
    let path = head.uri.path_and_query()?.as_str().strip_prefix('/')?;
    let folders = head.uri.path().matches('/').count() - 1;
    let is_screen = SCREENS.contains(&path.split(['/', '?']).next()?);
    let is_read = matches!(head.method, Method::GET | Method::HEAD);
    if !(is_screen && is_read && accepted.contains("text/html")) {
        return None;
    }
    // Relative, because a proxy may serve the page below a path.
    let address = HeaderValue::from_str(&format!("./{}#/{path}", "../".repeat(folders))).ok()?;
    let response = Response { status: StatusCode::SEE_OTHER, ..Response::no_content() };
    Some(response.with(header::LOCATION, address))
}

/// `GET /ui/{build}/{file}`, and the files in folders. Another build has other files, which would not fit together.
pub async fn file(request: Request) -> Result<Response> {
    let parts = path_parts(&request, "file");
    // An encoded slash would be a second address of the same file.
    let is_plain = parts.iter().all(|part| !part.contains('/'));
    let path = parts.join("/");
    let found =
        FILES.iter().find(|file| is_plain && request.param("build") == BUILD && file.path == path);
    let file = found.ok_or_else(not_found)?;
    file_of_build(&request, file.content_type, file.gzip, BUILD)
}

/// The folders of a path and its last part, whose name in the route is `last`.
pub fn path_parts<'a>(request: &'a Request, last: &str) -> Vec<&'a str> {
    let parts = ["folder", "subfolder", last].map(|name| request.param(name));
    parts.into_iter().filter(|part| !part.is_empty()).collect()
}

/// Responds with a file that never changes: its path names the build.
pub fn file_of_build(
    request: &Request,
    content_type: &'static str,
    gzip: &'static [u8],
    version: &str,
) -> Result<Response> {
    let response = CompressedText { content_type, gzip, version }.respond(&request.headers)?;
    let for_ever = HeaderValue::from_static("public, max-age=31536000, immutable");
    let same_origin = HeaderValue::from_static("same-origin");
    Ok(response
        .with(header::CACHE_CONTROL, for_ever)
        .with(HeaderName::from_static("cross-origin-resource-policy"), same_origin))
}

fn not_found() -> Error {
    Error::refused(
        ErrorCode::NotFound,
        "This build of the page has no file at this path; load the page again, the server may have a newer one",
    )
}

/// A text of the program.
#[derive(Debug, Clone)]
pub struct CompressedText<'a> {
    pub content_type: &'static str,
    pub gzip: &'static [u8],
    /// Without quotes: another text at the same path has another version.
    pub version: &'a str,
}

impl CompressedText<'_> {
    /// Responds with the text in an encoding that the client accepts, or with 304 if the client has this version.
    /// Errors: [`Error::Fault`] if it is damaged.
    pub fn respond(&self, headers: &HeaderMap) -> Result<Response> {
        self.respond_with(headers, || inflate(self.gzip))
    }

    /// As [`Self::respond`]; clients that do not accept gzip get the text that `inflated` returns.
    pub fn respond_with(
        &self,
        headers: &HeaderMap,
        inflated: impl FnOnce() -> Option<Bytes>,
    ) -> Result<Response> {
        // The strong tag belongs to the bytes of one encoding (RFC 9110, 8.8.3.3); the weak one is that of the other one.
        let is_gzip = accepts_gzip(headers);
        let strong = format!("\"{}\"", self.version);
        let etag = if is_gzip { format!("W/{strong}") } else { strong.clone() };
        let etag = HeaderValue::from_str(&etag)
            .map_err(|error| Error::fault_from("the version of a text is not a header", error))?;
        let known = headers.get_all(header::IF_NONE_MATCH).iter();
        let is_known =
            known.filter_map(|value| value.to_str().ok()).any(|value| is_match(value, &strong));
        let response = if is_known {
            Response { status: StatusCode::NOT_MODIFIED, ..Response::no_content() }
        } else if is_gzip {
            Response::text(StatusCode::OK, self.content_type, self.gzip)
                .with(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"))
        } else {
            let damaged = || Error::fault("a text of the program cannot be decompressed");
            Response::text(StatusCode::OK, self.content_type, inflated().ok_or_else(damaged)?)
        };
        let vary = HeaderValue::from_static("accept-encoding");
        Ok(response.with(header::ETAG, etag).with(header::VARY, vary))
    }
}

/// Decompresses a gzip file; `None` if it is damaged.
pub fn inflate(gzip: &[u8]) -> Option<Bytes> {
    let content = gzip.get(GZIP_HEAD..gzip.len().checked_sub(GZIP_TAIL)?)?;
    let length = usize::try_from(u32::from_le_bytes(*gzip.last_chunk()?)).ok()?;
    miniz_oxide::inflate::decompress_to_vec_with_limit(content, length).ok().map(Bytes::from)
}

/// Returns whether an `If-None-Match` contains the tag, also in the weak form that compressing proxies make of it.
fn is_match(value: &str, etag: &str) -> bool {
    value
        .split(',')
        .map(str::trim)
        .any(|tag| tag == "*" || tag.strip_prefix("W/").unwrap_or(tag) == etag)
}

/// Returns whether the client names gzip and does not refuse it with the weight 0.
fn accepts_gzip(headers: &HeaderMap) -> bool {
    let values =
        headers.get_all(header::ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|coding| {
        let (name, weight) = coding.split_once(';').unwrap_or((coding, ""));
        let weight = weight.trim().trim_start_matches(['q', 'Q', '=', ' ']);
        name.trim().eq_ignore_ascii_case("gzip")
            && !weight.parse().is_ok_and(|weight: f32| weight == 0.0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_file_is_no_text() {
        for file in [&[][..], &[0; 17], &[0xff; 40]] {
            assert_eq!(inflate(file), None, "{file:?}");
        }
    }
}
