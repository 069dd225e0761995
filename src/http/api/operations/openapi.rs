//! `GET /openapi.json`: the description of the API.

use std::sync::LazyLock;

use hyper::StatusCode;
use hyper::body::Bytes;
use hyper::header::{self, HeaderValue};

use crate::domain::account::credentials::sha256;
use crate::error::{Error, Result};
use crate::http::request::Request;
use crate::http::response::Response;

/// `src/http/openapi.json` without the blanks between its tokens.
static DOCUMENT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/openapi.json"));

/// The version of the document, in quotes, as an `ETag` has it. 64 bits tell the documents of all releases apart.
static ETAG: LazyLock<String> = LazyLock::new(|| {
    let hash: String = sha256(DOCUMENT).iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    format!("\"{hash}\"")
});

/// `GET /openapi.json`. A page of any site may read it: it is the same for everybody.
pub async fn openapi(request: Request) -> Result<Response> {
    let etag = HeaderValue::from_str(&ETAG)
        .map_err(|error| Error::fault_from("the ETag of the API description is not a header", error))?;
    let known = request.headers.get_all(header::IF_NONE_MATCH).iter();
    let is_known = known.filter_map(|value| value.to_str().ok()).any(|value| is_match(value, &ETAG));
    let response = if is_known {
        Response { status: StatusCode::NOT_MODIFIED, ..Response::no_content() }
    } else {
        Response::json(StatusCode::OK, Bytes::from_static(DOCUMENT))
    };
    Ok(response
        .with(header::ETAG, etag)
        .with(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"))
        .with(header::ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*")))
}

/// Returns whether an `If-None-Match` contains the tag, also in the weak form that compressing proxies make of it.
fn is_match(value: &str, etag: &str) -> bool {
    value.split(',').map(str::trim).any(|tag| tag == "*" || tag.strip_prefix("W/").unwrap_or(tag) == etag)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_matches_in_a_list_in_its_weak_form_and_by_the_star() {
        for value in ["\"a\"", "W/\"a\"", "\"b\", \"a\"", "*"] {
            assert!(is_match(value, "\"a\""), "{value}");
        }
        for value in ["", "a", "\"b\"", "w/\"a\"", "\"a"] {
            assert!(!is_match(value, "\"a\""), "{value}");
        }
    }

    #[test]
    fn the_embedded_document_is_the_file() {
        let embedded: serde_json::Value = serde_json::from_slice(DOCUMENT).unwrap();
        let file: serde_json::Value = serde_json::from_str(include_str!("../../openapi.json")).unwrap();
        assert_eq!(embedded, file);
        assert!(DOCUMENT.len() <= 208 << 10, "{} bytes of the binary", DOCUMENT.len());
    }
}
