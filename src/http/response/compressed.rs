//! Texts that the program contains as gzip files: sent as they are, or decompressed for clients that do not accept gzip.

use hyper::StatusCode;
use hyper::body::Bytes;
use hyper::header::{self, HeaderMap, HeaderValue};

use crate::error::{Error, Result};
use crate::http::response::Response;

/// The bytes of a gzip file (RFC 1952) before and after the deflated content; the last four are the length of the text.
const GZIP_HEAD: usize = 10;
const GZIP_TAIL: usize = 8;

/// A text of the program.
#[derive(Debug, Clone, Copy)]
pub struct CompressedText<'a> {
    pub content_type: &'static str,
    pub gzip: &'static [u8],
    /// Without quotes: another text at the same path has another version.
    pub version: &'a str,
}

impl CompressedText<'_> {
    /// Responds with the text in an encoding that the client accepts, or with 304 if the client has this version.
    /// Errors: [`Error::Fault`] if `inflated`, the text for clients that do not accept gzip, is `None`.
    pub fn respond(&self, headers: &HeaderMap, inflated: impl FnOnce() -> Option<Bytes>) -> Result<Response> {
        // The strong tag belongs to the bytes of one encoding (RFC 9110, 8.8.3.3); the weak one is that of the other one.
        let is_gzip = accepts_gzip(headers);
        let strong = format!("\"{}\"", self.version);
        let etag = if is_gzip { format!("W/{strong}") } else { strong.clone() };
        let etag = HeaderValue::from_str(&etag)
            .map_err(|error| Error::fault_from("the version of a text is not a header", error))?;
        let known = headers.get_all(header::IF_NONE_MATCH).iter();
        let is_known = known.filter_map(|value| value.to_str().ok()).any(|value| is_match(value, &strong));
        let response = if is_known {
            Response { status: StatusCode::NOT_MODIFIED, ..Response::no_content() }
        } else if is_gzip {
            Response::text(StatusCode::OK, self.content_type, Bytes::from_static(self.gzip))
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
    value.split(',').map(str::trim).any(|tag| tag == "*" || tag.strip_prefix("W/").unwrap_or(tag) == etag)
}

/// Returns whether the client names gzip and does not refuse it with the weight 0.
fn accepts_gzip(headers: &HeaderMap) -> bool {
    let values = headers.get_all(header::ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|coding| {
        let (name, weight) = coding.split_once(';').unwrap_or((coding, ""));
        let weight = weight.trim().trim_start_matches(['q', 'Q', '=', ' ']);
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
        for value in
            ["", "identity", "*", "br, gzip;q=0", "gzip; q=0.000", "gzip;q = 0", "gzipped", "deflate;gzip"]
        {
            assert!(!accepts(value), "{value}");
        }
        assert!(!accepts_gzip(&HeaderMap::new()));
    }

    #[test]
    fn a_damaged_file_is_no_text() {
        for file in [&[][..], &[0; 17], &[0xff; 40]] {
            assert_eq!(inflate(file), None, "{file:?}");
        }
    }
}
