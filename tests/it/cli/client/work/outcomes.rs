//! `cued work`: which runs it takes, how it reports them, and how it stops.

use std::os::unix::net::UnixDatagram;

use crate::cli::client::work::{Workshop, exits, lines};
use crate::support::*;

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
    let traceback =
        "printf 'Traceback:\\n  File \"a\", line 1\\nValueError: no disk\\n' >&2; exit 1";
    let told = "ValueError: no disk\nTraceback:\n  File \"a\", line 1\nexit code 1";
    let seen = assert_outcome(&shop, traceback, &failure(told));
    assert_eq!(seen["error_message"], told);
    let killed = assert_outcome(&shop, "kill -9 $$", &failure("killed by SIGKILL"));
    assert_eq!(killed["error_message"], "killed by SIGKILL");
}

#[test]
fn a_command_that_takes_too_long_is_ended_with_its_children() {
    let shop = Workshop::new();
    let (execution, pid) = (shop.execution("t"), shop.path("pid"));
    let script = format!("sleep 600 & echo $! >{}; echo begun >&2; wait", pid.display());
    let run = shop.home.run(&[
        "work",
        "--task",
        "t",
        "--once",
        "--timeout",
        "1s",
        "--",
        "sh",
        "-c",
        &script,
    ]);
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
    let small = shop
        .fire(&shop.cue("small", &json!({"text": "grüße", "big": 12_345_678_901_234_567_890_u64})));
    let line = words("work --task small --once -- sh -c 'cat; echo; echo \"$CUEAPI_PAYLOAD\"'");
    exits(&shop.home.run(&line), 0);
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
        let profile = json!({"url": shop.server.url(), "api_key": shop.user.key(), "email": "me@example.com"});
        home.store(&json!({"current": "work", "profiles": {"work": profile}}));
        let credentials = home.credentials();
        home.env("CUEAPI_API_KEY", shop.user.key())
            .env("NOTIFY_SOCKET", "@nobody")
            .env("CUED_CONFIG", credentials)
            .env("CUED_PROFILE", "work")
    };
    for (flags, has_key) in [(&[][..], false), (&["--pass-key"][..], true)] {
        let execution = shop.execution("env");
        let arguments = [
            &["work", "--task", "env", "--once", "--id", "w1"],
            flags,
            &["--", "sh", "-c", script],
        ]
        .concat();
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
        assert_eq!(error, format!("0\n{}{}exit code 1", of("URL"), of("BASE_URL")), "{flags:?}");
    }
}

const EVIDENCE: &str = r#"{"success": true, "result": "42 rows", "metadata": {"rows": 42}, "external_id": "job-7",
    "result_url": "https://example.com/7", "result_ref": "r-7", "result_type": "report", "summary": "all well",
    "artifacts": [{"name": "a.csv"}]}"#;

#[test]
fn an_outcome_file_adds_evidence_and_a_failure_wins() {
    let shop = Workshop::new();
    let script = |file: &str, then: &str| {
        format!("printf '%s' '{file}' >\"$CUED_OUTCOME_FILE\"; echo output; {then}")
    };
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
        assert_eq!(seen["status"], "success", "{script}");
        assert_eq!(seen["outcome"]["result"], "output\n", "{script}");
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
    let file =
        |script: &str| shop.run_script(script)["outcome"]["result"].as_str().unwrap().to_owned();
    let kept = file("stat -c %a $CUED_OUTCOME_FILE; echo $CUED_OUTCOME_FILE");
    let (mode, path) = kept.split_once('\n').unwrap();
    // Only this user can read it during the run.
    assert_eq!((mode, Path::new(path.trim()).exists()), ("600", false));
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
    signal("-KILL", left.trim().parse().unwrap());
}

#[test]
fn two_workers_run_each_of_many_executions_exactly_once() {
    let shop = Workshop::new();
    let cue = shop.cue("t", &json!({}));
    let executions: Vec<String> = (0..200).map(|_| shop.fire(&cue)).collect();
    let script = format!("echo $CUED_EXECUTION_ID >>{}", shop.path("handled").display());
    let names = ["one", "other"];
    let mut workers = names.map(|name| shop.start(name, &["--task", "t", "--jobs", "4"], &script));
    for execution in &executions {
        let seen = shop.reported(execution);
        assert_eq!((&seen["status"], &seen["attempts"]), (&json!("success"), &json!(1)));
    }
    for worker in &mut workers {
        assert_eq!(worker.stop(), 0);
    }
    let handled = fs::read_to_string(shop.path("handled")).unwrap();
    let mut counts = BTreeMap::<&str, u32>::new();
    for line in handled.lines() {
        *counts.entry(line).or_default() += 1;
    }
    assert_eq!((counts.len(), counts.values().max()), (200, Some(&1)));
}

#[test]
fn no_more_commands_run_at_a_time_than_there_are_jobs() {
    let shop = Workshop::new();
    let cue = shop.cue("t", &json!({}));
    (0..6).for_each(|_| drop(shop.fire(&cue)));
    let journal = shop.path("journal").display().to_string();
    let script = format!("echo + >>{journal}; sleep 0.1; echo - >>{journal}");
    exits(
        &shop
            .home
            .run(&["work", "--task", "t", "--jobs", "2", "--drain", "--", "sh", "-c", &script]),
        0,
    );
    let (mut running, mut most) = (0, 0);
    for sign in fs::read_to_string(&journal).unwrap().lines() {
        running += if sign == "+" { 1 } else { -1 };
        most = most.max(running);
    }
    assert_eq!((running, most), (0, 2));
}

#[test]
fn a_worker_that_waits_runs_what_comes() {
    let shop = Workshop::new();
    let mut worker = shop.start("w", &["--task", "t"], "echo $CUED_TASK");
    until("the worker is listed", || {
        let workers = shop.user.get("/v1/workers").expect(200);
        (workers["workers"][0]["worker_id"] == "w"
            && workers["workers"][0]["handlers"] == json!(["t"]))
        .then_some(())
    });
    for _ in 0..3 {
        let execution = shop.execution("t");
        assert_eq!(shop.reported(&execution)["outcome"]["result"], "t\n");
    }
    assert_eq!(worker.stop(), 0);
}

#[test]
fn a_file_has_several_tasks_with_their_own_commands() {
    let shop = Workshop::new();
    let file = shop.path("work.json");
    let cwd = shop.path("");
    let tasks = json!({"tasks": {
        "a": {"run": ["sh", "-c", "echo $WHO; pwd"], "cwd": cwd, "env": {"WHO": "ann b"}},
        "b": {"run": ["sh", "-c", "sleep 600"], "timeout": "1s"},
        "gone": {"run": ["/no/such/program"]},
    }});
    fs::write(&file, tasks.to_string()).unwrap();
    let [a, b, gone, other] = ["a", "b", "gone", "other"].map(|task| shop.execution(task));
    let run = shop.home.run(&["work", "--file", file.to_str().unwrap(), "--jobs", "3", "--drain"]);
    exits(&run, 8);
    assert!(run.stderr.contains("cannot run /no/such/program"), "{}", run.stderr);
    let folder = fs::canonicalize(&cwd).unwrap();
    assert_eq!(shop.reported(&a)["outcome"]["result"], format!("ann b\n{}\n", folder.display()));
    assert_eq!(shop.reported(&b)["outcome"]["error"], "timed out after 1 s");
    let error = shop.reported(&gone)["outcome"]["error"].as_str().unwrap().to_owned();
    assert!(error.starts_with("cannot run /no/such/program: No such file"), "{error}");
    assert_eq!(shop.look(&other)["status"], "pending");
}

#[test]
fn an_agent_takes_its_own_executions_of_any_task() {
    let shop = Workshop::new();
    let of = |task: &str, agent: &str| shop.fire(&shop.cue(task, &json!({"agent": agent})));
    let (mine, other, also_mine) = (of("a", "me"), of("a", "you"), of("b", "me"));
    exits(
        &shop.home.run(&["work", "--agent", "me", "--drain", "--", "sh", "-c", "echo $CUED_TASK"]),
        0,
    );
    assert_eq!(shop.reported(&mine)["outcome"]["result"], "a\n");
    assert_eq!(shop.reported(&also_mine)["outcome"]["result"], "b\n");
    assert_eq!(shop.look(&other)["status"], "pending");
}

#[test]
fn one_run_or_all_that_wait_end_with_the_exit_code_of_the_work() {
    let shop = Workshop::new();
    let cue = shop.cue("t", &json!({}));
    let ids: Vec<String> = (0..3).map(|_| shop.fire(&cue)).collect();
    let run = |flag: &str, script: &str| {
        shop.home.run(&["work", "--task", "t", flag, "-q", "--", "sh", "-c", script])
    };
    let once = run("--once", "true");
    exits(&once, 0);
    assert_eq!(once.stdout, format!("{}\n", ids[0]));
    let failed = run("--once", "exit 4");
    exits(&failed, 8);
    assert_eq!(failed.stdout, format!("{}\n", ids[1]));
    exits(&run("--drain", "true"), 0);
    let nothing = run("--drain", "false");
    exits(&nothing, 0);
    assert_eq!(nothing.stdout, "");
}

#[test]
fn work_that_a_command_makes_is_drained_too() {
    let shop = Workshop::new();
    let (first, second) = (shop.cue("t", &json!({"again": true})), shop.cue("t", &json!({})));
    shop.fire(&first);
    let body = "{}";
    let by_hand = format!(
        "case $CUED_PAYLOAD in *again*) python3 -c 'import os,urllib.request as r; r.urlopen(r.Request(os.environ[\"CUED_URL\"]+\"/v1/cues/{second}/fire\", b\"{body}\", {{\"Authorization\": \"Bearer \"+os.environ[\"CUED_API_KEY\"]}}))';; esac"
    );
    let line = words("work --task t --drain --pass-key --json -- sh -c");
    let run = shop.home.run(&[&line[..], &[&by_hand]].concat());
    exits(&run, 0);
    let printed = lines(&run.stdout);
    assert_eq!(printed.len(), 2, "{printed:?}");
    assert!(printed.iter().all(|answer| answer["outcome_recorded"] == true), "{printed:?}");
}

#[test]
fn a_stop_waits_for_the_running_command_and_claims_nothing_more() {
    for name in ["-TERM", "-INT"] {
        let shop = Workshop::new();
        let cue = shop.cue("t", &json!({}));
        let (running, waits) = (shop.fire(&cue), shop.fire(&cue));
        let mut worker = shop.start("w", &["--task", "t"], &shop.waiting());
        shop.has_begun();
        worker.signal(name);
        worker.says("stopping: nothing more is claimed");
        fs::write(shop.path("go"), "").unwrap();
        assert_eq!(worker.ended(), 0);
        assert_eq!(shop.look(&running)["outcome"]["result"], "done\n");
        assert_eq!(shop.look(&waits)["status"], "pending");
    }
}

#[test]
fn a_command_that_exceeds_the_grace_time_is_ended_and_reported() {
    let shop = Workshop::new();
    let execution = shop.execution("t");
    let mut worker = shop.start("w", &["--task", "t", "--grace", "1s"], &shop.waiting());
    shop.has_begun();
    assert_eq!(worker.stop(), 0);
    let seen = shop.look(&execution);
    let error = seen["outcome"]["error"].as_str().unwrap();
    assert!(seen["status"] == "failed" && error.ends_with("worker stopped"), "{error}");
}

#[test]
fn a_second_signal_ends_the_commands_at_once_and_a_third_kills_them() {
    let shop = Workshop::new();
    let execution = shop.execution("t");
    let terminated = shop.path("terminated");
    let script = format!("trap 'touch {}' TERM; {}", terminated.display(), shop.waiting());
    let mut worker = shop.start("w", &["--task", "t", "--grace", "10m"], &script);
    shop.has_begun();
    worker.signal("-INT");
    worker.says("stopping: nothing more is claimed");
    worker.signal("-INT");
    until("the command is terminated", || terminated.exists().then_some(()));
    worker.signal("-INT");
    assert_eq!(worker.ended(), 0);
    let error = shop.look(&execution)["outcome"]["error"].as_str().unwrap().to_owned();
    // The shell may report the end of its children.
    assert!(error.ends_with("worker stopped"), "{error}");
}

#[test]
fn an_interrupted_wait_for_one_run_exits_with_130() {
    let shop = Workshop::new();
    let mut worker = shop.start("w", &["--task", "t", "--once"], "true");
    worker.says("worker started");
    until("the worker is listed", || {
        (shop.user.get("/v1/workers").expect(200)["workers"] != json!([])).then_some(())
    });
    worker.signal("-INT");
    assert_eq!(worker.ended(), 130);
}

#[test]
fn the_service_manager_learns_of_readiness_life_and_stop() {
    let shop = Workshop::new();
    let path = shop.path("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    manager.set_read_timeout(Some(HANG_TIMEOUT)).unwrap();
    let hears = || {
        let mut bytes = [0; 512];
        let length = manager.recv(&mut bytes).expect("a message arrives");
        String::from_utf8(bytes[..length].to_vec()).unwrap()
    };
    let home = ClientHome::signed_in(&shop.server, &shop.user)
        .env("NOTIFY_SOCKET", path.as_os_str())
        .env("WATCHDOG_USEC", "20000");
    let mut worker = shop.start_in(&home, "w", &["--task", "t"], "true");
    assert_eq!(hears(), "READY=1\nSTATUS=Waiting for work");
    assert_eq!([hears(), hears()], ["WATCHDOG=1", "WATCHDOG=1"]);
    worker.signal("-TERM");
    let next = std::iter::repeat_with(hears).find(|message| message != "WATCHDOG=1").unwrap();
    assert_eq!(next, "STOPPING=1\nSTATUS=Stopping: waiting for running commands");
    assert_eq!(worker.ended(), 0);
}
