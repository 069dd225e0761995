//! The JSON reader against a table and against serde_json.

use cued::domain::api_error::{ErrorCode, Refusal};
use cued::domain::json::{JsonObject, JsonText, MAX_DEPTH, merged, read};
use serde_json::{Map, Number, Value};

use crate::support::json_documents::document;
use crate::support::random::Random;

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
    let private = format!("{}{{\"{PRIVATE_KEY}\":\"1\"}}{}", "[".repeat(MAX_DEPTH), "]".repeat(MAX_DEPTH));
    assert!(read(private.as_bytes()).is_err());
}

#[test]
fn integers_keep_their_digits_and_other_numbers_their_double() {
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
    ];
    for (text, stored) in table {
        assert_eq!(compact(text), stored);
    }
}

#[test]
fn equal_doubles_are_equal_values_in_any_spelling() {
    assert_eq!(read(b"[1E5, 1.50, -0]").unwrap(), read(b"[100000.0, 15e-1, 0]").unwrap());
    assert_ne!(read(b"1").unwrap(), read(b"1.0").unwrap(), "an integer is not a float");
}

#[test]
fn the_compact_form_is_utf8_without_blanks() {
    let text = "{ \"b\" : [ 1 , \"é\\u00e9\\ud83d\\ude00\\u007f\\u001F\\/\" ] , \"a\" : null }";
    assert_eq!(compact(text), "{\"a\":null,\"b\":[1,\"éé\u{1f600}\u{7f}\\u001f/\"]}");
}

#[test]
fn the_last_value_of_a_repeated_key_counts() {
    assert_eq!(compact("{\"a\":1,\"\\u0061\":[2],\"a\":{\"b\":3}}"), "{\"a\":{\"b\":3}}");
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

#[test]
fn the_text_is_that_of_a_tree_and_reads_back_equal() {
    let mut random = Random::new(7);
    for _ in 0..20_000 {
        let document = document(&mut random, 4);
        let text = read(document.as_bytes()).unwrap();
        let tree = normalized(serde_json::from_str(&document).unwrap());
        assert_eq!(text.as_str(), tree.to_string(), "of {document}");
        assert_eq!(text.get().to_value(), tree, "of {document}");
        assert_eq!(text, JsonText::from(&tree), "of {document}");
        assert_eq!(read(text.as_str().as_bytes()).unwrap(), text, "of {document}");
    }
}

/// The value with `json::read`'s numbers. The documents contain no private number key.
fn normalized(value: Value) -> Value {
    match value {
        Value::Number(number) if number.as_str() == "-0" => Value::from(0),
        Value::Number(number) if number.as_str().contains(['.', 'e', 'E']) => {
            Value::Number(Number::from_f64(number.as_f64().unwrap()).unwrap())
        }
        Value::Array(items) => items.into_iter().map(normalized).collect(),
        Value::Object(fields) => {
            Value::Object(fields.into_iter().map(|(key, value)| (key, normalized(value))).collect())
        }
        other => other,
    }
}

#[test]
fn entries_and_items_are_those_of_the_tree() {
    let mut random = Random::new(3);
    let mut objects = 0;
    for _ in 0..20_000 {
        let text = read(document(&mut random, 3).as_bytes()).unwrap();
        let tree = text.get().to_value();
        let items = text.get().items().map(|items| items.map(|item| item.to_value()).collect::<Vec<_>>());
        assert_eq!(items.as_ref(), tree.as_array(), "of {text:?}");
        let (object, fields) = (JsonObject::of(text.get()), tree.as_object());
        assert_eq!(object.is_some(), fields.is_some());
        let Some((object, fields)) = object.zip(fields) else { continue };
        objects += 1;
        let keys: Vec<_> = object.keys().collect();
        assert_eq!(keys, fields.keys().map(String::as_str).collect::<Vec<_>>(), "of {text:?}");
        for (key, value) in fields.iter().filter(|(key, _)| !key.contains(is_escaped)) {
            assert_eq!(
                object.get(key).map(|value| value.to_value()).as_ref(),
                Some(value),
                "{key} of {text:?}"
            );
        }
        assert_eq!(object.get("no such key"), None);
    }
    assert!(objects > 1_000);
}

fn is_escaped(char: char) -> bool {
    char < ' ' || char == '"' || char == '\\'
}

#[test]
fn merged_objects_have_the_entries_of_both_and_the_values_of_the_second() {
    let mut random = Random::new(5);
    for _ in 0..20_000 {
        let [own, over] = [(), ()].map(|()| read(document(&mut random, 2).as_bytes()).unwrap());
        let expected = match (own.get().to_value(), over.get().to_value()) {
            (Value::Object(own), Value::Object(over)) => {
                Value::Object(own.into_iter().chain(over).collect::<Map<_, _>>())
            }
            (_, over) => over,
        };
        let merged = merged(own.get(), over.get());
        assert_eq!(merged.as_str(), expected.to_string(), "{over:?} over {own:?}");
    }
}

#[test]
fn text_that_read_did_not_write_is_refused_or_looked_through_without_a_panic() {
    let mut random = Random::new(13);
    for _ in 0..30_000 {
        let mut bytes = document(&mut random, 3).into_bytes();
        damage(&mut random, &mut bytes);
        let Ok(text) = String::from_utf8(bytes) else { continue };
        let valid = serde_json::from_str::<&serde_json::value::RawValue>(&text).is_ok();
        let stored = JsonText::stored(text);
        assert_eq!(serde_json::to_string(&stored).is_ok(), valid, "{stored:?}");
        let object = JsonObject::of(stored.get());
        drop(object.map(|object| (object.get("a").map(|value| value.to_value()), object.keys().count())));
        drop((stored.get().to_value(), cued::domain::webhook::canonical_json::canonical(stored.get())));
        drop(merged(stored.get(), JsonText::stored("{\"b\":1}".to_owned()).get()));
    }
}

fn damage(random: &mut Random, bytes: &mut Vec<u8>) {
    const TELLING: &[u8] = b"\"\\{}[]:,0123456789.-+eEudtn \n\x00\x1f\x7f\x80\xc3\xed\xff";
    let at = random.index(bytes.len() + 1);
    let byte = TELLING[random.index(TELLING.len())];
    match random.below(4) {
        0 if at < bytes.len() => bytes[at] = byte,
        1 if at < bytes.len() => drop(bytes.remove(at)),
        2 if random.below(4) == 0 => bytes.truncate(at),
        _ => bytes.insert(at, byte),
    }
}

fn compact(text: &str) -> String {
    read(text.as_bytes()).unwrap().into_string()
}
