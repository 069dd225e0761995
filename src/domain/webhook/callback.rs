//! Callbacks: the method and the headers, and the headers of a delivery.
//!
//! The URL is checked in `callback_url`, its addresses in `address_policy`.

use crate::domain::api_error::{ErrorCode, Refusal};
use crate::domain::text::word_enum::word_enum;

pub const MAX_HEADERS: usize = 32;
/// The size of a header value, in bytes: the limit of common servers, and half of a connection's buffer.
pub const MAX_HEADER_VALUE: usize = 4096;
/// The size of a header name, in bytes.
pub const MAX_HEADER_NAME: usize = 256;

/// The target of a webhook delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Callback {
    /// An absolute `http` or `https` URL, as the user wrote it, but its host in ASCII.
    pub url: String,
    pub method: Method,
    /// Custom headers, in the user's order.
    pub headers: Vec<(String, String)>,
    /// True if the body of a 2xx response is taken as the outcome of the execution (contract §6.10).
    pub outcome_from_response: bool,
}

word_enum! {
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub enum Method {
        #[default]
        Post = "POST",
        Put = "PUT",
        Patch = "PATCH",
        Get = "GET",
        Delete = "DELETE",
    }
}

/// The reason why a method or a set of headers is rejected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallbackError {
    #[error("callback.method is `{0}`; use POST, PUT, PATCH, GET or DELETE")]
    Method(String),
    #[error("callback.headers has {0} headers; at most {MAX_HEADERS} are allowed")]
    TooManyHeaders(usize),
    /// Empty, too long, or with a character that is not allowed in a header name.
    #[error(
        "callback.headers has {0:?}, which is not a header name; \
         use 1 to {MAX_HEADER_NAME} letters, digits and hyphens"
    )]
    HeaderName(String),
    /// The value of the named header is too long or contains anything but printable ASCII, spaces and tabs.
    #[error(
        "callback.headers.{0} has a value that cannot be sent; \
         use at most {MAX_HEADER_VALUE} printable ASCII characters, with no line break"
    )]
    HeaderValue(String),
    #[error("callback.headers must not set {0}, which the delivery sets itself; leave it out")]
    ReservedHeader(String),
    /// Two names that are equal apart from case.
    #[error("callback.headers has {0} twice, ignoring case; remove one of them")]
    DuplicateHeader(String),
}

impl Method {
    /// Reads the method of a request, in upper or lower case.
    /// Errors: [`CallbackError::Method`] for any other text than the five methods.
    pub fn from_request(text: &str) -> Result<Self, CallbackError> {
        Self::parse(&text.to_ascii_uppercase()).ok_or_else(|| CallbackError::Method(text.to_owned()))
    }

    /// Returns whether a delivery with this method has a body, the payload (contract §6).
    pub fn has_body(self) -> bool {
        matches!(self, Self::Post | Self::Put | Self::Patch)
    }
}

/// Checks the custom headers of a callback (contract §4).
pub fn check_headers(headers: &[(String, String)]) -> Result<(), CallbackError> {
    if headers.len() > MAX_HEADERS {
        return Err(CallbackError::TooManyHeaders(headers.len()));
    }
    for (position, (name, value)) in headers.iter().enumerate() {
        if name.is_empty() || name.len() > MAX_HEADER_NAME || !name.bytes().all(is_name_byte) {
            return Err(CallbackError::HeaderName(name.clone()));
        }
        if is_reserved_header(name) {
            return Err(CallbackError::ReservedHeader(name.clone()));
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

/// The headers of a delivery: the standard ones, with custom ones in place of `Content-Type` and
/// `User-Agent` (contract §6), then the other custom headers.
pub fn delivery_headers(
    custom: Vec<(String, String)>,
    standard: Vec<(&'static str, String)>,
) -> Vec<(String, String)> {
    let mut headers: Vec<(String, String)> =
        standard.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    for (name, value) in custom {
        match headers.iter_mut().find(|(standard, _)| standard.eq_ignore_ascii_case(&name)) {
            None => headers.push((name, value)),
            Some(existing) if is_replaceable(&name) => existing.1 = value,
            Some(_) => {}
        }
    }
    headers
}

fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

fn is_reserved_header(name: &str) -> bool {
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
    fn the_five_methods_are_read_in_upper_and_lower_case() {
        for text in ["POST", "PUT", "PATCH", "GET", "DELETE"] {
            assert_eq!(Method::from_request(text).unwrap().as_str(), text);
            assert_eq!(Method::from_request(&text.to_lowercase()).unwrap().as_str(), text);
        }
        for text in ["", "HEAD", "OPTIONS", "CONNECT", "TRACE", "POST ", "POST\r\n", "PÖST"] {
            assert_eq!(Method::from_request(text), Err(CallbackError::Method(text.to_owned())));
        }
    }

    #[test]
    fn only_headers_that_a_request_can_carry_and_the_delivery_does_not_set_are_accepted() {
        for (name, value) in [
            ("Authorization", "Bearer abc.def"),
            ("content-type", "application/cloudevents+json; charset=utf-8"),
            ("X-Empty", ""),
            ("X-Tab", "a\tb"),
            ("X_Odd!#$%&'*+-.^`|~9", "~ !\"(){}"),
            (&"x".repeat(256), &"x".repeat(4096)),
        ] {
            assert_eq!(check(name, value), Ok(()), "{name}");
        }
        for name in ["User-Agent", "Teapot", "X-CueAPI", "webhook"] {
            assert_eq!(check(name, "x"), Ok(()), "{name}");
        }
        let list = "Host HOST content-length Transfer-Encoding Connection upgrade TE Trailer \
                    X-CueAPI-Signature x-cueapi-anything webhook-id Webhook-Signature WEBHOOK-x";
        for name in list.split_whitespace() {
            assert_eq!(check(name, "x"), Err(CallbackError::ReservedHeader(name.to_owned())));
        }
        let long = "x".repeat(257);
        for name in ["", " ", "a b", "a:", "a\r\nb", "a\0", "ä", "(x)", "x,y", "\u{7f}", "Host ", &long] {
            assert_eq!(check(name, "x"), Err(CallbackError::HeaderName(name.to_owned())), "{name:?}");
        }
        for value in ["a\r\nX: y", "a\nb", "a\rb", "a\0b", "ü", "\u{7f}", "\u{1b}", &"x".repeat(4097)] {
            assert_eq!(check("X-A", value), Err(CallbackError::HeaderValue("X-A".to_owned())), "{value:?}");
        }
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
    fn custom_headers_replace_two_of_the_standard_ones_and_no_others() {
        let standard =
            ["Content-Type", "User-Agent", "X-CueAPI-Cue-Id"].map(|name| (name, "ours".to_owned()));
        let custom =
            ["X-Mine", "content-type", "USER-AGENT", "x-cueapi-cue-id", "Accept"].map(|name| (name, "mine"));
        let headers = delivery_headers(pairs(&custom), standard.to_vec());
        let text: Vec<String> = headers.iter().map(|(name, value)| format!("{name}: {value}")).collect();
        let expected =
            "Content-Type: mine, User-Agent: mine, X-CueAPI-Cue-Id: ours, X-Mine: mine, Accept: mine";
        assert_eq!(text.join(", "), expected);
    }
}
