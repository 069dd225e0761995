//! Bodies in gzip (RFC 1952), which no request asks for and some receivers send all the same.

use miniz_oxide::inflate::TINFLStatus;
use miniz_oxide::inflate::core::inflate_flags::TINFL_FLAG_USING_NON_WRAPPING_OUTPUT_BUF;
use miniz_oxide::inflate::core::{DecompressorOxide, decompress};
use ureq::http::HeaderValue;

pub fn is_gzip(content_encoding: &HeaderValue) -> bool {
    let coding = content_encoding.as_bytes();
    coding.eq_ignore_ascii_case(b"gzip") || coding.eq_ignore_ascii_case(b"x-gzip")
}

/// The first bytes of the text, at most `limit`, as far as the body has them. `None` if it is not gzip.
pub fn decode(body: &[u8], limit: usize) -> Option<Vec<u8>> {
    let (header, mut rest) = body.split_at_checked(10)?;
    let [0x1f, 0x8b, 8, flags, ..] = *header else { return None };
    if flags & 4 != 0 {
        let (length, after) = rest.split_first_chunk()?;
        rest = after.get(usize::from(u16::from_le_bytes(*length))..)?;
    }
    // The name of a file and a comment, each with a zero at its end.
    for flag in [8, 16] {
        if flags & flag != 0 {
            rest = rest.get(rest.iter().position(|byte| *byte == 0)? + 1..)?;
        }
    }
    let deflated = rest.get(if flags & 2 == 0 { 0 } else { 2 }..)?;
    let (mut state, mut text) = (Box::<DecompressorOxide>::default(), vec![0; limit]);
    // A body that was cut, or has more text than the limit, is decoded as far as it goes.
    let (status, _, length) =
        decompress(&mut state, deflated, &mut text, 0, TINFL_FLAG_USING_NON_WRAPPING_OUTPUT_BUF);
    text.truncate(length);
    (status == TINFLStatus::Done || length > 0 && status != TINFLStatus::Failed).then_some(text)
}
