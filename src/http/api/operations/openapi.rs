//! `GET /openapi.json`: the description of the API.

use std::sync::LazyLock;

use hyper::body::Bytes;
use hyper::header::{self, HeaderValue};
use hyper::{HeaderMap, StatusCode};

use crate::domain::account::credentials::sha256;
use crate::error::{Error, Result};
use crate::http::request::Request;
use crate::http::response::Response;

/// `src/http/openapi.json` without the blanks between its tokens, as the gzip file that `src/build.rs` makes of it.
static COMPRESSED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/openapi.json.gz"));

/// The bytes of a gzip file before and after the deflated content.
const GZIP_HEAD: usize = 10;
const GZIP_TAIL: usize = 8;

/// The document for clients that do not accept gzip; `None` if it cannot be decompressed. All responses share it, so that
/// slow clients take no memory for copies of it.
static DOCUMENT: LazyLock<Option<Bytes>> = LazyLock::new(|| {
    let content = COMPRESSED.get(GZIP_HEAD..COMPRESSED.len() - GZIP_TAIL)?;
    miniz_oxide::inflate::decompress_to_vec(content).ok().map(Bytes::from)
});

/// The version of the document, in quotes, as an `ETag` has it. 64 bits tell the documents of all releases apart.
static ETAG: LazyLock<String> = LazyLock::new(|| {
    let hash: String = sha256(COMPRESSED).iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    format!("\"{hash}\"")
});

/// `GET /openapi.json`. A page of any site may read it: it is the same for everybody.
pub async fn openapi(request: Request) -> Result<Response> {
    // The strong tag belongs to the bytes of one encoding (RFC 9110, 8.8.3.3); the weak one is that of the other one.
    let is_gzip = accepts_gzip(&request.headers);
    let etag = if is_gzip { format!("W/{}", *ETAG) } else { ETAG.clone() };
    let etag = HeaderValue::from_str(&etag)
        .map_err(|error| Error::fault_from("the ETag of the API description is not a header", error))?;
    let known = request.headers.get_all(header::IF_NONE_MATCH).iter();
    let is_known = known.filter_map(|value| value.to_str().ok()).any(|value| is_match(value, &ETAG));
    let response = if is_known {
        Response { status: StatusCode::NOT_MODIFIED, ..Response::no_content() }
    } else if is_gzip {
        Response::json(StatusCode::OK, Bytes::from_static(COMPRESSED))
            .with(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"))
    } else {
        let document = DOCUMENT.clone();
        let damaged = || Error::fault("the API description cannot be decompressed");
        Response::json(StatusCode::OK, document.ok_or_else(damaged)?)
    };
    Ok(response
        .with(header::ETAG, etag)
        .with(header::VARY, HeaderValue::from_static("accept-encoding"))
        .with(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"))
        .with(header::ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*")))
}

/// Returns whether an `If-None-Match` contains the tag, also in the weak form that compressing proxies make of it.
fn is_match(value: &str, etag: &str) -> bool {
    value.split(',').map(str::trim).any(|tag| tag == "*" || tag.strip_prefix("W/").unwrap_or(tag) == etag)
}

/// Returns whether the client names gzip and does not refuse it with the weight 0.
fn accepts_gzip(headers: &HeaderMap) -> bool {
    let values = headers.get_all(header::ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|coding| {
        let (name, weight) = coding.split_once(';').unwrap_or((coding, ""));
        let weight = weight.trim_start().trim_start_matches(['q', 'Q', '=']).trim_end();
        name.trim().eq_ignore_ascii_case("gzip") && !weight.parse().is_ok_and(|weight: f32| weight == 0.0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gzip_is_accepted_by_name_unless_its_weight_is_zero() {
        let accepts = |value: &'static str| {
            accepts_gzip(&HeaderMap::from_iter([(header::ACCEPT_ENCODING, HeaderValue::from_static(value))]))
        };
        for value in
            ["gzip", "deflate, GZIP;q=0.5, br", "br;q=1.0 , gzip ; q=1", "gzip;q=0.001", "identity,gzip"]
        {
            assert!(accepts(value), "{value}");
        }
        for value in ["", "identity", "*", "br, gzip;q=0", "gzip; q=0.000", "gzipped", "deflate;gzip"] {
            assert!(!accepts(value), "{value}");
        }
        assert!(!accepts_gzip(&HeaderMap::new()));
    }

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
        let document = DOCUMENT.clone().unwrap();
        let embedded: serde_json::Value = serde_json::from_slice(&document).unwrap();
        let file: serde_json::Value = serde_json::from_str(include_str!("../../openapi.json")).unwrap();
        assert_eq!(embedded, file);
        assert!(COMPRESSED.len() <= 40 << 10, "{} bytes of the binary", COMPRESSED.len());
    }
}
