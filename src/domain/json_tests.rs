//! Texts that are no JSON, the depth, and the compact form. Properties of random documents are in `tests/it/rules/json.rs`.

use crate::domain::api_error::{ErrorCode, Refusal};
use crate::domain::json::{MAX_DEPTH, read};

const PRIVATE_KEY: &str = "$serde_json::private::Number";

#[test]
fn a_text_that_is_no_json_is_refused_with_its_position() {
    #[rustfmt::skip]
    let table: &[(&[u8], usize, usize)] = &[
        (b"", 1, 1), (b" \n ", 2, 1), (b"\xEF\xBB\xBF{}", 1, 1), (b"{\"a\": \"\xFF\"}", 1, 8), (b"{} x", 1, 4),
        (b"[1,]", 1, 4), (b"NaN", 1, 1), (b"+1", 1, 1), (b"// no\n1", 1, 1), ("\u{a0}1".as_bytes(), 1, 1),
        (b"{\"a\":1,}", 1, 8), (b"{a:1}", 1, 2), (b"[1 2]", 1, 4), (b"01", 1, 2), (b"[", 1, 1), (b"\"a", 1, 2),
        (b"\"a\nb\"", 2, 1), (b"\"\\x41\"", 1, 3), (b"[1,\n \"\xC3\xA9\\ud800\"]", 2, 10), (b"{\"\\udfff\":1}", 1, 8),
        (b"1e400", 1, 5), (b"[0, -1e400]", 1, 10), (b"1.7976931348623159e308", 1, 22),
    ];
    for &(text, line, column) in table {
        let error = read(text).expect_err(&String::from_utf8_lossy(text));
        assert_eq!((error.line, error.column), (line, column), "{} {error}", text.escape_ascii());
    }
}

#[test]
fn a_refused_text_is_invalid_json_for_the_client() {
    let refusal = Refusal::from(read(b"{\"a\": 1e400}").unwrap_err());
    assert_eq!(refusal.code, ErrorCode::InvalidJson);
    assert_eq!(
        refusal.message,
        "The JSON cannot be read: a number is too large for a double (line 1, column 11)"
    );
}

#[test]
fn sixty_four_levels_are_read_and_one_more_is_not() {
    for (open, close) in [("[", "]"), ("{\"a\":[", "]}")] {
        let levels = open.matches(['[', '{']).count();
        let nested = |times: usize| format!("[{}1{}]", open.repeat(times), close.repeat(times));
        // Siblings do not count: the first element has the maximum depth.
        let deepest = (MAX_DEPTH - 1) / levels;
        let twice = format!("[{0},{0}]", nested(deepest - 1));
        assert!(read(nested(deepest).as_bytes()).is_ok());
        assert!(read(twice.as_bytes()).is_ok());
        let error = read(nested(deepest + 1).as_bytes()).unwrap_err();
        assert_eq!(error.problem, "it is nested deeper than 64 levels");
    }
    let hostile = "[".repeat(2_000_000);
    assert_eq!(read(hostile.as_bytes()).unwrap_err().column, 65);
    // serde_json passes these numbers as objects.
    for number in ["1.5", "99999999999999999999999"] {
        let text = format!("{}{number}{}", "[".repeat(MAX_DEPTH), "]".repeat(MAX_DEPTH));
        assert_eq!(read(text.as_bytes()).unwrap().as_str(), text);
    }
    let private =
        format!("{}{{\"{PRIVATE_KEY}\":\"1\"}}{}", "[".repeat(MAX_DEPTH), "]".repeat(MAX_DEPTH));
    assert!(read(private.as_bytes()).is_err());
}

#[test]
fn the_compact_form_keeps_the_digits_of_integers_and_the_doubles_of_other_numbers() {
    let long = "9".repeat(5000);
    let table = [
        ("-0", "0"),
        ("12345678901234567890123", "12345678901234567890123"),
        ("-9223372036854775809", "-9223372036854775809"),
        (&long, &long),
        ("1.0", "1.0"),
        ("-0.0", "-0.0"),
        ("1E5", "100000.0"),
        ("1.10", "1.1"),
        ("9007199254740993.0", "9007199254740992.0"),
        ("1e-400", "0.0"),
        ("[1E5, 1.50, 15e-1]", "[100000.0,1.5,1.5]"),
        // UTF-8 without blanks, and the last value of a repeated key.
        (
            "{ \"b\" : [ 1 , \"é\\u00e9\\ud83d\\ude00\\u007f\\u001F\\/\" ] , \"a\" : null }",
            "{\"a\":null,\"b\":[1,\"éé\u{1f600}\u{7f}\\u001f/\"]}",
        ),
        ("{\"a\":1,\"\\u0061\":[2],\"a\":{\"b\":3}}", "{\"a\":{\"b\":3}}"),
    ];
    for (text, stored) in table {
        assert_eq!(compact(text), stored);
    }
}

#[test]
fn an_object_with_the_private_number_key_stays_an_object() {
    let escaped = PRIVATE_KEY.replacen('$', "\\u0024", 1);
    for key in [PRIVATE_KEY, &escaped] {
        for inside in ["\"1e400\"", "\"12\"", "\"no number\"", "5", "null"] {
            for rest in ["", ",\"a\":1"] {
                let text = read(format!("{{\"{key}\":{inside}{rest}}}").as_bytes()).unwrap();
                assert!(text.get().to_value().is_object());
                assert_eq!(text.as_str(), format!("{{\"{PRIVATE_KEY}\":{inside}{rest}}}"));
                assert_eq!(serde_json::to_string(&text).unwrap(), text.as_str());
            }
        }
    }
}

fn compact(text: &str) -> String {
    read(text.as_bytes()).unwrap().into_string()
}
