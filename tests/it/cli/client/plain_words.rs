//! Words that a person reads in place of those of the API, and filters that take both.

use crate::cli::client::{Desk, START};
use crate::support::*;

#[test]
fn runs_above_the_limit_of_the_plan_are_explained_with_the_remedy() {
    let plans = Plans::free(&json!({"cues": 3, "executions": 3, "requests_per_minute": null}));
    let server = plans.server(&["--dev", "--test-clock", START]);
    let (desk, receiver) = (Desk::at(server), Receiver::start());
    let (home, user) = (&desk.home, &desk.user);
    let cue = user.create(&webhook_cue("minutely", "* * * * *", &receiver.url()));
    let runs = |home: &ClientHome| {
        [["account", "usage"].as_slice(), &["whoami"]].map(|line| {
            let shown = home.ok(line);
            let line = shown.lines().find_map(|line| line.strip_prefix("runs ")).unwrap();
            line.trim().to_owned()
        })
    };
    user.advance("PT2M");
    assert_eq!(runs(home), ["2 of 3 this month"; 2].map(str::to_owned));
    user.advance("PT2M");
    let soon = "4 of 3 this month: more are sent for a day at most, then none until next month";
    assert_eq!(runs(home), [soon; 2].map(str::to_owned));
    user.advance("PT3M");
    user.settle();
    assert_eq!(
        runs(home),
        ["6 of 3 this month: none is sent until next month"; 2].map(str::to_owned)
    );
    let id = cue.text("id");
    let refused = home.fails(&["cue", "fire", id], 6);
    let reason = "The plan allows 3 runs a month, and this month has 6: no more are sent until 2030-02-01 (UTC). To \
                  send them now, start this server with --limits off";
    assert!(refused.contains(reason), "{refused}");
    let list = home.ok(&["run", "list", "--failed"]);
    assert!(list.lines().nth(1).unwrap().contains("\tlimit reached\t"), "{list}");
    let run = user.executions_of(id).into_iter().find(|run| run["status"] == "failed").unwrap();
    let shown = home.ok(&["run", "show", run.text("id")]);
    let why = "not sent: the plan's 3 runs of the month were used up; start the server with --limits off\n";
    assert!(shown.contains(why) && shown.contains("limit reached\n"), "{shown}");
    assert!(home.ok(&["cue", "show", id]).contains("  failed  limit reached\n"));
}

#[test]
fn the_limit_of_an_operators_own_plan_is_lifted_by_the_operator_and_that_of_others_by_an_upgrade() {
    let plans = Plans::free(&json!({"cues": 0, "executions": 3, "requests_per_minute": null}));
    let server = plans.server(&["--dev"]);
    let [operator, other] =
        ["ann", "bob"].map(|name| server.client().register(&format!("{name}@example.com")));
    let body = hourly_cue("a");
    for (user, remedy) in
        [(&operator, "or start this server with --limits off"), (&other, "or upgrade")]
    {
        let refused = user.post("/v1/cues", &body).expect_error(403, "cue_limit_exceeded");
        let message = refused["error"].text("message");
        assert!(message.ends_with(remedy), "{message}");
    }
}

#[test]
fn the_limit_of_requests_of_ones_own_server_is_named_with_its_remedy() {
    let server = Server::start(&["--dev", "--test-clock", START]);
    let [operator, other] =
        ["ann", "bob"].map(|name| server.client().register(&format!("{name}@example.com")));
    for (user, remedy) in [(&operator, ", or start this server with --limits off"), (&other, "")] {
        let refused = (0..70)
            .map(|_| user.get("/v1/auth/me"))
            .find(|response| response.status == 429)
            .unwrap();
        let refused = refused.expect_error(429, "rate_limit_exceeded");
        let message = refused["error"].text("message");
        assert!(message.ends_with(&format!(" s{remedy}")), "{message}");
    }
    let home = ClientHome::signed_in(&server, &operator);
    let mut waiting = LiveCommand::start(&home, &["cue", "list"]);
    waiting.wait_for_note(
        "The server asks for a pause of 60 s: The limit of 60 requests per minute is exceeded",
    );
}
