//! The targets in this process: cron expressions, JSON, queries, callback URLs, signatures of payment events.

use std::net::IpAddr;

use cued::domain::billing::subscription;
use cued::domain::json;
use cued::domain::schedule::cron::CronExpr;
use cued::domain::text::hex;
use cued::domain::webhook::address_policy::{AddressPolicy, AllowRule};
use cued::domain::webhook::callback_url::{CallbackTarget, MAX_URL, check_url};
use cued::http::input::query::Query;
use jiff::civil::{DateTime, date};
use ring::hmac;
use ureq::http::Uri;

use crate::fuzz::mutator::{Mutator, fuzz};

#[test]
fn cron_expressions() {
    #[rustfmt::skip]
    const SEEDS: &[&str] = &[
        "* * * * *",
        "*/15 0-6,22-2 1-31/2 jan-dec mon-fri",
        "0 9 * * 1-5",
        "30 22 29 2 *",
        "0 0 13 * fri",
        "59 23 31 12 7",
        "5/7 ? * */2 sun,3",
        "@daily",
        "@annually",
    ];
    #[rustfmt::skip]
    const WORDS: &[&str] = &[
        "*", "?", "/", "-", ",", " ", "  ", "\t", "0", "1", "7", "12", "23", "31", "59", "60", "99999999999",
        "*/", "*/2",
        "*/90", "1-5", "22-2", "fri-mon", "dec-jan", "mon", "SUN", "jan", "L", "W", "#", "15W", "5L", "@hourly",
        "@weekly",
        "@", "29 2", "30 2 *", "-1", "+1", "0x1", "ä", "\u{661}", "\u{a0}",
    ];
    const FIELDS: [&str; 6] = ["minute", "hour", "day-of-month", "month", "day-of-week", "expression"];
    let starts = [date(2026, 2, 28), date(2027, 12, 31), date(1969, 7, 20)].map(|day| day.at(23, 59, 30, 0));
    let mut turn = 0;
    fuzz("cron", 2_500_000, Mutator::new("cron", SEEDS, WORDS), |input| {
        let text = String::from_utf8_lossy(input);
        match CronExpr::parse(&text) {
            Err(error) => assert!(FIELDS.contains(&error.field) && !error.message.is_empty()),
            Ok(cron) if !cron.ever_matches() => {}
            Ok(cron) => {
                turn = (turn + 1) % starts.len();
                check_next(&cron, starts[turn]);
                return true;
            }
        }
        false
    });
}

/// The next run exists and is the only one up to itself, also for the second implementation.
fn check_next(cron: &CronExpr, after: DateTime) {
    let next = cron.next_civil(after).expect("an expression that matches has a next run");
    assert!(next > after && next.second() == 0, "{next} after {after}");
    // The count walks through the days in between.
    if next.year() <= after.year() + 1 {
        assert_eq!((cron.last_civil(after, next), cron.count_civil(after, next)), (Some(next), 1), "{after}");
    }
}

#[test]
fn json_documents() {
    #[rustfmt::skip]
    const SEEDS: &[&str] = &[
        r#"{"a": [1, 2.5, -0, 1e3, 1E-7, 123456789012345678901234567890], "b": null, "c": true, "d": false}"#,
        r#"{"text": "gr\u00fc\u00dfe \ud83d\ude00 \" \\ \/ \b\f\n\r\t", "é": {"": {}}, "": []}"#,
        r#"[[[[[[[[[[[[[[[[{"deep": [[[[[[[[]]]]]]]]}]]]]]]]]]]]]]]]]"#,
        r#" [ 0 , "" , { } ] "#,
        r#""\u0041""#,
        "1.7976931348623157e308",
    ];
    #[rustfmt::skip]
    const WORDS: &[&str] = &[
        "{", "}", "[", "]", ",", ":", "\"", "\\", "\\u", "\\ud800", "\\udc00", "\\u0000", "\\x", "null", "true",
        "false",
        "nul", "NaN", "Infinity", "0", "-0", "-", "1", "01", "1e", "1e400", "-1e400", "1e-400", "0.1", ".5",
        "5.", "1E+5",
        "9007199254740993", "18446744073709551616", "{\"a\":", "[[", "\u{feff}", "\n", "\u{1}", "é", "😀", "\"\":",
        "\"$serde_json::private::Number\"", " ", "//", "'",
    ];
    fuzz("json", 2_500_000, Mutator::new("json", SEEDS, WORDS), |input| {
        let Some(text) = compact(input) else { return false };
        assert_eq!(
            compact(text.as_bytes()).as_ref(),
            Some(&text),
            "the compact form is its own compact form"
        );
        true
    });
}

/// The compact form of a valid text.
fn compact(text: &[u8]) -> Option<String> {
    Some(json::read(text).ok()?.into_string())
}

#[test]
fn query_strings() {
    #[rustfmt::skip]
    const SEEDS: &[&str] = &[
        "limit=20&offset=0&status=active",
        "cue_id=cue_0123456789ab&status__in=pending,failed&worker_id=a+b%2Bc",
        "task=%C3%A4&agent=&wait=30",
        "execution_limit=100&execution_offset=9223372036854775807",
        "success=true&n=-5",
    ];
    #[rustfmt::skip]
    const WORDS: &[&str] = &[
        "&", "=", "%", "+", ";", "%00", "%zz", "%F", "%C3%A4", "%FF", "%26", "limit=", "offset=", "status=",
        "wait=",
        "status__in=", "true", "0", "1", "-1", "100", "101", "9223372036854775808", "99999999999999999999",
        "1e3", "0x1",
        "active", "pending,", "ä", "\u{feff}", "[]", "?", "#",
    ];
    fuzz("query", 2_000_000, Mutator::new("query", SEEDS, WORDS), |input| {
        let query = Query::parse(&String::from_utf8_lossy(input));
        let is_valid = read_query(&query);
        assert_eq!(read_query(&Query::parse_form(input)), is_valid, "a form has the same syntax");
        is_valid
    });
}

/// Reads parameters of every type, within their bounds.
fn read_query(query: &Query) -> bool {
    let page = query.pagination(20);
    assert!((1..=100).contains(&page.limit) && i64::try_from(page.offset).is_ok());
    assert!((0..=30).contains(&query.integer("wait", 0..=30, 0)));
    assert!(query.text("task", 0..=8).is_none_or(|text| text.chars().count() <= 8));
    query.boolean("success");
    query.one_of("status", &["active", "paused"]);
    query.some_of("status__in", &["pending", "failed", "success"]);
    query.finish().is_ok()
}

#[test]
fn callback_urls() {
    #[rustfmt::skip]
    const SEEDS: &[&str] = &[
        "https://example.com/hooks/1?a=b#c",
        "http://bücher.example:8080/",
        "HTTP://Sub.My_App-1.Example.COM.:00080/%C3%BC",
        "http://xn--bcher-kva.example/",
        "http://8.8.8.8/",
        "http://0x08080808:443",
        "https://[2606:4700::1111]:81/a{b}|c",
        "http://例え.テスト/x",
        "http://１２７.0.0.1/",
    ];
    #[rustfmt::skip]
    const WORDS: &[&str] = &[
        "http://", "https://", "://", "//", "/", ":", "@", "?", "#", "\\", "[", "]", "[::1]", "[::ffff:", "%",
        "%2e", ".", "..",
        "-", "_", "xn--", "xn--a", "xn--8g7ccp", "localhost", "127.0.0.1", "127.1", "0x7f", "0177",
        "2130706433", "10.0.0.1",
        "169.254.169.254", "8.8.8.8", "::", "ffff", "64:ff9b::", "65535", "65536", "0", "é", "ß", "ü", "。", "．",
        "／", "＠",
        "：", "①", "１", "𝟏", "ⓛⓞⓒⓐⓛⓗⓞⓢⓣ", "\u{ad}", "\u{200d}", "\u{202e}", "\u{308}", "א", "\u{661}",
        "\u{fffd}", " ", "\t",
        "\r\n", "\0", "a", "example", ".com",
    ];
    let rules = ["public", "10.0.0.0/8"].map(|rule| rule.parse::<AllowRule>().unwrap());
    let policy = AddressPolicy::new(&rules);
    fuzz("callback URL", 2_000_000, Mutator::new("callback URL", SEEDS, WORDS), |input| {
        let given = String::from_utf8_lossy(input);
        let Ok(target) = check_url(&given, &policy) else { return false };
        assert_eq!(check_url(&target.url, &policy).as_ref(), Ok(&target), "the stored URL is its own form");
        check_target(&target, &policy);
        true
    });
}

/// The host is canonical and allowed, and the HTTP library reads the stored URL as the check did.
fn check_target(target: &CallbackTarget, policy: &AddressPolicy) {
    let host = target.host.as_str();
    assert!(target.url.is_ascii() && target.url.len() <= MAX_URL && target.port > 0);
    assert!(
        !host.is_empty() && host.len() <= 253 && host == host.to_ascii_lowercase() && !host.ends_with('.')
    );
    match host.parse::<IpAddr>() {
        Ok(address) => {
            assert_eq!(address.to_string(), host);
            assert!(policy.allows(address), "{address} is blocked");
        }
        Err(_) => {
            assert!(
                host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte)),
                "{host}"
            );
            assert!(host != "localhost" && !host.ends_with(".localhost"));
            assert!(host.split('.').all(|label| (1..=63).contains(&label.len())), "{host}");
        }
    }
    let uri: Uri = target.url.parse().expect("the HTTP library reads it");
    assert_eq!(uri.path(), target.path);
    let port = uri.port_u16().unwrap_or(if uri.scheme_str() == Some("https") { 443 } else { 80 });
    assert_eq!((port, uri.scheme_str() == Some("https")), (target.port, target.https));
    if host.parse::<IpAddr>().is_err() {
        let read = uri.host().unwrap();
        assert!(read.strip_suffix('.').unwrap_or(read).eq_ignore_ascii_case(host), "{read} is not {host}");
    }
}

#[test]
fn signatures_of_payment_events() {
    const SECRET: &str = "whsec_test";
    const BODY: &[u8] = br#"{"id": "evt_1"}"#;
    const TIME: &str = "1893456000";
    #[rustfmt::skip]
    const WORDS: &[&str] = &[
        "t=", "v1=", "v0=", ",", "=", " ", ", ", "1893456000", "1893456300", "1893456301", "1893455699", "-1",
        "+1893456000",
        "9223372036854775807", "-9223372036854775808", "99999999999999999999", "00", "ff", "FF", "zz", "é",
        "\0", "t", "v1",
    ];
    let message = [TIME.as_bytes(), b".", BODY].concat();
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, SECRET.as_bytes()), &message);
    let genuine = hex::encode(tag.as_ref());
    let (long, other) = (format!("t={TIME},v1={genuine},v0={genuine}"), format!("v1={genuine} , t={TIME}"));
    let seeds = [long.as_str(), other.as_str(), "t=1893456000,v1=00,v1=ff", "t=0"];
    let now = "2030-01-01T00:00:00Z".parse().unwrap();
    fuzz("signature", 2_000_000, Mutator::new("signature", &seeds, WORDS), |input| {
        let header = String::from_utf8_lossy(input);
        let accepted = subscription::verify(Some(&header), BODY, SECRET, now).is_ok();
        // Nothing but the genuine tag at the genuine time.
        assert!(!accepted || (header.to_ascii_lowercase().contains(&genuine) && header.contains(TIME)));
        accepted
    });
}
