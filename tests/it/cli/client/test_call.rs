//! `cued cue test`: what it sends and prints, and its exit codes.

use crate::cli::client::{Desk, start};
use crate::support::*;

fn answer(status: u16, body: &str) -> Reaction {
    Reaction::Full(status, vec![("X-Why", "because".to_owned())], body.to_owned())
}

/// The printed lines, with `T` in place of the duration.
fn lines(printed: &str) -> Vec<String> {
    let line = |line: &str| {
        if line.starts_with("took") {
            line[..line.rfind("  ").unwrap()].to_owned() + "  T"
        } else {
            line.to_owned()
        }
    };
    printed.lines().map(line).collect()
}

#[test]
fn a_cue_is_tested_with_its_call_and_its_payload() {
    let (Desk { server: _server, user, home }, receiver) = (Desk::new(), Receiver::start());
    let headers = json!({"Authorization": "Bearer t", "X-Own": "1"});
    let callback =
        json!({"url": receiver.url(), "method": "PUT", "headers": headers, "timeout_seconds": 5});
    let more =
        json!({"callback": callback, "payload": {"big": 123456789012345678901234567890_u128}});
    user.create(&with(webhook_cue("nightly", YEARLY, &receiver.url()), more));
    receiver.react(answer(200, "done\nand more"));
    let printed = home.ok(&["cue", "test", "nightly"]);
    assert_eq!(
        lines(&printed),
        ["result       success", "HTTP status  200", "took         T", "", "done", "and more"]
    );
    let sent = receiver.deliveries().remove(0);
    assert_eq!((sent.method.as_str(), sent.header("x-cueapi-test")), ("PUT", Some("true")));
    assert_eq!(String::from_utf8_lossy(&sent.body), r#"{"big": 123456789012345678901234567890}"#);
    assert_eq!((sent.header("authorization"), sent.header("x-own")), (Some("Bearer t"), Some("1")));
    home.ok(&words(
        "cue test nightly --method post --header 'authorization: other' --payload '{a: 1}'",
    ));
    let sent = receiver.deliveries().remove(1);
    assert_eq!((sent.method.as_str(), sent.json()), ("POST", json!({"a": 1})));
    assert_eq!((sent.header("authorization"), sent.header("x-own")), (Some("other"), Some("1")));
    assert_eq!(user.read("/v1/executions")["total"], 0);
}

#[test]
fn a_test_of_a_url_that_fails_exits_with_8() {
    let ((_server, user, home), receiver) = (start(), Receiver::start());
    receiver.react(answer(503, "come back later"));
    let url = receiver.url();
    let run = home.run(&["cue", "test", "--url", &url]);
    assert_eq!((run.code, run.stderr.as_str()), (8, "cued: the test call failed\n"));
    let expected = [
        "result       failed",
        "HTTP status  503",
        "took         T",
        "error        the URL returned 503",
        "",
        "come back later",
    ];
    assert_eq!(lines(&run.stdout), expected);
    let wide = home.run(&["cue", "test", "--url", &url, "-o", "wide"]).stdout;
    for line in [
        "cause        server error (5xx)\n",
        &format!("request      POST {url}\n"),
        "X-CueAPI-Test: true\n",
        "x-why: because\n",
        "\n\ncome back later\n",
    ] {
        assert!(wide.contains(line), "{line:?}: {wide}");
    }
    let json = home.run(&["cue", "test", "--url", &url, "--json"]);
    let printed: Value = serde_json::from_str(&json.stdout).unwrap();
    assert_has(&printed, json!({"result": "failed", "http_status": 503}));
    assert_eq!(
        (json.code, home.run(&["cue", "test", "--url", &url, "-q"]).stdout.as_str()),
        (8, "failed\n")
    );
    receiver.react(answer(200, &"x".repeat(3_000)));
    let cut = home.ok(&["cue", "test", "--url", &url]);
    assert!(cut.ends_with(&format!("{}\n(the rest is not shown)\n", "x".repeat(2_000))), "{cut}");
    assert_eq!(user.read("/v1/cues")["total"], 0);
}

#[test]
fn the_answer_of_a_stranger_cannot_command_a_terminal() {
    let ((_server, _user, home), receiver) = (start(), Receiver::start());
    receiver.react(answer(200, "\u{1b}[2Jgone\u{202e}"));
    let printed = home.ok(&["cue", "test", "--url", &receiver.url()]);
    assert!(printed.ends_with("\u{fffd}[2Jgone\u{fffd}\n"), "{printed:?}");
}
