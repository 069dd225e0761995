//! Canonical JSON against a table and against Python itself.

use std::io::{Seek as _, Write as _};
use std::process::{Command, Stdio};

use cued::domain::json::{self, JsonText};
use cued::domain::webhook::canonical_json::canonical;
use serde_json::{Value, json};

use crate::support::json_documents::document;
use crate::support::random::Random;

const DOCUMENTS: usize = 20_000;

const DUMP: &str = "\
import json, sys
for line in sys.stdin.buffer:
    print(json.dumps(json.loads(line), sort_keys=True))
";

/// A text and its canonical form in Python 3.
#[rustfmt::skip]
const TABLE: &[(&str, &str)] = &[
    ("null", "null"), ("true", "true"), (" false ", "false"), ("[]", "[]"), ("{}", "{}"), ("\"\"", "\"\""),
    (r#"{"b":1,"a":[1,2,{"d":null,"c":"x"}]}"#, r#"{"a": [1, 2, {"c": "x", "d": null}], "b": 1}"#),
    (r#"{"a":1,"b":2,"a":3}"#, r#"{"a": 3, "b": 2}"#),
    // Keys sort by code point, not by UTF-16 unit: U+FF5E before U+1F600.
    ("{\"\u{1f600}\":1,\"\u{ff5e}\":2,\"é\":3,\"z\":4,\"Z\":5}",
     r#"{"Z": 5, "z": 4, "\u00e9": 3, "\uff5e": 2, "\ud83d\ude00": 1}"#),
    (r#""\"\\\/\b\f\n\r\t""#, r#""\"\\/\b\f\n\r\t""#),
    (r#""\u0000\u001F\u007f\u0080""#, r#""\u0000\u001f\u007f\u0080""#),
    ("\"~\u{7f}\u{a0}\u{2028}\u{10ffff}\"", r#""~\u007f\u00a0\u2028\udbff\udfff""#),
    ("0", "0"), ("-0", "0"), ("-1", "-1"), ("18446744073709551616", "18446744073709551616"),
    ("123456789012345678901234567890123456789012345678901234567890",
     "123456789012345678901234567890123456789012345678901234567890"),
    ("0.0", "0.0"), ("-0.0", "-0.0"), ("-0e0", "-0.0"), ("0e999999999999999999999", "0.0"), ("1.0", "1.0"),
    ("1.50", "1.5"), ("1E5", "100000.0"), ("1e+2", "100.0"), ("100e-2", "1.0"), ("0.1", "0.1"),
    ("0.0001", "0.0001"), ("0.00012345", "0.00012345"), ("0.00001", "1e-05"), ("0.000012345", "1.2345e-05"),
    ("999999999999999.9", "999999999999999.9"), ("1e15", "1000000000000000.0"), ("123456789e8", "1.23456789e+16"),
    ("9999999999999998.0", "9999999999999998.0"), ("1e16", "1e+16"), ("12345678901234567.0", "1.2345678901234568e+16"),
    ("9007199254740993.0", "9007199254740992.0"), ("1e22", "1e+22"), ("1e100", "1e+100"), ("-1.5e-7", "-1.5e-07"),
    ("0.30000000000000004", "0.30000000000000004"), ("5.684341886080802e-14", "5.684341886080802e-14"),
    // Of two shortest texts at the same distance, the one with the even last digit counts.
    ("1000000000000000.25", "1000000000000000.2"), ("1000000000000000.75", "1000000000000000.8"),
    ("5e-324", "5e-324"), ("2.2250738585072014e-308", "2.2250738585072014e-308"), ("1e-400", "0.0"),
    ("-1e-999999999999999999999", "-0.0"), ("1.7976931348623157e308", "1.7976931348623157e+308"),
];

#[test]
fn the_table_matches_python() {
    for (text, expected) in TABLE {
        assert_eq!(canonical_of(text), *expected, "of {text}");
    }
}

#[test]
fn values_built_in_code_match_parsed_ones() {
    let value = json!({"b": 1e16, "a": 2.0, "c": u64::MAX, "d": -1e-7});
    assert_eq!(
        canonical_of_value(&value),
        r#"{"a": 2.0, "b": 1e+16, "c": 18446744073709551615, "d": -1e-07}"#
    );
    let odd: Vec<Value> = ["-0", "1e400"].iter().map(|text| Value::Number(text.parse().unwrap())).collect();
    assert_eq!(
        canonical_of_value(&Value::Array(odd)),
        "[-0, 1e+400]",
        "outside the range of a double: unchanged"
    );
}

#[test]
fn doubles_at_every_edge_match_python() {
    let powers_of_two = (0..2046_u64).map(|exponent| exponent << 52);
    let powers_of_ten = (-323..309).map(|exponent| format!("1e{exponent}").parse::<f64>().unwrap().to_bits());
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
    let texts: Vec<String> = (0..DOCUMENTS).map(|_| document(&mut random, 4)).collect();
    let table = TABLE.iter().map(|(text, _)| (*text).to_owned());
    let texts: Vec<String> = texts.into_iter().chain(table).collect();
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
