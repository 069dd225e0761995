//! The executions that are claimed, their number at a time, and the end of the work.

use std::collections::BTreeMap;
use std::fs;

use serde_json::json;

use crate::cli::client::work::{Workshop, exits, lines};
use crate::support::server::until;

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
    exits(&shop.home.run(&["work", "--task", "t", "--jobs", "2", "--drain", "--", "sh", "-c", &script]), 0);
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
        (workers["workers"][0]["worker_id"] == "w" && workers["workers"][0]["handlers"] == json!(["t"]))
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
    exits(&shop.home.run(&["work", "--agent", "me", "--drain", "--", "sh", "-c", "echo $CUED_TASK"]), 0);
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
    let run = shop.home.run(&[
        "work",
        "--task",
        "t",
        "--drain",
        "--pass-key",
        "--json",
        "--",
        "sh",
        "-c",
        &by_hand,
    ]);
    exits(&run, 0);
    let printed = lines(&run.stdout);
    assert_eq!(printed.len(), 2, "{printed:?}");
    assert!(printed.iter().all(|answer| answer["outcome_recorded"] == true), "{printed:?}");
}
