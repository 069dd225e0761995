//! The headers of a response that are kept with a failed attempt (contract §5.8).

use crate::domain::json::JsonText;

/// The size of the kept headers as JSON, in bytes: enough for those that name the server that answered and its reason. A row of an
/// attempt then stays below 3.2 KB, with a body of 2,000 bytes.
pub const MAX_KEPT_HEADERS: usize = 1024;

/// The headers as a JSON array of pairs of at most [`MAX_KEPT_HEADERS`] bytes, in their order. Those that do not fit are
/// left out, and so are cookies, which may be credentials.
pub fn kept_headers<'a>(headers: impl IntoIterator<Item = (&'a str, &'a str)>) -> JsonText {
    let mut kept = "[".to_owned();
    for (name, value) in headers.into_iter().filter(|(name, _)| !is_cookie(name)) {
        // Longer ones never fit, and need not be written.
        if name.len() + value.len() > MAX_KEPT_HEADERS {
            continue;
        }
        let comma = if kept.len() > 1 { "," } else { "" };
        let pair = format!("{comma}{}", serde_json::json!([name, value]));
        if kept.len() + pair.len() < MAX_KEPT_HEADERS {
            kept.push_str(&pair);
        }
    }
    kept.push(']');
    JsonText::stored(kept)
}

/// Returns whether the header carries cookies.
pub fn is_cookie(name: &str) -> bool {
    name.eq_ignore_ascii_case("set-cookie") || name.eq_ignore_ascii_case("set-cookie2")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_kept_as_pairs_without_cookies() {
        let headers = [("server", "nginx"), ("Set-Cookie", "id=secret"), ("x-quote", "a \"b\"")];
        assert_eq!(kept_headers(headers).as_str(), r#"[["server","nginx"],["x-quote","a \"b\""]]"#);
        assert_eq!(kept_headers([]).as_str(), "[]");
    }

    #[test]
    fn headers_that_do_not_fit_are_left_out_whole() {
        let (long, quotes) = ("x".repeat(900), "\"".repeat(600));
        let kept =
            kept_headers([("a", long.as_str()), ("b", quotes.as_str()), ("c", long.as_str()), ("d", "1")]);
        assert_eq!(kept.as_str(), format!(r#"[["a","{long}"],["d","1"]]"#));
        let most = "x".repeat(MAX_KEPT_HEADERS - r#"[["a",""]]"#.len());
        assert_eq!(kept_headers([("a", most.as_str())]).as_str().len(), MAX_KEPT_HEADERS);
        let over = format!("{most}x");
        assert_eq!(kept_headers([("a", over.as_str())]).as_str(), "[]");
    }
}
