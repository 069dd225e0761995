//! The cursor of a list of cues: the place of the last entry of a page, and a digest of the list that it belongs to. Callers
//! take it from a response and send it back as it is.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::domain::account::credentials::sha256;
use crate::domain::cue::filter::{CueFilter, SearchText};
use crate::domain::cue::list_order::{CueSort, ListPosition, SortValue};
use crate::domain::cue::{CueStatus, Transport};

/// The reason to refuse a cursor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CursorError {
    #[error("this is not a cursor of this list; start again without one")]
    Malformed,
    #[error("the cursor belongs to a list with another filter or sort; start again without one")]
    OtherList,
}

/// The kinds of a sort value.
const NONE: u8 = 0;
const INSTANT: u8 = 1;
const NAME: u8 = 2;

/// Bytes of the digest. It tells lists of one user apart and protects nothing.
const DIGEST_BYTES: usize = 4;

/// The text of a cursor after `last`.
pub fn encode(filter: &CueFilter, sort: CueSort, last: &ListPosition) -> String {
    let mut bytes = digest(filter, sort).to_vec();
    bytes.extend(last.key.to_be_bytes());
    match &last.value {
        SortValue::None => bytes.push(NONE),
        SortValue::Instant(millis) => {
            bytes.push(INSTANT);
            bytes.extend(millis.to_be_bytes());
        }
        SortValue::Name(name) => {
            bytes.push(NAME);
            bytes.extend(name.bytes());
        }
    }
    URL_SAFE_NO_PAD.encode(bytes)
}

/// The place that a cursor stands for.
pub fn decode(text: &str, filter: &CueFilter, sort: CueSort) -> Result<ListPosition, CursorError> {
    let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| CursorError::Malformed)?;
    let (digest_given, rest) = bytes.split_first_chunk::<DIGEST_BYTES>().ok_or(CursorError::Malformed)?;
    let (key, rest) = rest.split_first_chunk().ok_or(CursorError::Malformed)?;
    let value = match rest.split_first() {
        Some((&NONE, [])) => SortValue::None,
        Some((&INSTANT, millis)) => {
            let millis = millis.try_into().map_err(|_| CursorError::Malformed)?;
            SortValue::Instant(i64::from_be_bytes(millis))
        }
        Some((&NAME, name)) => {
            let name = std::str::from_utf8(name).map_err(|_| CursorError::Malformed)?;
            SortValue::Name(name.to_owned())
        }
        _ => return Err(CursorError::Malformed),
    };
    if *digest_given != digest(filter, sort) {
        return Err(CursorError::OtherList);
    }
    Ok(ListPosition { value, key: i64::from_be_bytes(*key) })
}

fn digest(filter: &CueFilter, sort: CueSort) -> [u8; DIGEST_BYTES] {
    let CueFilter { q, status, transport, failing } = filter;
    let failing = match failing {
        None => "",
        Some(false) => "0",
        Some(true) => "1",
    };
    let list = [
        sort.as_str(),
        status.map_or("", CueStatus::as_str),
        transport.map_or("", Transport::as_str),
        failing,
        q.as_ref().map_or("", SearchText::as_str),
    ];
    let [a, b, c, d, ..] = sha256(list.join("\n").as_bytes());
    [a, b, c, d]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_read_back_by_the_list_that_made_it_only() {
        let filter = CueFilter { status: Some(CueStatus::Active), ..CueFilter::default() };
        let others = [
            CueFilter::default(),
            CueFilter { status: Some(CueStatus::Paused), ..filter.clone() },
            CueFilter { transport: Some(Transport::Worker), ..filter.clone() },
            CueFilter { failing: Some(true), ..filter.clone() },
            CueFilter { failing: Some(false), ..filter.clone() },
            CueFilter { q: Some(SearchText::new("a")), ..filter.clone() },
        ];
        for (sort, value) in [
            (CueSort::Newest, SortValue::None),
            (CueSort::NextRun, SortValue::Instant(-1)),
            (CueSort::LastRunDescending, SortValue::None),
            (CueSort::Name, SortValue::name("Straße \u{0} 𝄞")),
            (CueSort::Name, SortValue::name("")),
        ] {
            let last = ListPosition { value, key: 1 << 40 };
            let text = encode(&filter, sort, &last);
            assert!(text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte)), "{text}");
            assert_eq!(decode(&text, &filter, sort), Ok(last));
            assert_eq!(decode(&text, &filter, CueSort::Oldest), Err(CursorError::OtherList));
            for other in &others {
                assert_eq!(decode(&text, other, sort), Err(CursorError::OtherList), "{other:?}");
            }
        }
    }

    #[test]
    fn any_other_text_is_malformed() {
        let filter = CueFilter::default();
        let last = ListPosition { value: SortValue::Instant(5), key: 7 };
        let cursor = encode(&filter, CueSort::NextRun, &last);
        for length in 0..cursor.len() {
            assert!(decode(&cursor[..length], &filter, CueSort::NextRun).is_err(), "{length}");
        }
        let longer = format!("{cursor}AAAA");
        let invalid_name = URL_SAFE_NO_PAD.encode([&[0; DIGEST_BYTES + 8][..], &[NAME, 0xFF]].concat());
        for text in ["", "!", "äöü", "AAAAAAAAAAAAAAAAAAAAAAAA", &longer, &invalid_name] {
            assert_eq!(decode(text, &filter, CueSort::NextRun), Err(CursorError::Malformed), "{text}");
        }
    }
}
