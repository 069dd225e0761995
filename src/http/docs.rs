//! The documentation of this version (`/docs`, contract §9), which the build script makes of `src/docs`: static pages,
//! their style sheet and script, and the texts that `cued docs` prints.

mod crc32;
mod search;

use std::sync::LazyLock;

use hyper::StatusCode;
use hyper::body::Bytes;
use hyper::header::{self, HeaderMap};
use miniz_oxide::inflate::decompress_to_vec;

use crate::domain::api_error::ErrorCode;
use crate::error::{Error, Result};
use crate::http::assets::{CompressedText, as_page, file_of_build, inflate, path_parts};
use crate::http::docs::crc32::crc32;
use crate::http::docs::search::list;
use crate::http::message::{Request, Response};

// `BUILD`, `BEFORE_TITLE`, `NAVIGATION`, `PAGES`, `NOT_FOUND` and `FILES`, from `src/build/docs.rs`.
include!(concat!(env!("OUT_DIR"), "/docs_files.rs"));

/// A page. Its HTML is [`BEFORE_TITLE`], its title, the navigation with its links, and `article`, which is deflated with
/// the navigation before it.
#[derive(Debug)]
pub struct DocsPage {
    /// Below `/docs/`; empty for the index.
    pub path: &'static str,
    pub title: &'static str,
    /// The heading of the index that lists it; empty for the index, the search and pages that are not found.
    pub kind: &'static str,
    /// What it is about.
    pub line: &'static str,
    title_html: &'static str,
    /// The number of `../` to the root of the server.
    depth: usize,
    article: &'static [u8],
    /// CRC-32 of the HTML.
    checksum: u32,
    /// Bytes of the HTML.
    length: u32,
}

const SEARCH: &str = "search";

/// The links of the search, made when it is first shown.
static HEADINGS: LazyLock<String> = LazyLock::new(|| {
    let of_page = |page: &DocsPage| {
        let url = format!("../docs/{}", page.path);
        list(&url, page.title_html, &page.article().unwrap_or_default())
    };
    PAGES.iter().filter(|page| !page.kind.is_empty()).map(of_page).collect()
});

/// The head of a gzip file without a name and a time (RFC 1952).
const GZIP_HEAD: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 2, 255];

/// As that of the page, without requests of scripts.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
    form-action 'self'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'";

impl DocsPage {
    pub fn named(path: &str) -> Option<&'static Self> {
        PAGES.iter().find(|page| page.path == path)
    }

    /// The HTML as a gzip file.
    pub fn gzip(&self) -> Vec<u8> {
        let start = format!("{BEFORE_TITLE}{}{}", self.title_html, self.navigation());
        let (checksum, length, article) = if self.path == SEARCH {
            let article = self.article().unwrap_or_default();
            let html = start.clone() + &article;
            let length = u32::try_from(html.len()).unwrap_or_default();
            (crc32(html.as_bytes()), length, stored(&article, true))
        } else {
            (self.checksum, self.length, self.article.to_vec())
        };
        let (checksum, length) = (checksum.to_le_bytes(), length.to_le_bytes());
        [&GZIP_HEAD[..], &stored(&start, false), &article, &checksum, &length].concat()
    }

    /// The HTML after the navigation; `None` if it is damaged.
    pub fn article(&self) -> Option<String> {
        let navigation = self.navigation();
        let mut text = decompress_to_vec(&[&stored(&navigation, false), self.article].concat()).ok()?;
        let article = String::from_utf8(text.split_off(navigation.len().min(text.len()))).ok()?;
        let is_search = self.path == SEARCH;
        Some(if is_search { article.replacen("</div>", &format!("{}</div>", *HEADINGS), 1) } else { article })
    }

    /// What stands between the title and the text, with the links of a page of this depth.
    fn navigation(&self) -> String {
        let text = decompress_to_vec(NAVIGATION).unwrap_or_default();
        String::from_utf8(text).unwrap_or_default().replace("{{up}}", &"../".repeat(self.depth))
    }

    fn respond(&self, headers: &HeaderMap) -> Result<Response> {
        let gzip = Bytes::from(self.gzip());
        let text =
            CompressedText { content_type: "text/html; charset=utf-8", gzip: gzip.clone(), version: BUILD };
        Ok(as_page(text.respond(headers, || inflate(&gzip))?, CONTENT_SECURITY_POLICY))
    }
}

/// A text as blocks of deflate that are not compressed (RFC 1951, 3.2.4).
fn stored(text: &str, is_end: bool) -> Vec<u8> {
    let chunks = text.as_bytes().chunks(usize::from(u16::MAX));
    let last = chunks.len();
    let blocks = chunks.zip(1..).flat_map(|(chunk, number)| {
        let length = u16::try_from(chunk.len()).unwrap_or_default();
        let is_last = u8::from(is_end && number == last);
        [&[is_last][..], &length.to_le_bytes(), &(!length).to_le_bytes(), chunk].concat()
    });
    blocks.collect()
}

/// Compressed bytes of all that the program contains for the documentation.
pub fn size() -> usize {
    let pages = PAGES.iter().chain(NOT_FOUND).map(|page| page.article.len());
    pages.chain([NAVIGATION.len()]).chain(FILES.iter().map(|(_, gzip)| gzip.len())).sum()
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
    let accepted =
        request.headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
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
