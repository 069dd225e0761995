//! Invalid callbacks and schedules.

use crate::http::bad_input::{Case, check, server};
use crate::support::*;

/// Non-public addresses in every notation.
const BLOCKED: &str = "localhost LOCALHOST localhost. hooks.localhost 127.0.0.1 127.0.0.1. 127.255.255.254 127.1 127.0.1 \
    2130706433 0x7f000001 0x7f.1 0x7F.0x0.0x0.0x1 0177.0.0.1 017700000001 0 0.0.0.0 0.1.2.3 10.0.0.1 10.1 \
    172.16.0.1 172.31.255.255 192.168.1.1 3232235777 0300.0250.1.1 169.254.169.254 0xa9fea9fe 100.64.0.1 \
    100.127.255.255 192.0.0.1 192.0.2.1 198.18.0.1 198.19.255.255 198.51.100.1 203.0.113.9 224.0.0.1 \
    239.255.255.255 240.0.0.1 255.255.255.255 %31%32%37.0.0.1 \u{2460}\u{2461}\u{2466}.0.0.1 \
    \u{ff11}\u{ff12}\u{ff17}\u{3002}0.0.1 lo\u{ff43}alhost [::] [::1] [0:0:0:0:0:0:0:1] \
    [::ffff:127.0.0.1] [::ffff:7f00:1] [::ffff:10.0.0.1] [::127.0.0.1] [64:ff9b::7f00:1] \
    [64:ff9b::a9fe:a9fe] [2002:7f00:1::] [2002:a00:1::1] [fe80::1] [febf::1] [fc00::1] [fdff::1] \
    [ff02::1] [2001:db8::1] [100::1] [fe80::1%25eth0]";

fn url(text: &str) -> Case {
    let shown: String = text.chars().take(60).collect();
    Case::cue("callback.url", json!(text)).named(&format!("url {shown:?}"))
}

#[test]
fn non_public_addresses_are_refused_in_every_notation() {
    let server = server();
    let user = server.user();
    let cue = format!("/v1/cues/{}", user.create(&super::good_cue()).text("id"));
    // Every field with a URL that the server will send to.
    let rows = words(BLOCKED).into_iter().flat_map(|host| {
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
fn the_local_time_of_a_run_has_the_milliseconds_of_its_instant() {
    let server = server();
    let client = server.user();
    let once = json!({"schedule": {"type": "once", "at": "2099-01-01T00:00:05.12Z"}});
    let preview = client.post("/v1/schedule/preview", &once).expect(200);
    let run = &preview["occurrences"][0];
    assert_has(run, json!({"at": "2099-01-01T00:00:05.120Z", "local": "2099-01-01T00:00:05.120"}));
}
