//! The input and environment of commands, and the reports of their outcomes.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::cli::client::work::{Workshop, exits};
use crate::support::client_command::ClientHome;
use crate::support::server::peak_mb;

/// The outcome of a script; a key that is expected is in the answer with this value.
#[track_caller]
fn assert_outcome(shop: &Workshop, script: &str, expected: &Value) -> Value {
    let seen = shop.run_script(script);
    for (name, value) in expected.as_object().unwrap() {
        assert_eq!(&seen["outcome"][name], value, "{name} of {script}");
    }
    let status = if expected["success"] == true { "success" } else { "failed" };
    assert_eq!(seen["status"], status, "{script}");
    seen
}

#[test]
fn the_exit_code_decides_and_the_output_is_reported() {
    let shop = Workshop::new();
    let success = |result| json!({"success": true, "result": result});
    assert_outcome(&shop, "echo done; echo more >&2", &success(json!("done\n")));
    assert_outcome(&shop, "true", &success(Value::Null));
    assert_outcome(&shop, "printf 'a\\200b\\0c'", &success(json!("a\u{fffd}b\u{fffd}c")));
    let failure = |error: &str| json!({"success": false, "error": error});
    assert_outcome(&shop, "echo half; echo bad >&2; exit 3", &failure("bad\nexit code 3"));
    assert_outcome(&shop, "echo half; exit 1", &failure("half\nexit code 1"));
    let killed = assert_outcome(&shop, "kill -9 $$", &failure("killed by SIGKILL"));
    assert_eq!(killed["error_message"], "killed by SIGKILL");
}

#[test]
fn a_command_that_takes_too_long_is_ended_with_its_children() {
    let shop = Workshop::new();
    let (execution, pid) = (shop.execution("t"), shop.path("pid"));
    let script = format!("sleep 600 & echo $! >{}; echo begun >&2; wait", pid.display());
    let run = shop.home.run(&["work", "--task", "t", "--once", "--timeout", "1s", "--", "sh", "-c", &script]);
    exits(&run, 8);
    assert!(run.stderr.contains("1 of 1 run failed: timed out after 1 s"), "{}", run.stderr);
    assert_eq!(shop.reported(&execution)["outcome"]["error"], "begun\ntimed out after 1 s");
    let child = fs::read_to_string(pid).unwrap();
    let state = fs::read_to_string(format!("/proc/{}/stat", child.trim())).unwrap_or_default();
    assert!(state.is_empty() || state.contains(") Z "), "{state}");
}

#[test]
fn a_gigabyte_of_output_takes_no_memory_and_its_end_is_kept() {
    let shop = Workshop::new();
    let (execution, go) = (shop.execution("t"), shop.path("go"));
    let script = format!(
        "head -c 1000000000 /dev/zero | tr '\\0' x; printf end; until [ -e {0} ]; do sleep 0.02; done",
        go.display()
    );
    let mut worker = shop.start("w", &["--task", "t"], &script);
    worker.says("run started");
    fs::write(go, "").unwrap();
    let result = shop.reported(&execution)["outcome"]["result"].as_str().unwrap().to_owned();
    assert!(result.len() == 4096 && result.ends_with("xend"), "{result}");
    let peak = peak_mb(worker.pid());
    assert!(peak < 64, "{peak} MB");
    assert_eq!(worker.stop(), 0);
}

#[test]
fn the_payload_is_on_standard_input_whether_or_not_it_is_read() {
    let shop = Workshop::new();
    let large = "x".repeat(900_000);
    let cue = shop.cue("large", &json!({"text": large, "n": "grüße"}));
    for (script, expected) in [
        ("wc -c; printf %s \"${CUED_PAYLOAD-none}\"", Some("none")),
        ("exec 0<&-; sleep 0.05; echo unread", Some("unread\n")),
        ("true", None),
    ] {
        let execution = shop.fire(&cue);
        exits(&shop.home.run(&["work", "--task", "large", "--once", "--", "sh", "-c", script]), 0);
        let result = shop.reported(&execution)["outcome"]["result"].clone();
        match expected {
            Some(end) => assert!(result.as_str().unwrap().ends_with(end), "{script}: {result}"),
            None => assert_eq!(result, Value::Null),
        }
    }
    let small =
        shop.fire(&shop.cue("small", &json!({"text": "grüße", "big": 12_345_678_901_234_567_890_u64})));
    exits(
        &shop.home.run(&[
            "work",
            "--task",
            "small",
            "--once",
            "--",
            "sh",
            "-c",
            "cat; echo; echo \"$CUEAPI_PAYLOAD\"",
        ]),
        0,
    );
    let result = shop.reported(&small)["outcome"]["result"].as_str().unwrap().to_owned();
    let (stdin, variable) = result.trim_end().split_once('\n').unwrap();
    assert_eq!(stdin, variable);
    assert!(stdin.contains("12345678901234567890"), "{stdin}");
    assert_eq!(serde_json::from_str::<Value>(stdin).unwrap()["text"], "grüße");
}

#[test]
fn a_command_knows_its_execution_and_not_the_key() {
    let shop = Workshop::new();
    let script = "for p in CUED CUEAPI; do \
        env | grep -E \"^${p}_(EXECUTION_ID|CUE_ID|CUE_NAME|TASK|SCHEDULED_FOR|WORKER_ID|ATTEMPT|API_KEY|URL|BASE_URL)=\" \
        | sort | sed \"s/^${p}_//\"; done; env | grep -cE '^(NOTIFY_SOCKET|CUED_CONFIG|CUED_PROFILE)='";
    let home = |shop: &Workshop| {
        let home = ClientHome::signed_in(&shop.server, &shop.user);
        let profile =
            json!({"url": shop.server.url(), "api_key": shop.user.key(), "email": "me@example.com"});
        home.store(&json!({"current": "work", "profiles": {"work": profile}}));
        let credentials = home.credentials();
        home.env("CUEAPI_API_KEY", shop.user.key())
            .env("NOTIFY_SOCKET", "@nobody")
            .env("CUED_CONFIG", credentials)
            .env("CUED_PROFILE", "work")
    };
    for (flags, has_key) in [(&[][..], false), (&["--pass-key"][..], true)] {
        let execution = shop.execution("env");
        let arguments =
            [&["work", "--task", "env", "--once", "--id", "w1"], flags, &["--", "sh", "-c", script]].concat();
        exits(&home(&shop).run(&arguments), 8);
        let seen = shop.reported(&execution);
        let error = seen["outcome"]["error"].as_str().unwrap().to_owned();
        let (key, url) = (shop.user.key(), shop.server.url());
        let key = if has_key { format!("API_KEY={key}\n") } else { String::new() };
        let of = |url_name: &str| {
            let (before, after) = if url_name == "BASE_URL" {
                (format!("BASE_URL={url}\n"), String::new())
            } else {
                (String::new(), format!("URL={url}\n"))
            };
            let [cue, due] = ["cue_id", "scheduled_for"].map(|field| seen[field].as_str().unwrap());
            format!(
                "{key}ATTEMPT=1\n{before}CUE_ID={cue}\nCUE_NAME=cue of env\nEXECUTION_ID={execution}\nSCHEDULED_FOR={due}\nTASK=env\n{after}WORKER_ID=w1\n"
            )
        };
        assert_eq!(error, format!("{}{}0\nexit code 1", of("URL"), of("BASE_URL")), "{flags:?}");
    }
}

const EVIDENCE: &str = r#"{"success": true, "result": "42 rows", "metadata": {"rows": 42}, "external_id": "job-7",
    "result_url": "https://example.com/7", "result_ref": "r-7", "result_type": "report", "summary": "all well",
    "artifacts": [{"name": "a.csv"}]}"#;

#[test]
fn an_outcome_file_adds_evidence_and_a_failure_wins() {
    let shop = Workshop::new();
    let script =
        |file: &str, then: &str| format!("printf '%s' '{file}' >\"$CUED_OUTCOME_FILE\"; echo output; {then}");
    let seen = assert_outcome(
        &shop,
        &script(EVIDENCE, ""),
        &json!({"success": true, "result": "42 rows", "metadata": {"rows": 42}}),
    );
    let evidence = json!({
        "external_id": "job-7", "result_url": "https://example.com/7", "result_ref": "r-7", "result_type": "report",
        "summary": "all well", "artifacts": [{"name": "a.csv"}],
    });
    assert_eq!(seen["evidence"], evidence);
    let failed = json!({"success": false, "error": "no disk"});
    assert_outcome(&shop, &script(r#"{"success": false, "error": "no disk"}"#, ""), &failed);
    let seen = assert_outcome(
        &shop,
        &script(EVIDENCE, "exit 1"),
        &json!({"success": false, "error": "output\nexit code 1"}),
    );
    assert_eq!(seen["evidence"], evidence);
}

#[test]
fn an_unusable_outcome_file_is_noted_in_the_metadata() {
    let shop = Workshop::new();
    let notes = |script: &str| {
        let seen = shop.run_script(script);
        assert_eq!(
            (&seen["status"], &seen["outcome"]["result"]),
            (&json!("success"), &json!("output\n")),
            "{script}"
        );
        seen["outcome"]["metadata"]["_cued_worker"].clone()
    };
    let file = |notes: &Value| notes["outcome_file"].as_str().unwrap().to_owned();
    let malformed = file(&notes("echo output; echo '{\"success\": fal' >$CUED_OUTCOME_FILE"));
    assert!(malformed.starts_with("The outcome file is no JSON: "), "{malformed}");
    let large = file(&notes("echo output; head -c 70000 /dev/zero >$CUED_OUTCOME_FILE"));
    assert_eq!(large, "The outcome file is longer than 65536 bytes");
    let pipe = file(&notes("echo output; rm $CUED_OUTCOME_FILE; mkfifo $CUED_OUTCOME_FILE"));
    assert!(pipe.contains("no regular file"), "{pipe}");
    let dropped = notes(
        "echo output; echo '{\"external_id\": 7, \"other\": 1, \"result_url\": \"ftp://x\"}' >$CUED_OUTCOME_FILE",
    );
    assert_eq!(dropped, json!({"dropped_fields": ["external_id", "other", "result_url"]}));
    let file = |script: &str| shop.run_script(script)["outcome"]["result"].as_str().unwrap().to_owned();
    let kept = file("stat -c %a $CUED_OUTCOME_FILE; echo $CUED_OUTCOME_FILE");
    let (mode, path) = kept.split_once('\n').unwrap();
    assert_eq!(
        (mode, Path::new(path.trim()).exists()),
        ("600", false),
        "only this user can read it during the run"
    );
    let gone = shop.run_script("rm $CUED_OUTCOME_FILE");
    assert!(gone["outcome"]["metadata"].is_null(), "{gone}");
}

#[test]
fn a_process_that_keeps_the_output_open_does_not_hold_the_worker() {
    let shop = Workshop::new();
    let pid = shop.path("pid");
    let script = format!("echo before; setsid sleep 600 & echo $! >{}; exit 0", pid.display());
    assert_outcome(&shop, &script, &json!({"success": true, "result": "before\n"}));
    let left = fs::read_to_string(pid).unwrap();
    crate::support::server::signal("-KILL", left.trim().parse().unwrap());
}
