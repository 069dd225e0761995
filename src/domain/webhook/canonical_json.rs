//! The canonical JSON of sent and signed bodies (contract §6): byte for byte the output of Python's
//! `json.dumps(json.loads(text), sort_keys=True)`. Parsing and the compact form are in `json`.

use serde_json::{Map, Number, Value};

/// The canonical text of a value parsed by `json::read`: ASCII only, keys in code point order.
#[must_use]
pub fn canonical(value: &Value) -> String {
    let mut text = String::new();
    write_value(&mut text, value);
    text
}

fn write_value(out: &mut String, value: &Value) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(true) => out.push_str("true"),
        Value::Bool(false) => out.push_str("false"),
        Value::Number(number) => write_number(out, number),
        Value::String(string) => write_string(out, string),
        Value::Array(items) => write_array(out, items),
        Value::Object(fields) => write_object(out, fields),
    }
}

fn write_array(out: &mut String, items: &[Value]) {
    out.push('[');
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            out.push_str(", ");
        }
        write_value(out, item);
    }
    out.push(']');
}

fn write_object(out: &mut String, fields: &Map<String, Value>) {
    // Sorted here although serde_json's map is sorted: a dependency that enables its feature `preserve_order` would
    // change that for the whole program. The order of UTF-8 bytes is the order of code points.
    let mut sorted: Vec<_> = fields.iter().collect();
    sorted.sort_unstable_by_key(|(key, _)| *key);
    out.push('{');
    for (index, (key, value)) in sorted.into_iter().enumerate() {
        if index > 0 {
            out.push_str(", ");
        }
        write_string(out, key);
        out.push_str(": ");
        write_value(out, value);
    }
    out.push('}');
}

fn write_string(out: &mut String, string: &str) {
    out.push('"');
    for char in string.chars() {
        match char {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            ' '..='~' => out.push(char),
            _ => write_escaped(out, char),
        }
    }
    out.push('"');
}

fn write_escaped(out: &mut String, char: char) {
    for unit in char.encode_utf16(&mut [0; 2]) {
        out.push_str("\\u");
        for shift in [12, 8, 4, 0] {
            out.extend(char::from_digit(u32::from(*unit >> shift & 0xF), 16));
        }
    }
}

fn write_number(out: &mut String, number: &Number) {
    let text = number.as_str();
    let is_double = text.contains(['.', 'e', 'E']);
    match number.as_f64().and_then(Number::from_f64) {
        Some(double) if is_double => write_double(out, double.as_str()),
        _ if text == "-0" => out.push('0'),
        _ => out.push_str(text),
    }
}

/// Python's `repr` of a double, from the shortest decimal text that parses back to it, in any notation.
///
/// That text is serde_json's: of two equally near shortest texts it takes the one with the even digit, as Python
/// does. The standard library's formatting does not (1000000000000000.25 ends in .3 there).
fn write_double(out: &mut String, shortest: &str) {
    let unsigned = shortest.trim_start_matches('-');
    let (mantissa, exponent) = unsigned.split_once('e').unwrap_or((unsigned, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let all = format!("{whole}{fraction}");
    let digits = all.trim_start_matches('0');
    // A double's exponent has at most three digits, so the default is never used.
    let shift = exponent.parse().unwrap_or(0) + length(whole) - (length(&all) - length(digits));
    if shortest.len() > unsigned.len() {
        out.push('-');
    }
    match digits.trim_end_matches('0') {
        "" => out.push_str("0.0"),
        digits => write_digits(out, digits, shift),
    }
}

/// Writes `0.DIGITS` × 10^`point`: in exponent notation below 1e-4 and from 1e16 on, as Python does.
fn write_digits(out: &mut String, digits: &str, point: i32) {
    let zeros = |count: i32| (0..count).map(|_| '0');
    match point {
        -3..=0 => {
            out.push_str("0.");
            out.extend(zeros(-point));
            out.push_str(digits);
        }
        1..=16 if length(digits) <= point => {
            out.push_str(digits);
            out.extend(zeros(point - length(digits)));
            out.push_str(".0");
        }
        1..=16 => write_with_point(out, digits, point),
        _ if digits.len() == 1 => out.push_str(&format!("{digits}e{:+03}", point - 1)),
        _ => {
            write_with_point(out, digits, 1);
            out.push_str(&format!("e{:+03}", point - 1));
        }
    }
}

fn write_with_point(out: &mut String, digits: &str, point: i32) {
    for (index, digit) in (0..).zip(digits.chars()) {
        if index == point {
            out.push('.');
        }
        out.push(digit);
    }
}

/// The length of a text of a few dozen digits.
fn length(digits: &str) -> i32 {
    i32::try_from(digits.len()).unwrap_or(i32::MAX)
}
