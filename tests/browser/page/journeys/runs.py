"""The list of runs and one run."""

import json

from rig import check, test

BIG = "12345678901234567890"


@test
def runs_are_filtered_in_the_address_and_say_why_they_failed(world):
    story = world.story()
    page = world.page
    page.go("#/runs", "runs")
    page.click(".tabs a", "Failed")
    page.see("nightly-backup")
    page.see("The URL returned 503")
    check(page.hash() == "#/runs?status=failed", page.hash())
    page.click("#filter")
    page.fill("#d-cue", "nightly-backup")
    page.choose("#d-cause", "status_5xx")
    page.click("dialog button", "Show")
    page.see("nightly-backup", "[data-filter=cue]")
    check(f"cue={story.backup['id']}" in page.hash() and "cause=status_5xx" in page.hash(), page.hash())
    page.show(page.hash(), "runs")
    page.see("4 runs match")
    page.click("[data-filter=cause]")
    page.wait("the filter is removed", lambda: "cause" not in page.hash())


@test
def another_page_begins_at_its_top_and_back_returns_to_the_place(world):
    world.story()
    page = world.page
    page.show("#/runs", "runs")
    page.run("scrollTo(0, 700)")
    page.click(".pager a", "Next")
    page.see("31–60 of", ".pager")
    page.wait("the top of the page", lambda: page.run("return scrollY") == 0)
    page.run("history.back()")
    page.see("1–30 of", ".pager")
    page.wait("the place that was left", lambda: page.run("return scrollY") >= 300)
    page.run("history.forward()")
    page.see("31–60 of", ".pager")
    page.wait("the top again", lambda: page.run("return scrollY") == 0)


@test
def new_runs_are_counted_and_do_not_move_the_list(world):
    server = world.signed_in()
    page = world.page
    world.receiver.answers["/hook"] = (200, "")
    cue = server.cue("sync", world.receiver.url + "/hook")
    server.fire(server.key, cue["id"])
    server.settle()
    page.go("#/runs", "runs")
    page.see("1 run")
    for _ in range(3):
        server.fire(server.key, cue["id"])
    server.settle()
    page.see("Show 3 new", "#new-runs")
    check(page.count("#screen tbody tr") == 1, "the list has not moved")
    page.click("#new-runs")
    page.wait("the new rows", lambda: page.count("#screen tbody tr") == 4)


@test
def the_timeline_of_a_run_has_every_attempt_with_its_answer(world):
    story = world.story()
    page = world.page
    page.go(f"#/runs/{story.failed['id']}", "run")
    page.see("Failed after 3 attempts: the URL returned 503.", "#why")
    for number in (1, 2, 3):
        page.see(f"Attempt {number} of 3", ".timeline")
    page.see("1 min wait", ".timeline")
    page.see("5 min wait", ".timeline")
    check(page.run("return document.querySelector('details[data-answer=\"3\"]').open"), "the last answer is open")
    page.see('"error": "storage is full"', ".timeline")
    page.see("POST", "#request")
    page.see("keep", "#request")
    page.click("#verify summary")
    page.see("openssl dgst -sha256", "#verify")
    page.click("#older")
    page.wait("an older run of the cue", lambda: story.failed["id"] not in page.hash())
    page.loaded("run")
    page.see("nightly-backup", "h1")


@test
def a_run_is_replayed_and_fired_again_with_another_payload(world):
    server = world.signed_in()
    page = world.page
    world.receiver.answers["/hook"] = (500, "broken <b>here</b>")
    cue = server.cue("sync", world.receiver.url + "/hook", retry={"max_attempts": 1, "backoff_minutes": [1]}, payload={"id": 1})
    run = server.fire(server.key, cue["id"])
    server.settle()
    world.take("/hook")
    page.go(f"#/runs/{run}", "run")
    page.see("broken <b>here</b>", ".timeline")
    world.receiver.answers["/hook"] = (200, '{"done": true}')
    page.click("#action-replay")
    page.see("Replayed. This is the new run.", "#toasts")
    page.see("Succeeded at the first attempt", "#why")
    check(run not in page.hash(), "the page shows the new run")
    page.see("as a replay", ".timeline")
    world.take("/hook")
    page.click("#action-edited")
    page.expect("status of 422")
    page.fill("#d-payload_override", '{"id": }')
    page.click("dialog button", "Fire")
    page.see("Line 1, column 8", "dialog")
    page.fill("#d-payload_override", '{"id": %s}' % BIG)
    page.click("dialog button", "Fire")
    body = world.take("/hook")[2]
    check(body == f'{{"id": {BIG}}}', body)
    page.see(BIG, "#request")


def show_refused_run(world, server, answer, retry):
    """Fires a cue whose receiver answers with 503, and opens the run."""
    world.receiver.answers["/hook"] = (503, answer)
    cue = server.cue("sync", world.receiver.url + "/hook", retry=retry)
    run = server.fire(server.key, cue["id"])
    server.settle()
    world.page.go(f"#/runs/{run}", "run")


@test
def a_run_that_is_retried_is_sent_now_or_cancelled(world):
    server, page = world.signed_in(), world.page
    show_refused_run(world, server, "", {"max_attempts": 4, "backoff_minutes": [10]})
    page.see("Attempt 1 of 4 failed: the URL returned 503. Next attempt in 10 min.", "#why")
    page.click("#action-retry")
    page.see("Attempt 2 of 4 failed", "#why")
    page.click("#action-cancel")
    page.click("dialog button", "Cancel the run")
    page.see("Cancelled after 2 attempts.", "#why")


@test
def an_attempt_appears_as_it_happens(world):
    server, page = world.signed_in(), world.page
    show_refused_run(world, server, "not yet", {"max_attempts": 3, "backoff_minutes": [1]})
    page.see("Attempt 1 of 3 failed", "#why")
    world.receiver.answers["/hook"] = (200, "")
    server.advance("PT1M")
    page.see("Succeeded at attempt 2 of 3", "#why")


@test
def many_runs_are_replayed_and_cancelled_together(world):
    server = world.signed_in()
    page = world.page
    world.receiver.answers["/hook"] = (500, "")
    cue = server.cue("sync", world.receiver.url + "/hook", retry={"max_attempts": 1, "backoff_minutes": [1]})
    for _ in range(32):
        server.fire(server.key, cue["id"])
    server.settle()
    world.receiver.answers["/hook"] = (200, "")
    page.go("#/runs?status=failed", "runs")
    page.click("[aria-label='Select all rows on this page']")
    page.click(".bulk button", "Select all 32 that match")
    page.click("#replay-selected")
    page.see("Replay 32 runs?", "dialog")
    page.fill("#d-typed", "32")
    page.click("dialog button", "Replay")
    page.see("Replayed 32 runs", "#toasts")
    server.settle()
    page.click("#toasts a", "Show them")
    page.wait("the replays", lambda: "triggered_by=replay" in page.hash())
    page.see("32 runs match")
    page.click(".head button", "Export")
    page.click("#export button", "JSON lines")
    page.see("Saved 32 runs as runs.jsonl", "#toasts")
    page.click(".head button", "Export")
    page.click("#export button", "CSV")
    page.see("Saved 32 runs as runs.csv", "#toasts")


# Answers every third request of the page as a server does that is asked too often.
BUSY = """
const send = window.fetch;
let count = 0;
window.fetch = (...all) => ++count % 3 ? send(...all) : Promise.resolve(new Response("{}", {status: 429, headers: {"Retry-After": "1"}}));
"""


@test
def many_runs_are_cancelled_even_where_the_server_asks_to_wait(world):
    server = world.signed_in()
    page = world.page
    cue = server.cue("sync")
    for _ in range(5):
        server.fire(server.key, cue["id"], send_at="2026-04-01T00:00:00Z")
    page.go("#/runs?status=pending", "runs")
    page.see("5 runs match")
    page.run(BUSY)
    page.click("[aria-label='Select all rows on this page']")
    page.click("#cancel-selected")
    page.click("dialog button", "Cancel")
    check(page.is_shown("dialog") is False, "the dialog is left")
    page.click("#cancel-selected")
    page.click("dialog button.primary")
    page.see("of 5", ".bulk")
    page.see("Cancelled 5 of 5 runs", "#toasts")
    page.wait("the focus on the heading, as the buttons are gone", lambda: page.focused() == "Runs")
    page.show(f"#/cues/{cue['id']}", "cue")
    page.see("Cancelled", "#cue-runs")
    check("Failed" not in page.words("#cue-runs"), "a cancelled run has not failed")


@test
def a_run_that_no_worker_takes_says_how_to_start_one(world):
    server = world.signed_in()
    page = world.page
    cue = server.cue("report", transport="worker", payload={"task": "report"})
    run = server.fire(server.key, cue["id"])
    page.go(f"#/runs/{run}", "run")
    page.see("Runs of task report are waiting; no active worker takes them.", "#no-worker")
    page.see("cued work --task report -- ./COMMAND", "#no-worker")
    server.post("/v1/worker/heartbeat", {"worker_id": "nas-1", "handlers": ["mail"]})
    page.see("no active worker takes them.", "#no-worker")
    server.post("/v1/worker/heartbeat", {"worker_id": "nas-2", "handlers": ["report"]})
    page.wait("the note to go", lambda: not page.is_shown("#no-worker"))


@test
def an_outcome_of_a_worker_is_shown_accepted_and_rejected(world):
    server = world.signed_in()
    page = world.page
    cue = server.cue("report", transport="worker", payload={"task": "report"}, verification={"mode": "manual"})
    run = server.post(f"/v1/cues/{cue['id']}/fire", {"payload_override": {"year": 2029}})["id"]
    page.go(f"#/runs/{run}", "run")
    page.see("Waiting. Due", "#why")
    page.see('"task": "report"', "#payload")
    page.see('"year": 2029', "#payload")
    server.post(f"/v1/executions/{run}/claim", {"worker_id": "nas-1"})
    page.see("The worker nas-1 is running it", "#why")
    outcome = {"success": True, "result": "done", "external_id": "INV-7", "metadata": {"rows": 5}}
    server.post(f"/v1/executions/{run}/outcome", outcome)
    page.see("INV-7", ".timeline")
    page.see("It needs your confirmation", "#why")
    page.click("#action-accept")
    page.click("dialog button", "Accept")
    page.see("Accepted", ".timeline")
    check(server.execution(server.key, run)["outcome_state"] == "verified_success", json.dumps(outcome))
    page.click("button", "More")
    page.click("[popover]:popover-open button", "Verify again")
    page.click("#action-reject")
    page.fill("#d-reason", "the file is empty")
    page.click("dialog button", "Reject")
    page.see("Done, but not accepted: the file is empty", "#why")
    page.see("Rejected", ".title")


@test
def an_error_of_many_lines_is_read_line_by_line(world):
    server = world.signed_in()
    page = world.page
    cue = server.cue("report", transport="worker", payload={"task": "report"})
    run = server.fire(server.key, cue["id"])
    page.go(f"#/cues/{cue['id']}", "cue")
    page.see("task report", "#calls")
    page.see("cued work --task report -- ./COMMAND")
    server.post(f"/v1/executions/{run}/claim", {"worker_id": "nas-1"})
    server.post(f"/v1/executions/{run}/outcome", {"success": False, "error": "cannot open file\nexit code 3"})
    page.go(f"#/runs/{run}", "run")
    page.see("exit code 3", "#why")
    text = page.run("return document.querySelector('#why b').innerText")
    check("cannot open file\nexit code 3" in text, repr(text))


@test
def a_run_says_what_it_waits_for_and_when_it_is_given_up(world):
    server = world.signed_in()
    page = world.page
    schedule = {"type": "recurring", "every": "1m"}
    server.cue("report", schedule=schedule, transport="worker", overlap="buffer_one", max_age_seconds=600)
    server.advance("PT130S")
    page.go("#/runs", "runs")
    page.see("Waits for the earlier run")
    page.click("tbody tr:first-child .name")
    page.loaded("run")
    page.see("It waits for the earlier run.", "#why")
    page.see("Gives up in 9 min", "#why")
    server.advance("PT61S")
    cue = server.get("/v1/cues")["cues"][0]["id"]
    page.go(f"#/cues/{cue}", "cue")
    page.see("The earlier run was still going", "#missed")
    server.advance("PT10M")
    page.go("#/runs?status=failed", "runs")
    page.see("It did not succeed in time")


@test
def a_delivery_whose_result_nobody_reports_is_not_shown_as_a_success(world):
    server = world.signed_in()
    page = world.page
    world.receiver.answers["/hook"] = (200, "")
    cue = server.cue("sync", world.receiver.url + "/hook", outcome_deadline_seconds=300)
    run = server.fire(server.key, cue["id"])
    server.settle()
    page.go("#/runs", "runs")
    page.see("Delivered No result yet, due in 5 min", ".result")
    page.go(f"#/runs/{run}", "run")
    page.see("no result yet. It is due in 5 min.", "#why")
    server.advance("PT301S")
    page.see("Delivered, but no result was reported in time.", "#why")
    page.go("#/runs?outcome=missing", "runs")
    page.see("Delivered ✕ No result", ".result")
    page.go("#/alerts", "alerts")
    page.see("No result", "td .tag")
    server.post(f"/v1/executions/{run}/outcome", {"success": True})
    page.go(f"#/runs/{run}", "run")
    page.see("Succeeded at the first attempt", "#why")
