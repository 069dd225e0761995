//! The documentation of this version (`/docs`, contract §9), which the build script makes of `src/docs`: static pages,
//! their style sheet and script, and the texts that `cued docs` prints.

use hyper::StatusCode;
use hyper::header::{self, HeaderMap, HeaderValue};

use crate::domain::api_error::ErrorCode;
use crate::error::{Error, Result};
use crate::http::assets::{CompressedText, as_page, file_of_build, inflate, path_parts};
use crate::http::message::{HTML, Request, Response};

// `BUILD`, `PAGES`, `NOT_FOUND` and `FILES`, from `src/build/docs.rs`.
include!(concat!(env!("OUT_DIR"), "/docs_files.rs"));

#[derive(Debug)]
pub struct DocsPage {
    /// Below `/docs/`; empty for the index.
    pub path: &'static str,
    pub title: &'static str,
    /// The heading of the index that lists it; empty for the index, the search and pages that are not found.
    pub kind: &'static str,
    /// What it is about.
    pub line: &'static str,
    /// The HTML as a gzip file.
    pub gzip: &'static [u8],
    /// The Markdown, likewise.
    pub source: &'static [u8],
    /// The title and the headings below it.
    pub sections: &'static [DocsSection],
}

/// A heading of a page.
#[derive(Debug)]
pub struct DocsSection {
    pub level: u8,
    pub anchor: &'static str,
    pub text: &'static str,
    /// Its place in the Markdown, in bytes.
    pub start: usize,
}

/// As that of the page, without requests of scripts.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
    form-action 'self'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'";

impl DocsPage {
    pub fn named(path: &str) -> Option<&'static Self> {
        PAGES.iter().find(|page| page.path == path)
    }

    /// The text as it is written; `None` if it is damaged.
    pub fn markdown(&self) -> Option<String> {
        String::from_utf8(inflate(self.source)?.to_vec()).ok()
    }

    fn respond(&self, headers: &HeaderMap) -> Result<Response> {
        let text = CompressedText { content_type: HTML, gzip: self.gzip, version: BUILD };
        Ok(as_page(text.respond(headers)?, CONTENT_SECURITY_POLICY))
    }
}

/// `GET /docs/`, where the links of a page would lead elsewhere.
pub async fn home(_: Request) -> Result<Response> {
    let response = Response { status: StatusCode::PERMANENT_REDIRECT, ..Response::no_content() };
    Ok(response.with(header::LOCATION, HeaderValue::from_static("../docs")))
}

/// `GET /docs`, `/docs/{page}`, those in folders, and `/docs/{build}/{file}`.
pub async fn show(request: Request) -> Result<Response> {
    let parts = path_parts(&request, "page");
    if let [BUILD, name] = parts[..]
        && let Some((_, gzip)) = FILES.iter().find(|(file, _)| *file == name)
    {
        let is_style = name.ends_with(".css");
        let content_type =
            if is_style { "text/css; charset=utf-8" } else { "text/javascript; charset=utf-8" };
        return file_of_build(&request, content_type, gzip, BUILD);
    }
    // An encoded slash would be a second URL of the same page.
    let is_plain = parts.iter().all(|part| !part.contains('/'));
    let path = parts.join("/");
    match DocsPage::named(&path).filter(|_| is_plain) {
        Some(page) => page.respond(&request.headers),
        None => not_found(&request, parts.len()),
    }
}

/// The list of the pages for a browser, and the error of the API for a client that asks for JSON only.
fn not_found(request: &Request, depth: usize) -> Result<Response> {
    let accepted = request.header("accept").unwrap_or_default();
    let wants_json = accepted.contains("json") && !accepted.contains("text/html");
    let Some(page) = NOT_FOUND.get(depth).filter(|_| !wants_json) else {
        let message = "The documentation has no such page; see /docs for the list";
        return Err(Error::refused(ErrorCode::NotFound, message));
    };
    let mut headers = request.headers.clone();
    headers.remove(header::IF_NONE_MATCH);
    let mut response = page.respond(&headers)?;
    response.headers.remove(header::ETAG);
    Ok(Response { status: StatusCode::NOT_FOUND, ..response })
}
