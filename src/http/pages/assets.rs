//! The page for browsers: `GET /` and its files, which the program contains compressed (contract §9).
//!
//! The path of a file has the build of the page, so that a browser keeps it for ever and asks only for `/` again.

use hyper::header::{self, HeaderName, HeaderValue};

use crate::domain::api_error::ErrorCode;
use crate::error::{Error, Result};
use crate::http::request::Request;
use crate::http::response::{CompressedText, Response, inflate};

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

/// All that the page loads comes from this server, and a text becomes markup only in its template library.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
    connect-src 'self'; manifest-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; \
    require-trusted-types-for 'script'; trusted-types lit-html";

/// The headers of `/`. The other files take the rules of the page that loads them.
const HEADERS: [(HeaderName, &str); 6] = [
    // Asks each time, so that a new build is seen at once.
    (header::CACHE_CONTROL, "no-cache"),
    (header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("permissions-policy"), "camera=(), microphone=(), geolocation=()"),
];

pub async fn index(request: Request) -> Result<Response> {
    let text = CompressedText { content_type: "text/html; charset=utf-8", gzip: INDEX, version: BUILD };
    let response = text.respond(&request.headers, || inflate(INDEX))?;
    let add = |response: Response, (name, value)| response.with(name, HeaderValue::from_static(value));
    Ok(HEADERS.into_iter().fold(response, add))
}

/// `GET /ui/{build}/{file}`, and the files in folders. Another build has other files, which would not fit together.
pub async fn file(request: Request) -> Result<Response> {
    let parts: Vec<&str> = ["folder", "subfolder", "file"]
        .into_iter()
        .map(|name| request.param(name))
        .filter(|part| !part.is_empty())
        .collect();
    // An encoded slash would be a second address of the same file.
    let is_plain = parts.iter().all(|part| !part.contains('/'));
    let path = parts.join("/");
    let found = FILES.iter().find(|file| is_plain && request.param("build") == BUILD && file.path == path);
    let file = found.ok_or_else(not_found)?;
    let text = CompressedText { content_type: file.content_type, gzip: file.gzip, version: BUILD };
    let response = text.respond(&request.headers, || inflate(file.gzip))?;
    Ok(response
        .with(header::CACHE_CONTROL, HeaderValue::from_static("public, max-age=31536000, immutable"))
        .with(
            HeaderName::from_static("cross-origin-resource-policy"),
            HeaderValue::from_static("same-origin"),
        ))
}

fn not_found() -> Error {
    Error::refused(
        ErrorCode::NotFound,
        "This build of the page has no file at this path; load the page again, the server may have a newer one",
    )
}
