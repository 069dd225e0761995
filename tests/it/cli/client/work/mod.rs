//! `cued work`: commands, leases, faults and shortages.

mod outcomes;

use crate::support::*;

/// A server on a test clock, an account, and a folder for the files of commands.
pub struct Workshop {
    pub server: Server,
    pub user: Client,
    pub home: ClientHome,
    folder: TempDir,
}

impl Workshop {
    pub fn new() -> Self {
        let (server, user) = Server::with_clock_and_user("2030-01-01T00:00:00Z");
        let home = ClientHome::signed_in(&server, &user);
        Self { server, user, home, folder: TempDir::new().unwrap() }
    }

    /// A path in the folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A worker cue for this task; the payload may have more.
    pub fn cue(&self, task: &str, payload: &Value) -> String {
        let mut payload = payload.clone();
        payload["task"] = json!(task);
        let cue = worker_cue(&format!("cue of {task}"), YEARLY);
        id(&self.user.create(&with(cue, json!({ "payload": payload })))).to_owned()
    }

    /// Runs a cue: the id of the execution.
    pub fn fire(&self, cue: &str) -> String {
        self.user.fire(&json!({ "id": cue }))
    }

    /// An execution for workers.
    pub fn execution(&self, task: &str) -> String {
        self.fire(&self.cue(task, &json!({})))
    }

    pub fn look(&self, execution: &str) -> Value {
        self.user.execution(execution)
    }

    /// The execution, once it has been reported on.
    #[track_caller]
    pub fn reported(&self, execution: &str) -> Value {
        until("the execution is reported on", || {
            Some(self.look(execution)).filter(|seen| seen["outcome"]["success"].is_boolean())
        })
    }

    /// Runs one execution of a new task with a script, and returns its execution.
    #[track_caller]
    pub fn run_script(&self, script: &str) -> Value {
        let execution = self.execution("t");
        self.home.run(&["work", "--task", "t", "--once", "--", "sh", "-c", script]);
        self.reported(&execution)
    }

    /// A script that touches `begun` and runs until `go` exists.
    pub fn waiting(&self) -> String {
        let (begun, go) = (self.path("begun"), self.path("go"));
        format!(
            "touch {}; until [ -e {} ]; do sleep 0.02; done; echo done",
            begun.display(),
            go.display()
        )
    }

    #[track_caller]
    pub fn has_begun(&self) {
        until("the command has begun", || self.path("begun").exists().then_some(()));
    }

    /// Starts a worker; its log is in a file.
    pub fn start(&self, name: &str, arguments: &[&str], script: &str) -> BackgroundCommand {
        self.start_in(&self.home, name, arguments, script)
    }

    pub fn start_in(
        &self,
        home: &ClientHome,
        name: &str,
        arguments: &[&str],
        script: &str,
    ) -> BackgroundCommand {
        let log = self.path(&format!("{name}.log"));
        let own = ["work", "--beat-millis", "50", "--id", name];
        let command = home.command(&[&own, arguments, &["--", "sh", "-c", script]].concat());
        BackgroundCommand::start(command, log, false)
    }
}

/// Asks a worker to end; returns its exit code.
#[track_caller]
pub fn stop(worker: &mut BackgroundCommand) -> i32 {
    worker.signal("-TERM");
    worker.code()
}

#[track_caller]
pub fn exits(run: &ClientRun, code: i32) {
    assert_eq!(run.code, code, "{}\n{}", run.stdout, run.stderr);
}

#[test]
fn a_worker_that_lives_keeps_its_claim_however_long_the_command_takes() {
    let shop = Workshop::new();
    let execution = shop.execution("t");
    let mut worker = shop.start("w", &["--task", "t"], &shop.waiting());
    let lease = || shop.look(&execution)["lease_expires_at"].as_str().map(str::to_owned);
    let mut last = until("the execution is claimed", lease);
    for _ in 0..5 {
        shop.user.advance("PT10M");
        last = until("the lease is extended", || lease().filter(|lease| *lease > last));
    }
    fs::write(shop.path("go"), "").unwrap();
    let seen = shop.reported(&execution);
    assert_eq!((&seen["outcome"]["result"], &seen["attempts"]), (&json!("done\n"), &json!(1)));
    assert_eq!(stop(&mut worker), 0);
}

#[test]
fn a_lost_claim_ends_the_command_and_its_outcome_is_not_reported() {
    let shop = Workshop::new();
    let execution = shop.execution("t");
    let [begun, terminated, go] = ["begun", "terminated", "go"].map(|name| shop.path(name));
    let script = format!(
        "if [ $CUED_ATTEMPT = 1 ]; then trap 'touch {}; exit 0' TERM; touch {}; while :; do sleep 0.02; done; fi; \
         until [ -e {} ]; do sleep 0.02; done; echo second",
        terminated.display(),
        begun.display(),
        go.display()
    );
    let mut worker = shop.start("w", &["--task", "t"], &script);
    until("the command has begun", || begun.exists().then_some(()));
    // No heartbeat arrives while the worker stands still.
    worker.signal("-STOP");
    shop.user.advance("PT20M");
    assert_eq!(shop.look(&execution)["status"], "pending");
    worker.signal("-CONT");
    until("the command is terminated", || terminated.exists().then_some(()));
    worker.until("run ended: the execution is no longer this worker's");
    fs::write(go, "").unwrap();
    let seen = shop.reported(&execution);
    assert_eq!((&seen["outcome"]["result"], &seen["attempts"]), (&json!("second\n"), &json!(2)));
    assert_eq!(stop(&mut worker), 0);
}

#[test]
fn the_command_of_a_deleted_cue_is_ended() {
    let shop = Workshop::new();
    let cue = shop.cue("t", &json!({}));
    let execution = shop.fire(&cue);
    let mut worker = shop.start("w", &["--task", "t"], &shop.waiting());
    shop.has_begun();
    shop.user.delete(&format!("/v1/cues/{cue}")).expect(204);
    worker.until("run ended: the execution is no longer this worker's");
    let log = worker.output();
    assert!(log.contains(&execution) && !log.contains("another worker"), "{log}");
    assert_eq!(stop(&mut worker), 0);
}

#[test]
fn a_worker_that_claims_its_own_lost_execution_again_runs_it_once_at_a_time() {
    let shop = Workshop::new();
    let execution = shop.execution("t");
    let [begun, journal] = ["begun", "journal"].map(|name| shop.path(name));
    let script = format!(
        "echo + >>{0}; if [ $CUED_ATTEMPT = 1 ]; then trap 'sleep 0.2; echo - >>{0}; exit 0' TERM; touch {1}; \
         while :; do sleep 0.02; done; fi; echo - >>{0}",
        journal.display(),
        begun.display()
    );
    // Free slots claim before the heartbeat of the first run fails.
    let mut worker = shop.start("w", &["--task", "t", "--jobs", "4"], &script);
    until("the command has begun", || begun.exists().then_some(()));
    worker.signal("-STOP");
    shop.user.advance("PT20M");
    worker.signal("-CONT");
    // A claim that the server received before the clock moved may be a further attempt, lost at once.
    assert!(shop.reported(&execution)["attempts"].as_u64() >= Some(2));
    let journal = fs::read_to_string(journal).unwrap();
    assert!(
        journal.starts_with("+\n-\n+\n-\n") && journal == "+\n-\n".repeat(journal.len() / 4),
        "{journal}"
    );
    assert_eq!(stop(&mut worker), 0);
}

#[test]
fn what_a_killed_worker_held_is_run_after_the_lease_even_by_a_successor_of_its_name() {
    let shop = Workshop::new();
    let (execution, pid) = (shop.execution("t"), shop.path("pid"));
    let script = format!("echo $$ >{0}.new; mv {0}.new {0}; exec sleep 600", pid.display());
    let mut first = shop.start("same", &["--task", "t"], &script);
    until("the command has begun", || pid.exists().then_some(()));
    first.process.0.kill().unwrap();
    signal("-KILL", fs::read_to_string(&pid).unwrap().trim().parse().unwrap());
    let held_by = shop.look(&execution).text("claimed_by_worker").to_owned();
    let mut second = shop.start("same", &["--task", "t"], "echo $CUED_WORKER_ID");
    second.until("worker started");
    shop.user.advance("PT14M");
    assert_eq!(shop.look(&execution)["claimed_by_worker"], held_by.as_str());
    shop.user.advance("PT2M");
    let seen = shop.reported(&execution);
    assert_eq!((&seen["outcome"]["result"], &seen["attempts"]), (&json!("same\n"), &json!(2)));
    assert_ne!(seen["claimed_by_worker"], held_by.as_str());
    assert_eq!(stop(&mut second), 0);
}

/// A shop without its server, a run of it that has ended, and its worker, which tries to report that.
fn unreported() -> (Workshop, String, BackgroundCommand) {
    let mut shop = Workshop::new();
    let execution = shop.execution("t");
    let worker = shop.start("w", &["--task", "t"], &shop.waiting());
    shop.has_begun();
    shop.server.kill();
    fs::write(shop.path("go"), "").unwrap();
    worker.until("the report was not accepted; trying again");
    (shop, execution, worker)
}

#[test]
fn a_report_is_repeated_until_a_killed_server_is_back() {
    let (mut shop, execution, mut worker) = unreported();
    shop.user = shop.user.at(shop.server.restart_in_place());
    let seen = shop.reported(&execution);
    assert_eq!((&seen["outcome"]["result"], &seen["attempts"]), (&json!("done\n"), &json!(1)));
    // It takes work again.
    let next = shop.execution("t");
    assert_eq!(shop.reported(&next)["status"], "success");
    assert_eq!(stop(&mut worker), 0);
}

#[test]
fn a_report_that_no_server_takes_is_in_the_log() {
    let (mut shop, execution, mut worker) = unreported();
    // Each further signal waits for less; the log says when one has arrived.
    worker.signal("-TERM");
    worker.until("stopping: nothing more is claimed");
    worker.signal("-TERM");
    worker.until("stopping now");
    worker.signal("-TERM");
    assert_eq!(worker.code(), 1);
    let log = worker.output();
    let line = log.lines().find(|line| line.contains("the report was not recorded")).expect(&log);
    assert!(line.contains(&execution) && line.contains("done"), "{line}");
    shop.server.restart();
}

#[test]
fn a_revoked_key_ends_the_worker() {
    let shop = Workshop::new();
    let mut worker = shop.start("w", &["--task", "t"], "true");
    until_true("the worker is listed", || shop.user.read("/v1/workers")["workers"] != json!([]));
    shop.user.post("/v1/auth/key/regenerate", &json!({})).expect(200);
    assert_eq!(worker.code(), 4);
    assert!(worker.output().contains("API key"), "{}", worker.output());
}

/// A worker in a shell with these commands before it, such as `ulimit -Sn 64`.
fn limited(shop: &Workshop, before: &str, arguments: &str) -> BackgroundCommand {
    let log = shop.path("w.log");
    let program = cued(&[]).get_program().to_owned();
    let script = format!(
        "{before}; exec {} work --beat-millis 50 --id w --task t {arguments}",
        program.display()
    );
    BackgroundCommand::start(shop.home.shell(&script), log, false)
}

#[test]
fn the_soft_limit_of_open_files_is_raised_as_far_as_the_jobs_need() {
    let shop = Workshop::new();
    let cue = shop.cue("t", &json!({}));
    let executions: Vec<String> = (0..30).map(|_| shop.fire(&cue)).collect();
    let go = shop.path("go");
    let command = format!(
        "--jobs 30 -- sh -c 'echo >>{0}; until [ $(wc -l <{0}) -ge 30 ]; do sleep 0.05; done; ulimit -Sn'",
        go.display()
    );
    let mut worker = limited(&shop, "ulimit -Sn 100", &command);
    for execution in &executions {
        let seen = shop.reported(execution);
        assert_eq!(seen["status"], "success");
        assert_eq!(seen["outcome"]["result"], "544\n");
    }
    assert_eq!(stop(&mut worker), 0);
    assert!(!worker.output().contains("WARN"), "{}", worker.output());
}

#[test]
fn the_first_process_of_a_container_waits_for_what_loses_its_parent() {
    let shop = Workshop::new();
    let container = "unshare --user --map-root-user --pid --fork --mount-proc";
    if !shop.home.shell(&format!("{container} true")).status().is_ok_and(|status| status.success())
    {
        return skip("this machine permits no container");
    }
    let run = shop.execution("t");
    // The worker is asked to stop, and waits for the command, which ends once nothing is left of its grandchild.
    let script = "orphan=$(sh -c 'sleep 0.1 >/dev/null & echo $!'); kill -TERM 1; \
                  while kill -0 $orphan 2>/dev/null; do sleep 0.02; done";
    fs::write(shop.path("script"), script).unwrap();
    let worker = format!(
        "{container} {} work --task t --grace 5s -- sh {}",
        env!("CARGO_BIN_EXE_cued"),
        shop.path("script").display()
    );
    let mut worker = shop.home.shell(&worker);
    let output = bounded("the worker", move || worker.output().unwrap());
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(shop.reported(&run)["status"], "success", "{output:?}");
}
