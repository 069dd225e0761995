//! `GET /openapi.json`: the description of the API.

use std::sync::LazyLock;

use hyper::body::Bytes;
use hyper::header::{self, HeaderValue};

use crate::domain::account::credentials::sha256;
use crate::error::Result;
use crate::http::request::Request;
use crate::http::response::Response;
use crate::http::response::compressed::{CompressedText, inflate};

/// `src/http/openapi.json` without the blanks between its tokens, as the gzip file that `src/build.rs` makes of it.
static COMPRESSED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/openapi.json.gz"));

/// The document for clients that do not accept gzip; `None` if it cannot be decompressed. All responses share it, so that
/// slow clients take no memory for copies of it.
static DOCUMENT: LazyLock<Option<Bytes>> = LazyLock::new(|| inflate(COMPRESSED));

/// The version of the document. 64 bits tell the documents of all releases apart.
static VERSION: LazyLock<String> =
    LazyLock::new(|| sha256(COMPRESSED).iter().take(8).map(|byte| format!("{byte:02x}")).collect());

/// `GET /openapi.json`. A page of any site may read it: it is the same for everybody.
pub async fn openapi(request: Request) -> Result<Response> {
    let text = CompressedText { content_type: "application/json", gzip: COMPRESSED, version: &VERSION };
    let response = text.respond(&request.headers, || DOCUMENT.clone())?;
    Ok(response
        .with(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"))
        .with(header::ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_embedded_document_is_the_file() {
        let document = DOCUMENT.clone().unwrap();
        let embedded: serde_json::Value = serde_json::from_slice(&document).unwrap();
        let file: serde_json::Value = serde_json::from_str(include_str!("../../openapi.json")).unwrap();
        assert_eq!(embedded, file);
        assert!(COMPRESSED.len() <= 40 << 10, "{} bytes of the binary", COMPRESSED.len());
    }
}
