//! Invalid callbacks, on a server with public callbacks only.

use serde_json::{Map, Value, json};

use super::{Case, check, server};

/// Non-public addresses in every notation.
const BLOCKED: [&str; 62] = [
    "localhost",
    "LOCALHOST",
    "localhost.",
    "hooks.localhost",
    "127.0.0.1",
    "127.0.0.1.",
    "127.255.255.254",
    "127.1",
    "127.0.1",
    "2130706433",
    "0x7f000001",
    "0x7f.1",
    "0x7F.0x0.0x0.0x1",
    "0177.0.0.1",
    "017700000001",
    "0",
    "0.0.0.0",
    "0.1.2.3",
    "10.0.0.1",
    "10.1",
    "172.16.0.1",
    "172.31.255.255",
    "192.168.1.1",
    "3232235777",
    "0300.0250.1.1",
    "169.254.169.254",
    "0xa9fea9fe",
    "100.64.0.1",
    "100.127.255.255",
    "192.0.0.1",
    "192.0.2.1",
    "198.18.0.1",
    "198.19.255.255",
    "198.51.100.1",
    "203.0.113.9",
    "224.0.0.1",
    "239.255.255.255",
    "240.0.0.1",
    "255.255.255.255",
    "%31%32%37.0.0.1",
    "\u{2460}\u{2461}\u{2466}.0.0.1",
    "\u{ff11}\u{ff12}\u{ff17}\u{3002}0.0.1",
    "lo\u{ff43}alhost",
    "[::]",
    "[::1]",
    "[0:0:0:0:0:0:0:1]",
    "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]",
    "[::ffff:10.0.0.1]",
    "[::127.0.0.1]",
    "[64:ff9b::7f00:1]",
    "[64:ff9b::a9fe:a9fe]",
    "[2002:7f00:1::]",
    "[2002:a00:1::1]",
    "[fe80::1]",
    "[febf::1]",
    "[fc00::1]",
    "[fdff::1]",
    "[ff02::1]",
    "[2001:db8::1]",
    "[100::1]",
    "[fe80::1%25eth0]",
];

fn url(text: &str) -> Case {
    let shown: String = text.chars().take(60).collect();
    Case::cue("callback.url", json!(text)).named(&format!("url {shown:?}"))
}

fn header(name: &str, value: Value) -> Case {
    let headers = Map::from_iter([(name.to_owned(), value)]);
    Case::cue("callback.headers", Value::Object(headers)).named(&format!("header {name:?}"))
}

#[test]
fn only_absolute_http_urls_are_accepted() {
    let urls = [
        "",
        " ",
        "not a url",
        "/relative",
        "hooks.example.com/cue",
        "//example.com/x",
        "http://",
        "https://",
        "http:///path",
        "http:example.com",
        "http:/example.com",
        "ftp://example.com/",
        "file:///etc/passwd",
        "javascript:alert(1)",
        "gopher://example.com/",
        "data:text/plain,x",
        "https://user:secret@example.com/",
        "https://user@example.com/",
        "https://@example.com/",
        "https://example.com:99999/",
        "https://example.com:port/",
        "https://exa mple.com/",
        "https://example.com/a b",
        "https://example.com/\r\nX-Evil: 1",
        "https://example.com/\n",
        "https://example.com/\tx",
        "https://example.com\\@127.0.0.1/",
        "https://[::1",
        "https://[zz]/",
        "https://xn--a.example.com/",
        "https://b\u{fc}cher%2e.example.com/",
        "https://.example.com/",
        "https://example..com/",
    ];
    let long = format!("https://example.com/{}", "a".repeat(2_029));
    let longest = format!("https://example.com/{}", "a".repeat(2_028));
    assert_eq!((long.len(), longest.len()), (2_049, 2_048));
    let rows = urls.map(|text| url(text).expect_error(400, "invalid_callback_url"));
    let bounds = [
        url(&long).expect_error(400, "invalid_callback_url"),
        url(&longest).accepted(201),
        url("http://example.com").accepted(201),
        url("https://example.com:8443/path?query=%20").accepted(201),
        url("https://b\u{fc}cher.example.com/").accepted(201),
        url("https://xn--bcher-kva.example.com/").accepted(201),
        Case::cue("callback.url", json!(5)).invalid("string_type", "body.callback.url"),
        Case::cue("callback", json!({})).invalid("missing", "body.callback.url"),
        Case::cue("callback", json!("https://example.com/"))
            .invalid("model_attributes_type", "body.callback"),
        Case::cue_without("callback").expect_error(422, "validation_error"),
    ];
    check(&server().user(), rows.into_iter().chain(bounds));
}

#[test]
fn non_public_addresses_are_refused_in_every_notation() {
    let server = server();
    let user = server.user();
    let cue = format!("/v1/cues/{}", user.create(&super::good_cue())["id"].as_str().unwrap());
    // Every field with a URL that the server will send to.
    let rows = BLOCKED.iter().flat_map(|host| {
        let blocked = format!("http://{host}/hook");
        let on_failure = json!({"webhook": blocked});
        [
            url(&blocked),
            Case::cue("on_failure", on_failure.clone()),
            Case::new("PATCH", &cue, &json!({"on_failure": on_failure})),
            Case::new("PATCH", "/v1/auth/me", &json!({"alert_webhook_url": blocked})),
        ]
        .map(|case| case.expect_error(400, "invalid_callback_url"))
    });
    let public = ["8.8.8.8", "[2606:4700::1111]", "172.32.0.1", "100.128.0.1"];
    let good = public.map(|host| url(&format!("http://{host}/hook")).accepted(201));
    check(&user, rows.chain(good));
}

#[test]
fn unusable_callback_methods_and_headers_are_refused() {
    let own = [
        "Host",
        "content-length",
        "Content-Length",
        "Transfer-Encoding",
        "connection",
        "Upgrade",
        "TE",
        "trailer",
        "X-CueAPI-Signature",
        "x-cueapi-anything",
        "webhook-id",
        "Webhook-Signature",
        "",
        " ",
        "X Y",
        "X:",
        "X\r\nEvil",
        "X\n",
        "N\u{e4}me",
        "X\u{0}",
        "(x)",
    ];
    let values = ["a\r\nX-Evil: 1", "a\nb", "a\rb", "a\u{0}b", "a\u{7f}b"];
    let many: Map<String, Value> = (0..33).map(|number| (format!("X-{number}"), json!("v"))).collect();
    let most: Map<String, Value> = (0..32).map(|number| (format!("X-{number}"), json!("v"))).collect();
    let methods = ["TRACE", "HEAD", "CONNECT", "OPTIONS", "PO ST", "POST\r\n", "BREW"];
    let names = own.map(|name| header(name, json!("v")).expect_error(400, "invalid_callback"));
    let texts =
        values.map(|value| header("X-Own", json!(value)).named(value).expect_error(400, "invalid_callback"));
    let verbs = methods.map(|method| {
        Case::cue("callback.method", json!(method)).named(method).expect_error(400, "invalid_callback")
    });
    let rest = [
        Case::cue("callback.headers", Value::Object(many))
            .named("33 headers")
            .expect_error(400, "invalid_callback"),
        Case::cue("callback.headers", Value::Object(most)).named("32 headers").accepted(201),
        Case::cue("callback.headers", json!({"X-A": "1", "x-a": "2"}))
            .named("one header twice")
            .expect_error(400, "invalid_callback"),
        Case::cue("callback.headers", json!([])).invalid("dict_type", "body.callback.headers"),
        header("X-Own", json!(5)).invalid("string_type", "body.callback.headers.X-Own"),
        header("X-Own", Value::Null).invalid("string_type", "body.callback.headers.X-Own"),
        header("Authorization", json!("Bearer mine")).accepted(201),
        header("Content-Type", json!("application/vnd.mine+json")).accepted(201),
        Case::cue("callback.method", json!("PUT")).accepted(201),
        Case::cue("callback.method", json!(5)).invalid("string_type", "body.callback.method"),
    ];
    check(&server().user(), names.into_iter().chain(texts).chain(verbs).chain(rest));
}
