//! The canonical JSON of sent and signed bodies (contract §6): byte for byte the output of Python's
//! `json.dumps(json.loads(text), sort_keys=True)`. Parsing and the compact form are in `json`.

use crate::domain::json::JsonStr;

/// The canonical text of a value: ASCII only. Its keys are in code point order already.
pub fn canonical(json: JsonStr<'_>) -> String {
    let mut rest = json.as_str();
    let mut out = String::with_capacity(rest.bytes().map(max_written).sum());
    while let Some(first) = rest.bytes().next() {
        let written = match first {
            b'"' => write_string(&mut out, rest),
            b'-' | b'0'..=b'9' => write_number(&mut out, rest),
            _ => {
                out.push(char::from(first));
                if matches!(first, b',' | b':') {
                    out.push(' ');
                }
                1
            }
        };
        rest = rest.get(written..).unwrap_or_default();
    }
    out
}

/// At most how many bytes stand for this byte. The result is allocated once: growing would take twice its size.
fn max_written(byte: u8) -> usize {
    match byte {
        // An exponent gets a sign or a leading zero.
        b',' | b':' | b'e' => 2,
        // The first byte of a character outside the Basic Multilingual Plane, which becomes two escapes.
        0xF0.. => 12,
        0x7F | 0xC0..=0xEF => 6,
        0x80..=0xBF => 0,
        _ => 1,
    }
}

/// Writes the string at the start of `text`. Returns its length there.
fn write_string(out: &mut String, text: &str) -> usize {
    let mut at = 1;
    out.push('"');
    loop {
        // The compact form escapes the quote, the backslash and control characters as Python does.
        let plain = |byte: &u8| matches!(byte, b' '..=b'~') && !matches!(byte, b'"' | b'\\');
        let run = text.as_bytes()[at..].iter().take_while(|byte| plain(byte)).count();
        out.push_str(&text[at..at + run]);
        at += run;
        match text[at..].chars().next() {
            Some('"') => {
                out.push('"');
                return at + 1;
            }
            Some('\\') => {
                let escape = text.get(at..at + 2).unwrap_or_default();
                out.push_str(escape);
                at += escape.len().max(1);
            }
            Some(char) => {
                write_escaped(out, char);
                at += char.len_utf8();
            }
            None => return at,
        }
    }
}

fn write_escaped(out: &mut String, char: char) {
    for unit in char.encode_utf16(&mut [0; 2]) {
        out.push_str("\\u");
        for shift in [12, 8, 4, 0] {
            out.extend(char::from_digit(u32::from(*unit >> shift & 0xF), 16));
        }
    }
}

/// Writes the number at the start of `text`. Returns its length there.
fn write_number(out: &mut String, text: &str) -> usize {
    let is_part = |byte: &u8| matches!(byte, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E');
    let length = text.bytes().take_while(is_part).count();
    let number = &text[..length];
    if number.contains(['.', 'e']) {
        write_double(out, number)
    } else {
        out.push_str(number)
    }
    length
}

/// Python's `repr` of a double, from serde_json's text: both take the even one of two equally near shortest texts,
/// which the standard library does not (1000000000000000.25 ends in .3 there).
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::json;

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
            let read = json::read(text.as_bytes()).unwrap();
            assert_eq!(canonical(read.get()), *expected, "of {text}");
        }
    }
}
