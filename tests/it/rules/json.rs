//! JSON: properties of random documents, and the canonical form as Python has it.

use std::io::{Seek as _, Write as _};

use cued::domain::json::{self, JsonObject, JsonText, merged, read};
use cued::domain::webhook::canonical_json::canonical;
use serde_json::{Map, Number};

use crate::support::*;

#[test]
fn the_text_is_that_of_a_tree_and_reads_back_equal() {
    let mut random = Random::new(7);
    for _ in 0..20_000 {
        let document = random_document(&mut random, 4);
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
        let text = read(random_document(&mut random, 3).as_bytes()).unwrap();
        let tree = text.get().to_value();
        let items =
            text.get().items().map(|items| items.map(|item| item.to_value()).collect::<Vec<_>>());
        assert_eq!(items.as_ref(), tree.as_array(), "of {text:?}");
        let (object, fields) = (JsonObject::from_text(text.get()), tree.as_object());
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
        let [own, over] =
            [(), ()].map(|()| read(random_document(&mut random, 2).as_bytes()).unwrap());
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
        let mut bytes = random_document(&mut random, 3).into_bytes();
        damage(&mut random, &mut bytes);
        let Ok(text) = String::from_utf8(bytes) else { continue };
        let valid = serde_json::from_str::<&serde_json::value::RawValue>(&text).is_ok();
        let stored = JsonText::stored(text);
        assert_eq!(serde_json::to_string(&stored).is_ok(), valid, "{stored:?}");
        let object = JsonObject::from_text(stored.get());
        drop(
            object.map(|object| {
                (object.get("a").map(|value| value.to_value()), object.keys().count())
            }),
        );
        drop((
            stored.get().to_value(),
            cued::domain::webhook::canonical_json::canonical(stored.get()),
        ));
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

const DOCUMENTS: usize = 20_000;

const DUMP: &str = "\
import json, sys
for line in sys.stdin.buffer:
    print(json.dumps(json.loads(line), sort_keys=True))
";

#[test]
fn doubles_at_every_edge_match_python() {
    let powers_of_two = (0..2046_u64).map(|exponent| exponent << 52);
    let powers_of_ten =
        (-323..309).map(|exponent| format!("1e{exponent}").parse::<f64>().unwrap().to_bits());
    let subnormals = (0..51).map(|shift| 1_u64 << shift);
    // From 1e15 on, eighths are doubles, and some lie halfway between their two shortest texts.
    let ties = (0..2000).map(|step| (1e15 + f64::from(step) / 8.0).to_bits());
    let edges = powers_of_two.chain(powers_of_ten).chain(subnormals).chain(ties);
    let doubles = edges.flat_map(|bits| bits.saturating_sub(2)..=bits + 2).map(f64::from_bits);
    let texts: Vec<String> = doubles.map(|double| format!("{double:e}")).collect();
    for (text, expected) in texts.iter().zip(dumped_by_python(&texts)) {
        assert_eq!(canonical_of(text), expected, "of {text}");
    }
}

#[test]
fn random_documents_match_python() {
    let mut random = Random::new(20_261_121);
    let texts: Vec<String> = (0..DOCUMENTS).map(|_| random_document(&mut random, 4)).collect();
    let python = dumped_by_python(&texts);
    assert_eq!(python.len(), texts.len());
    for (text, expected) in texts.iter().zip(&python) {
        assert_eq!(canonical_of(text), *expected, "of {text}");
        let stored = json::read(text.as_bytes()).unwrap();
        assert_eq!(canonical_of(stored.as_str()), *expected, "of {text}, stored as {stored:?}");
        let from_tree = canonical_of_value(&stored.get().to_value());
        assert_eq!(from_tree, *expected, "of {text}");
        let again = json::read(expected.as_bytes()).unwrap();
        assert_eq!(again, stored, "of {text}");
    }
}

fn canonical_of(text: &str) -> String {
    canonical(json::read(text.as_bytes()).unwrap_or_else(|error| panic!("{error}: {text}")).get())
}

fn canonical_of_value(value: &Value) -> String {
    canonical(JsonText::from(value).get())
}

fn dumped_by_python(texts: &[String]) -> Vec<String> {
    let mut file = tempfile::tempfile().unwrap();
    for text in texts {
        writeln!(file, "{text}").unwrap();
    }
    file.rewind().unwrap();
    let output = Command::new("python3")
        .args(["-c", DUMP])
        .stdin(file)
        .stderr(Stdio::inherit())
        .output()
        .expect("this test compares with Python and needs `python3` on the path");
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}
