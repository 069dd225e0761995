//! Random input for every parser: mutations of valid texts, and heads of HTTP requests.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Shutdown};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use cued::domain::schedule::cron::CronExpr;
use cued::domain::schedule::interval::Interval;
use cued::domain::schedule::words::{Understood, WordsError, understand};
use cued::domain::schedule::{ScheduleError, ScheduleRule, Zone, parse_instant};
use cued::domain::text::hex;
use cued::domain::webhook::address_policy::{AddressPolicy, AllowRule};
use cued::domain::webhook::callback::{CallbackTarget, MAX_URL, check_url};
use cued::domain::{billing, json};
use cued::http::list::Query;
use cued::http::routes::ROUTES;
use jiff::civil::{DateTime, date};
use ring::hmac;
use ureq::http::Uri;

use crate::support::*;

/// The longest input, so that one that grows does not slow down the others.
const MAX_LENGTH: usize = 2048;
/// Accepted inputs that are kept as further seeds.
const MAX_KEPT: usize = 256;
/// Bytes that end or begin something in most of the formats.
const EDGES: &[u8] =
    b"\0\t\n\r \"%&'*+,-./0123456789:;<=>?@[\\]^_`{|}~\x7f\x80\xc3\xe2\xef\xf0\xff";

/// Inputs for one target: seeds that are changed at random, mostly by words of the target's dictionary.
pub struct Mutator {
    target: String,
    pub random: Random,
    seeds: Vec<Vec<u8>>,
    kept: Vec<Vec<u8>>,
    dictionary: &'static [&'static str],
    input: Vec<u8>,
}

impl Mutator {
    pub fn new(target: &str, seeds: &[&str], dictionary: &'static [&'static str]) -> Self {
        let seeds = seeds.iter().map(|seed| seed.as_bytes().to_vec()).collect();
        let random = Random::seeded(&format!("fuzz {target}"));
        let target = target.to_owned();
        Self { target, random, seeds, kept: Vec::new(), dictionary, input: Vec::new() }
    }

    /// The next input: a seed, or an input that was accepted before, with one to eight changes.
    pub fn next(&mut self) -> &[u8] {
        let known = if self.kept.is_empty() || self.random.below(2) == 0 {
            &self.seeds
        } else {
            &self.kept
        };
        let seed = &known[self.random.index(known.len())];
        self.input.clear();
        self.input.extend_from_slice(seed);
        for _ in 0..=self.random.below(8) {
            self.change();
        }
        self.input.truncate(MAX_LENGTH);
        &self.input
    }

    /// Keeps the last input as a seed, in place of a random one where there are many.
    fn keep(&mut self) {
        if self.kept.len() < MAX_KEPT {
            self.kept.push(self.input.clone());
        } else if self.random.below(16) == 0 {
            let place = self.random.index(MAX_KEPT);
            self.kept[place].clone_from(&self.input);
        }
    }

    fn change(&mut self) {
        let length = self.input.len();
        let at = self.random.index(length + 1);
        let end = (at + self.random.index(9)).min(length);
        match self.random.below(10) {
            0 if at < length => self.input[at] ^= 1 << self.random.below(8),
            1 if at < length => self.input[at] = EDGES[self.random.index(EDGES.len())],
            2 => self.input.insert(at, EDGES[self.random.index(EDGES.len())]),
            3 => drop(self.input.drain(at..end)),
            4 => self.input.truncate(at),
            5 => {
                let copy = self.input[at..end].to_vec();
                let place = self.random.index(length + 1);
                self.input.splice(place..place, copy);
            }
            6 => {
                let other = &self.seeds[self.random.index(self.seeds.len())];
                let tail = &other[self.random.index(other.len() + 1)..];
                self.input.truncate(at);
                self.input.extend_from_slice(tail);
            }
            7 => {
                let word = self.dictionary[self.random.index(self.dictionary.len())];
                let copies = 1 << self.random.below(8);
                self.input.splice(at..at, word.repeat(copies).into_bytes());
                self.input.truncate(2 * MAX_LENGTH);
            }
            _ => {
                let word = self.dictionary[self.random.index(self.dictionary.len())];
                let end = if self.random.below(2) == 0 { at } else { end };
                self.input.splice(at..end, word.bytes());
            }
        }
    }
}

/// Calls `check` with half a million inputs in the long tests, others each time. `check` returns whether the target
/// accepted the input, and panics if it breaks a property. A failure shows the input.
fn fuzz(mut mutator: Mutator, mut check: impl FnMut(&[u8]) -> bool) {
    let inputs = budget(500_000);
    let (begun, mut accepted) = (Instant::now(), 0_u64);
    for number in 0..inputs {
        let input = mutator.next();
        match catch_unwind(AssertUnwindSafe(|| check(input))) {
            Ok(false) => {}
            Ok(true) => {
                accepted += 1;
                mutator.keep();
            }
            Err(panic) => {
                let (target, input) = (&mutator.target, mutator.input.escape_ascii());
                eprintln!("fuzz {target}: input {number}: {input}");
                resume_unwind(panic);
            }
        }
    }
    assert!(accepted > 0, "no input is accepted: the target is not reached");
    report(&mutator.target, inputs, accepted, begun);
}

/// The number of inputs in this run.
pub fn budget(full: u64) -> u64 {
    if is_full_run() { full } else { full / 200 }
}

/// Shows the figures of a long run. Not by `eprintln!`, whose text the test harness shows for failed tests only.
pub fn report(target: &str, inputs: u64, accepted: u64, begun: Instant) {
    if is_full_run() {
        let rate = inputs as f64 / begun.elapsed().as_secs_f64();
        let line =
            format!("fuzz {target}: {inputs} inputs, {accepted} accepted, {rate:.0} a second\n");
        io::stderr().write_all(line.as_bytes()).unwrap();
    }
}

#[test]
fn the_mutator_repeats_its_inputs_and_bounds_their_length() {
    let inputs = |seed: u64| {
        let mut mutator = Mutator::new("itself", &["* * * * *", "@daily"], &["*/", "fri-mon"]);
        mutator.random = Random::new(seed);
        let take = |_| {
            let input = mutator.next().to_vec();
            mutator.keep();
            input
        };
        (0..2_000).map(take).collect::<Vec<_>>()
    };
    let first = inputs(1);
    assert_eq!(first, inputs(1));
    assert_ne!(first, inputs(2));
    assert!(first.iter().all(|input| input.len() <= MAX_LENGTH));
    let mut distinct = first.clone();
    distinct.sort();
    distinct.dedup();
    assert!(distinct.len() > 1_500, "{} of 2,000 differ", distinct.len());
}

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
    const FIELDS: [&str; 6] =
        ["minute", "hour", "day-of-month", "month", "day-of-week", "expression"];
    let starts =
        [date(2026, 2, 28), date(2027, 12, 31), date(1969, 7, 20)].map(|day| day.at(23, 59, 30, 0));
    let mut turn = 0;
    fuzz(Mutator::new("cron", SEEDS, WORDS), |input| {
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

#[test]
fn schedules_in_words() {
    #[rustfmt::skip]
    const SEEDS: &[&str] = &[
        "every 5m",
        "@every 1 hour 30 min",
        "every weekday at 9",
        "weekends at 10:30",
        "mon,wed and fri 18:30",
        "monday to friday at 6:30 pm",
        "monthly on the 1st and 15th at 8",
        "last day of the month at 18:00",
        "every hour at :15",
        "in 10 minutes",
        "+1h30m",
        "tomorrow 9:00",
        "2026-12-24 18:00",
        "2026-12-24T18:00:00.5+01:00",
        "*/5 9-17 * * mon-fri",
    ];
    #[rustfmt::skip]
    const WORDS: &[&str] = &[
        " ", "  ", ",", " and ", "+", "-", ":", "@", "every ", "each ", "in ", "at ", "on ", "the ", "of ", "to ", "day",
        "days", "daily", "hourly", "hour", "minute", "week", "weekly", "month", "monthly", "weekday", "weekends", "last",
        "first", "1st", "31st", "32nd", "mon", "sundays", "sat-mon", "mon-", "-mon", "today", "tomorrow", "noon", "am",
        "pm", "12am", "0pm", "9", "9:00", ":15", "24:00", "9:", ":", "99999999999", "-1", "0s", "PT5M", "P1Y", "366d",
        "2026-02-30", "9999-12-31", "0000-01-01", "ä", "\u{661}", "\u{a0}", "\u{130}",
    ];
    let zone = Zone::find_built_in("Europe/Berlin").unwrap();
    let now = "2026-11-26T12:00:00.5Z".parse().unwrap();
    fuzz(Mutator::new("words", SEEDS, WORDS), |input| {
        let text = String::from_utf8_lossy(input);
        match understand(&text, &zone, now) {
            Err(ScheduleError::Words(WordsError { message, span: (from, to) })) => {
                assert!(
                    from <= to && to <= text.chars().count() && !message.is_empty(),
                    "{text:?}: {from}..{to}"
                );
                false
            }
            Err(error) => {
                assert!(!error.to_string().is_empty());
                false
            }
            Ok(Understood { schedule, local, .. }) => {
                // The API takes what was understood.
                match &schedule.rule {
                    ScheduleRule::Recurring(cron) => assert!(CronExpr::parse(cron.text()).is_ok()),
                    ScheduleRule::Every(every) => {
                        assert!(Interval::parse(every.text(), now).is_ok())
                    }
                    ScheduleRule::Once(at) => {
                        assert_eq!(parse_instant(&at.to_string(), &zone), Ok(*at))
                    }
                }
                let note = local.and_then(|local| schedule.skipped_note(&local));
                assert!(
                    !schedule.describe().is_empty()
                        && note.is_none_or(|note| note.starts_with("gap: "))
                );
                true
            }
        }
    });
}

/// The next run exists and is the only one up to itself, also for the second implementation.
fn check_next(cron: &CronExpr, after: DateTime) {
    let next = cron.next_civil(after).expect("an expression that matches has a next run");
    assert!(next > after && next.second() == 0, "{next} after {after}");
    // The count walks through the days in between.
    if next.year() <= after.year() + 1 {
        assert_eq!(
            (cron.last_civil(after, next), cron.count_civil(after, next)),
            (Some(next), 1),
            "{after}"
        );
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
    fuzz(Mutator::new("json", SEEDS, WORDS), |input| {
        let Some(text) = compact(input) else { return false };
        // The compact form is its own compact form.
        assert_eq!(compact(text.as_bytes()).as_ref(), Some(&text));
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
        "tag=a&tag=b.c_d-e",
    ];
    #[rustfmt::skip]
    const WORDS: &[&str] = &[
        "&", "=", "%", "+", ";", "%00", "%zz", "%F", "%C3%A4", "%FF", "%26", "limit=", "offset=", "status=",
        "wait=", "&tag=",
        "status__in=", "true", "0", "1", "-1", "100", "101", "9223372036854775808", "99999999999999999999",
        "1e3", "0x1",
        "active", "pending,", "ä", "\u{feff}", "[]", "?", "#",
    ];
    fuzz(Mutator::new("query", SEEDS, WORDS), |input| read_query(&Query::decode(input)));
}

/// Reads parameters of every type, within their bounds.
fn read_query(query: &Query) -> bool {
    let page = query.pagination(20);
    assert!((1..=100).contains(&page.limit) && i64::try_from(page.offset).is_ok());
    assert!(query.integer("wait", 0..=30).is_none_or(|wait: u64| wait <= 30));
    query.instant("since");
    assert!(query.text("task", 0..=8).is_none_or(|text| text.chars().count() <= 8));
    query.boolean("success");
    assert!(query.tags().iter().len() <= 10);
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
    fuzz(Mutator::new("callback URL", SEEDS, WORDS), |input| {
        let given = String::from_utf8_lossy(input);
        let Ok(target) = check_url(&given, &policy) else { return false };
        // The stored URL is its own form.
        assert_eq!(check_url(&target.url, &policy).as_ref(), Ok(&target));
        check_target(&target, &policy);
        true
    });
}

/// The host is canonical and allowed, and the HTTP library reads the stored URL as the check did.
fn check_target(target: &CallbackTarget, policy: &AddressPolicy) {
    let host = target.host.as_str();
    assert!(target.url.is_ascii() && target.url.len() <= MAX_URL && target.port > 0);
    assert!(
        !host.is_empty()
            && host.len() <= 253
            && host == host.to_ascii_lowercase()
            && !host.ends_with('.')
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
        assert!(
            read.strip_suffix('.').unwrap_or(read).eq_ignore_ascii_case(host),
            "{read} is not {host}"
        );
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
    let (long, other) =
        (format!("t={TIME},v1={genuine},v0={genuine}"), format!("v1={genuine} , t={TIME}"));
    let seeds = [long.as_str(), other.as_str(), "t=1893456000,v1=00,v1=ff", "t=0"];
    let now = "2030-01-01T00:00:00Z".parse().unwrap();
    fuzz(Mutator::new("signature", &seeds, WORDS), |input| {
        let header = String::from_utf8_lossy(input);
        let accepted = billing::verify(Some(&header), BODY, SECRET, now).is_ok();
        // Nothing but the genuine tag at the genuine time.
        assert!(
            !accepted || (header.to_ascii_lowercase().contains(&genuine) && header.contains(TIME))
        );
        accepted
    });
}

const INPUTS: u64 = 160_000;
/// Requests of one connection. The first bad one ends it, and its port is kept for a while: there are some 28,000.
const PIPELINED: u64 = 8;

#[rustfmt::skip]
const SEEDS: &[&str] = &[
    "GET /status HTTP/1.1\r\nHost: x\r\n\r\n",
    "HEAD /v1/info HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: abc\r\n\r\n",
    "GET /v1/cues?limit=5&offset=%20 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer cue_sk_0123\r\n\r\n",
    "POST /v1/auth/device-code HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}",
    "POST /v1/echo/0123456789abcdef HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    "OPTIONS * HTTP/1.1\r\nHost: x\r\nOrigin: http://a.example\r\nX-Forwarded-For: 1.2.3.4, ::1\r\n\r\n",
    "GET /v1/auth/verify?token=a&device_code=b HTTP/1.0\r\n\r\n",
    "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0",
];
#[rustfmt::skip]
const WORDS: &[&str] = &[
    "\r\n", "\n", "\r", "\r\n\r\n", " ", "\t", ":", ": ", "GET ", "POST ", "CONNECT ", "/", "//", "*", "?", "#",
    "%", "%00",
    "%2f", "..", "http://x/", "HTTP/1.1", "HTTP/1.0", "HTTP/2.0", "HTTP/9.9", "Host: x\r\n", "Host: y\r\n",
    "Host:\r\n",
    "Content-Length: 0\r\n", "Content-Length: -1\r\n", "Content-Length: 1\r\nContent-Length: 2\r\n",
    "Content-Length: 99999999999\r\n",
    "Transfer-Encoding: chunked\r\n", "Transfer-Encoding: identity, chunked\r\n", "Expect: 100-continue\r\n",
    "Connection: close\r\n", "Connection: upgrade\r\nUpgrade: h2c\r\n", "Idempotency-Key: k\r\n", "Cookie: a=b\r\n",
    "X-Forwarded-For: ,,\r\n", "Authorization: Bearer \r\n", " folded\r\n", "\0", "\u{7f}", "é", "{", "}",
    "0\r\n\r\n",
    "FFFFFFFFFFFFFFFF\r\n", "X: y\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
];

#[test]
fn http_heads() {
    let fixture = Fixture::new();
    let server = HttpServer::start(Arc::clone(&fixture.app), ROUTES);
    let mut mutator = Mutator::new("HTTP head", SEEDS, WORDS);
    let (begun, inputs, mut answers) =
        (Instant::now(), budget(INPUTS).next_multiple_of(PIPELINED), 0);
    for number in 0..inputs / PIPELINED {
        let mut sent = Vec::new();
        for _ in 0..PIPELINED {
            // Half of the requests are sound, so that the others are not all cut off by the first.
            if mutator.random.below(2) == 0 {
                sent.extend_from_slice(SEEDS[0].as_bytes());
            } else {
                sent.extend_from_slice(mutator.next());
            }
        }
        let reply = exchange(server.addr, &sent);
        let is_http = reply.is_empty()
            || reply.starts_with(b"HTTP/1.")
            || sent.starts_with(b"PRI * HTTP/2.0");
        assert!(
            is_http,
            "connection {number}: {} got {}",
            sent.escape_ascii(),
            reply.escape_ascii()
        );
        let head = b"HTTP/1.";
        answers += reply.windows(head.len()).filter(|part| part == head).count() as u64;
        let fault = b"HTTP/1.1 500";
        let is_fault = reply.windows(fault.len()).any(|part| part == fault);
        assert!(!is_fault, "{} got {}", sent.escape_ascii(), reply.escape_ascii());
        if number % 1_000 == 0 {
            assert_eq!(server.request("GET /status HTTP/1.1\r\nHost: x\r\n\r\n").status, 200);
        }
    }
    assert_eq!(server.request("GET /status HTTP/1.1\r\nHost: x\r\n\r\n").status, 200);
    assert!(answers > 0);
    report("HTTP head", inputs, answers, begun);
}

/// Sends all and reads until the server closes the connection, which it must do: the client has closed its side.
fn exchange(addr: SocketAddr, sent: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(addr).unwrap();
    stream.set_read_timeout(Some(HANG_TIMEOUT)).unwrap();
    // The server may have closed after a bad request, with a reset if bytes are unread.
    if stream.write_all(sent).is_ok() {
        drop(stream.shutdown(Shutdown::Write));
    }
    let mut reply = Vec::new();
    match stream.read_to_end(&mut reply) {
        Err(error) if error.kind() == ErrorKind::WouldBlock => {
            panic!("the server keeps the connection open after {}", sent.escape_ascii())
        }
        Ok(_) | Err(_) => reply,
    }
}
