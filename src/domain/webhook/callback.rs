//! What a callback may be beside its URL: its method and headers, and the headers that a delivery carries.
//!
//! The URL is checked in `destination`, the addresses behind it in `reach`.

use std::fmt;

use crate::domain::api_error::{ErrorCode, Refusal};

/// The most headers of its own that a callback may have.
pub const MAX_HEADERS: usize = 32;
/// The longest header value, in bytes: what common servers take, and half of a connection's buffer.
pub const MAX_HEADER_VALUE: usize = 4096;
/// The longest header name, in bytes.
pub const MAX_HEADER_NAME: usize = 256;

/// Where and how a webhook is delivered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Callback {
    /// An absolute `http` or `https` URL, as the user wrote it.
    pub url: String,
    /// The method of the request.
    pub method: Method,
    /// Headers of the user's own, in the user's order.
    pub headers: Vec<(String, String)>,
}

/// The methods that a callback may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[allow(missing_docs)]
pub enum Method {
    #[default]
    Post,
    Put,
    Patch,
    Get,
    Delete,
}

/// Why a method or a set of headers cannot be a callback's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallbackError {
    /// Not one of the five methods.
    Method(String),
    /// More than 32 headers.
    TooManyHeaders(usize),
    /// Empty, too long or with a character that no header name has.
    HeaderName(String),
    /// The value of the named header is too long or holds something else than printable ASCII, blanks and tabs.
    HeaderValue(String),
    /// A header that the delivery sets itself.
    OwnHeader(String),
    /// Two names that differ in case at most.
    DuplicateHeader(String),
}

impl Method {
    /// The method as it stands in a request and in JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Patch => "PATCH",
            Self::Get => "GET",
            Self::Delete => "DELETE",
        }
    }

    /// Reads a method, in either case.
    ///
    /// # Errors
    /// The text is none of the five methods.
    pub fn parse(text: &str) -> Result<Self, CallbackError> {
        [Self::Post, Self::Put, Self::Patch, Self::Get, Self::Delete]
            .into_iter()
            .find(|method| method.as_str().eq_ignore_ascii_case(text))
            .ok_or_else(|| CallbackError::Method(text.to_owned()))
    }

    /// Whether a delivery with this method carries the payload (contract §6).
    #[must_use]
    pub fn has_body(self) -> bool {
        matches!(self, Self::Post | Self::Put | Self::Patch)
    }
}

/// Checks a callback's own headers (contract §4).
///
/// # Errors
/// Names the first header that cannot be sent.
pub fn check_headers(headers: &[(String, String)]) -> Result<(), CallbackError> {
    if headers.len() > MAX_HEADERS {
        return Err(CallbackError::TooManyHeaders(headers.len()));
    }
    for (position, (name, value)) in headers.iter().enumerate() {
        if name.is_empty() || name.len() > MAX_HEADER_NAME || !name.bytes().all(is_name_byte) {
            return Err(CallbackError::HeaderName(name.clone()));
        }
        if is_own_header(name) {
            return Err(CallbackError::OwnHeader(name.clone()));
        }
        let printable = |byte: u8| byte == b'\t' || (b' '..=b'~').contains(&byte);
        if value.len() > MAX_HEADER_VALUE || !value.bytes().all(printable) {
            return Err(CallbackError::HeaderValue(name.clone()));
        }
        if headers[..position].iter().any(|(earlier, _)| earlier.eq_ignore_ascii_case(name)) {
            return Err(CallbackError::DuplicateHeader(name.clone()));
        }
    }
    Ok(())
}

/// The headers of a delivery: the standard ones, of which the callback's own may replace only `Content-Type` and
/// `User-Agent` (contract §6), then the rest of its own.
#[must_use]
pub fn delivery_headers(
    own: &[(String, String)],
    standard: Vec<(&'static str, String)>,
) -> Vec<(String, String)> {
    let mut headers: Vec<(String, String)> =
        standard.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    for (name, value) in own {
        match headers.iter_mut().find(|(standard, _)| standard.eq_ignore_ascii_case(name)) {
            None => headers.push((name.clone(), value.clone())),
            Some(taken) if is_replaceable(name) => taken.1.clone_from(value),
            Some(_) => {}
        }
    }
    headers
}

fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

fn is_own_header(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name.starts_with("x-cueapi-")
        || name.starts_with("webhook-")
        || matches!(
            name.as_str(),
            "host" | "content-length" | "transfer-encoding" | "connection" | "upgrade" | "te" | "trailer"
        )
}

fn is_replaceable(name: &str) -> bool {
    name.eq_ignore_ascii_case("content-type") || name.eq_ignore_ascii_case("user-agent")
}

impl fmt::Display for CallbackError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Method(method) => {
                write!(f, "callback.method is `{method}`; use POST, PUT, PATCH, GET or DELETE")
            }
            Self::TooManyHeaders(count) => {
                write!(f, "callback.headers holds {count} headers; {MAX_HEADERS} is the most")
            }
            Self::HeaderName(name) => write!(
                f,
                "callback.headers holds {name:?}, which is no header name; \
                 use 1 to {MAX_HEADER_NAME} letters, digits and hyphens"
            ),
            Self::HeaderValue(name) => write!(
                f,
                "callback.headers.{name} holds a value that cannot be sent; \
                 use at most {MAX_HEADER_VALUE} printable ASCII characters, with no line break"
            ),
            Self::OwnHeader(name) => {
                write!(
                    f,
                    "callback.headers must not set {name}, which the delivery sets itself; leave it out"
                )
            }
            Self::DuplicateHeader(name) => {
                write!(f, "callback.headers holds {name} twice, in different case perhaps; keep one of them")
            }
        }
    }
}

impl std::error::Error for CallbackError {}

impl From<CallbackError> for Refusal {
    fn from(error: CallbackError) -> Self {
        Self::new(ErrorCode::InvalidCallback, error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(list: &[(&str, &str)]) -> Vec<(String, String)> {
        list.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    fn check(name: &str, value: &str) -> Result<(), CallbackError> {
        check_headers(&pairs(&[(name, value)]))
    }

    #[test]
    fn the_five_methods_are_read_in_either_case() {
        for text in ["POST", "PUT", "PATCH", "GET", "DELETE"] {
            assert_eq!(Method::parse(text).unwrap().as_str(), text);
            assert_eq!(Method::parse(&text.to_lowercase()).unwrap().as_str(), text);
        }
        for text in ["", "HEAD", "OPTIONS", "CONNECT", "TRACE", "POST ", "POST\r\n", "PÖST"] {
            assert_eq!(Method::parse(text), Err(CallbackError::Method(text.to_owned())));
        }
    }

    #[test]
    fn get_and_delete_carry_no_body() {
        assert!(Method::Post.has_body() && Method::Put.has_body() && Method::Patch.has_body());
        assert!(!Method::Get.has_body() && !Method::Delete.has_body());
    }

    #[test]
    fn ordinary_headers_pass() {
        for (name, value) in [
            ("Authorization", "Bearer abc.def"),
            ("content-type", "application/cloudevents+json; charset=utf-8"),
            ("User-Agent", "mine/1"),
            ("X-Empty", ""),
            ("X-Tab", "a\tb"),
            ("X_Odd!#$%&'*+-.^`|~9", "~ !\"(){}"),
            ("Teapot", "not TE"),
            ("X-CueAPI", "no hyphen behind it"),
            ("webhook", "no hyphen behind it"),
        ] {
            assert_eq!(check(name, value), Ok(()), "{name}");
        }
    }

    #[test]
    fn headers_that_the_delivery_sets_are_refused_in_any_case() {
        let list = "Host HOST content-length Transfer-Encoding Connection upgrade TE Trailer \
                    X-CueAPI-Signature x-cueapi-anything webhook-id Webhook-Signature WEBHOOK-x";
        for name in list.split_whitespace() {
            assert_eq!(check(name, "x"), Err(CallbackError::OwnHeader(name.to_owned())));
        }
    }

    #[test]
    fn header_names_and_values_that_could_break_a_request_are_refused() {
        for name in
            ["", " ", "a b", "a:", "a\r\nb", "a\0", "ä", "(x)", "x,y", "\u{7f}", "Host ", &"x".repeat(257)]
        {
            assert_eq!(check(name, "x"), Err(CallbackError::HeaderName(name.to_owned())), "{name:?}");
        }
        for value in ["a\r\nX: y", "a\nb", "a\rb", "a\0b", "ü", "\u{7f}", "\u{1b}", &"x".repeat(4097)] {
            assert_eq!(check("X-A", value), Err(CallbackError::HeaderValue("X-A".to_owned())), "{value:?}");
        }
        assert_eq!(check(&"x".repeat(256), &"x".repeat(4096)), Ok(()));
    }

    #[test]
    fn at_most_32_headers_and_each_once() {
        let many =
            |count: usize| -> Vec<_> { (0..count).map(|n| (format!("X-{n}"), String::new())).collect() };
        assert_eq!(check_headers(&many(32)), Ok(()));
        assert_eq!(check_headers(&many(33)), Err(CallbackError::TooManyHeaders(33)));
        let twice = pairs(&[("X-A", "1"), ("X-B", "2"), ("x-a", "3")]);
        assert_eq!(check_headers(&twice), Err(CallbackError::DuplicateHeader("x-a".to_owned())));
    }

    #[test]
    fn own_headers_replace_two_of_the_standard_ones_and_no_others() {
        let standard = || {
            let list = ["Content-Type", "User-Agent", "X-CueAPI-Cue-Id"];
            list.into_iter().map(|name| (name, "ours".to_owned())).collect()
        };
        let own = pairs(&[
            ("X-Mine", "mine"),
            ("content-type", "mine"),
            ("USER-AGENT", "mine"),
            ("x-cueapi-cue-id", "mine"),
            ("Accept", "mine"),
        ]);
        let merged = pairs(&[
            ("Content-Type", "mine"),
            ("User-Agent", "mine"),
            ("X-CueAPI-Cue-Id", "ours"),
            ("X-Mine", "mine"),
            ("Accept", "mine"),
        ]);
        assert_eq!(delivery_headers(&own, standard()), merged);
        let untouched = [("Content-Type", "ours"), ("User-Agent", "ours"), ("X-CueAPI-Cue-Id", "ours")];
        assert_eq!(delivery_headers(&[], standard()), pairs(&untouched));
    }

    #[test]
    fn an_error_is_invalid_callback_with_a_remedy() {
        let refusal = Refusal::from(check("host", "x").unwrap_err());
        assert_eq!(refusal.code, ErrorCode::InvalidCallback);
        assert!(refusal.message.ends_with("leave it out"), "{}", refusal.message);
    }
}
