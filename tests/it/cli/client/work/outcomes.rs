//! `cued work`: which runs it takes, how it reports them, and how it stops.

use std::os::unix::net::UnixDatagram;

use crate::cli::client::work::{Workshop, exits, stop};
use crate::support::*;

#[test]
fn a_command_that_takes_too_long_is_ended_with_its_children() {
    let shop = Workshop::new();
    let (execution, pid) = (shop.execution("t"), shop.path("pid"));
    let script = format!("sleep 600 & echo $! >{}; echo begun >&2; wait", pid.display());
    let command = words("work --task t --once --timeout 1s -- sh -c");
    let run = shop.home.run(&[&command[..], &[&script]].concat());
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
    worker.until("run started");
    fs::write(go, "").unwrap();
    let result = shop.reported(&execution)["outcome"].text("result").to_owned();
    assert!(result.len() == 4096 && result.ends_with("xend"), "{result}");
    let peak = peak_mb(worker.process.0.id());
    assert!(peak < 64, "{peak} MB");
    assert_eq!(stop(&mut worker), 0);
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
}

#[test]
fn a_process_that_keeps_the_output_open_does_not_hold_the_worker() {
    let shop = Workshop::new();
    let pid = shop.path("pid");
    let script = format!("echo before; setsid sleep 600 & echo $! >{}; exit 0", pid.display());
    let seen = shop.run_script(&script);
    assert_has(&seen["outcome"], json!({"success": true, "result": "before\n"}));
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
        assert_has(&shop.reported(execution), json!({"status": "success", "attempts": 1}));
    }
    workers.iter_mut().for_each(|worker| assert_eq!(stop(worker), 0));
    let handled = fs::read_to_string(shop.path("handled")).unwrap();
    let mut counts = BTreeMap::<&str, u32>::new();
    for line in handled.lines() {
        *counts.entry(line).or_default() += 1;
    }
    assert_eq!((counts.len(), counts.values().max()), (200, Some(&1)));
}

#[test]
fn a_worker_that_waits_runs_what_comes() {
    let shop = Workshop::new();
    let mut worker = shop.start("w", &["--task", "t"], "echo $CUED_TASK");
    until("the worker is listed", || {
        let workers = shop.user.read("/v1/workers");
        (workers["workers"][0]["worker_id"] == "w"
            && workers["workers"][0]["handlers"] == json!(["t"]))
        .then_some(())
    });
    for _ in 0..3 {
        let execution = shop.execution("t");
        assert_eq!(shop.reported(&execution)["outcome"]["result"], "t\n");
    }
    assert_eq!(stop(&mut worker), 0);
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
        worker.until("stopping: nothing more is claimed");
        fs::write(shop.path("go"), "").unwrap();
        assert_eq!(worker.code(), 0);
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
    assert_eq!(stop(&mut worker), 0);
    let seen = shop.look(&execution);
    let error = seen["outcome"].text("error");
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
    worker.until("stopping: nothing more is claimed");
    worker.signal("-INT");
    until("the command is terminated", || terminated.exists().then_some(()));
    worker.signal("-INT");
    assert_eq!(worker.code(), 0);
    let error = shop.look(&execution)["outcome"].text("error").to_owned();
    // The shell may report the end of its children.
    assert!(error.ends_with("worker stopped"), "{error}");
}

#[test]
fn an_interrupted_wait_for_one_run_exits_with_130() {
    let shop = Workshop::new();
    let mut worker = shop.start("w", &["--task", "t", "--once"], "true");
    worker.until("worker started");
    until_true("the worker is listed", || shop.user.read("/v1/workers")["workers"] != json!([]));
    worker.signal("-INT");
    assert_eq!(worker.code(), 130);
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
    assert_eq!(worker.code(), 0);
}
