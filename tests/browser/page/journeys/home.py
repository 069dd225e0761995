"""The overview: what fails first, and the way to the reason."""

from rig import check, test


@test
def an_account_without_cues_is_shown_three_ways_to_the_first_one(world):
    world.signed_in()
    page = world.page
    page.see("No cue yet")
    page.see("cued cue add --name hello", "#first-cue")
    page.see("curl", "#first-cue")
    page.click("#first-cue a", "New cue")
    page.loaded("editor")


@test
def a_failing_cue_is_a_sentence_and_the_answer_of_the_receiver_is_one_tap_away(world):
    story = world.story()
    page = world.page
    page.see("nightly-backup failed 4 times in a row", "#failing")
    page.see("the URL returned 503", "#failing")
    check("1 failing" in page.title(), page.title())
    page.click(f"[data-row='{story.backup['id']}'] a[data-run]")
    page.loaded("run")
    page.see("storage is full", "#screen")
    page.see("503", "#why")


@test
def tiles_and_next_runs_lead_to_their_lists(world):
    world.story()
    page = world.page
    check("1" == page.words("[data-tile=workers] b"), page.words("[data-tile=workers]"))
    check("1" == page.words("[data-tile=waiting] b"), page.words("[data-tile=waiting]"))
    page.see("sync-invoices", "#next")
    page.see("succeeded", "#last-day")
    page.click("[data-tile=retrying]")
    page.loaded("runs")
    check(page.hash() == "#/runs?status=retrying", page.hash())
    page.see("newsletter")
    page.go("#/")
    page.click("#last-day a", "failed")
    page.loaded("runs")
    page.see("nightly-backup")


@test
def replay_and_pause_act_from_the_overview_and_it_is_live(world):
    server = world.signed_in()
    page = world.page
    world.receiver.answers["/hook"] = (500, "")
    cue = server.cue("sync", world.receiver.url + "/hook", retry={"max_attempts": 1, "backoff_minutes": [1]})
    page.see("sync", "#next")
    server.fire(server.key, cue["id"])
    server.settle()
    page.see("sync failed", "#failing")
    page.click("#failing button", "Pause sync")
    page.see("Paused sync", "#toasts")
    page.see("Resume", "#failing")
    check(server.get(f"/v1/cues/{cue['id']}")["status"] == "paused", "the cue is paused")
    page.click("#toasts button", "Undo")
    page.see("Resumed sync", "#toasts")
    check(server.get(f"/v1/cues/{cue['id']}")["status"] == "active", "the cue is active again")
    world.receiver.answers["/hook"] = (200, "")
    page.click("#failing button", "Replay sync")
    page.see("Replaying sync", "#toasts")
    page.see("No cue fails now, but there are other problems: 1 run failed in the last 24 hours.", "#not-well")
    page.click("#not-well a", "Show failed runs")
    page.loaded("runs")
    page.see("1 run matches")


@test
def what_happened_on_another_screen_is_there_at_once(world):
    server = world.signed_in()
    page = world.page
    world.receiver.answers["/hook"] = (500, "")
    for turn in range(3):
        page.go("#/settings", "settings")
        cue = server.cue(f"sync {turn}", world.receiver.url + "/hook", retry={"max_attempts": 1, "backoff_minutes": [1]})
        server.fire(server.key, cue["id"])
        server.settle()
        page.go("#/", "overview")
        if turn == 2:
            page.click("#failing button", "Show 1 more")
        page.see(f"sync {turn} failed", "#failing")


@test
def the_clock_of_a_test_is_moved_from_the_page(world):
    server = world.signed_in()
    page = world.page
    server.cue("tick", world.receiver.url, schedule={"type": "recurring", "cron": "30 8 * * *", "timezone": "UTC"})
    page.see("Test clock", "[data-banner=clock]")
    page.see("in 30 min", "#next")
    page.click("[data-banner=clock] button", "+1 h")
    page.see("09:00", "[data-banner=clock]")
    page.see("1 run succeeded", "#all-well")


@test
def every_address_has_a_screen_and_a_wrong_one_says_so(world):
    world.signed_in()
    page = world.page
    page.go("#/nowhere")
    page.see("This screen does not exist")
    page.click("#screen a", "Overview")
    page.see("No cue yet")
    page.expect("status of 404")
    page.go("#/runs/018f0000-0000-7000-8000-000000000000", "run")
    page.see("This run is gone")
    page.go("#/cues/cue_000000000000", "cue")
    page.see("not found")


@test
def the_numbers_come_before_the_third_failing_cue(world):
    server = world.signed_in()
    page = world.page
    page.look("light", 360, 740)
    world.receiver.answers["/hook"] = (500, "")
    for number in range(4):
        cue = server.cue(f"job {number}", world.receiver.url + "/hook", retry={"max_attempts": 1, "backoff_minutes": [1]})
        server.fire(server.key, cue["id"])
    server.settle()
    page.show("#/", "overview")
    page.see("Show 2 more", "#failing")
    check(page.count("#failing li") == 2, "two are shown")
    top = page.run("return document.querySelector('.tiles').getBoundingClientRect().top")
    check(top < 740, f"the numbers begin at {top} px")
    page.click("#failing button", "Show 2 more")
    page.wait("all four", lambda: page.count("#failing li") == 4)
    check(not page.overflows(), "they fit")


@test
def all_is_well_only_where_it_is(world):
    server = world.signed_in()
    page = world.page
    server.cue("report", transport="worker", payload={"task": "report"})
    page.see("All is well.", "#all-well")
    server.fire(server.key, server.get("/v1/cues")["cues"][0]["id"])
    page.see("1 run is waiting for a worker, and no worker is active.", "#not-well")
    check(page.count("#all-well") == 0, "nothing says that all is well")
    page.click("#not-well a", "Show workers")
    page.loaded("workers")
    page.see("Runs of task report are waiting; no active worker takes them.")
    server.post("/v1/worker/heartbeat", {"worker_id": "nas-1", "handlers": ["other"]})
    page.go("#/", "overview")
    page.see("Runs of task report are waiting; no active worker takes them.", "#not-well")
    page.see("1 Worker active", "[data-tile=workers]")
    server.post("/v1/worker/heartbeat", {"worker_id": "nas-1", "handlers": ["report"]})
    page.go("#/", "overview")
    page.see("All is well.", "#all-well")


@test
def recent_runs_and_what_a_cue_calls_are_shown(world):
    server = world.signed_in()
    page = world.page
    world.receiver.answers["/a/very/long/path/to/the/daily/backup"] = (500, "")
    cues = [server.cue("twin", world.receiver.url + path, retry={"max_attempts": 1, "backoff_minutes": [1]})
            for path in ("/a/very/long/path/to/the/daily/backup", "/other")]
    for cue in cues:
        server.fire(server.key, cue["id"])
    server.settle()
    page.show("#/", "overview")
    host = world.receiver.url[7:]
    page.see(f"twin POST {host}/other, Every day at 04:00, UTC ● Succeeded", "#recent")
    page.see(f"POST {host}/…/to/the/daily/backup", "#failing")
    page.see(f"POST {host}/other", "#next")
    page.click("#recent a.name")
    page.loaded("run")
    page.see(f"POST {host}/", ".head")
    page.go(f"#/cues/{cues[0]['id']}", "cue")
    page.see(f"POST {host}/…/to/the/daily/backup", "#calls")
    page.go("#/runs", "runs")
    page.see(f"POST {host}/…/to/the/daily/backup", "tbody")
    page.see("All 2 Failed 1 Retrying 0 Running 0 Pending 0 Succeeded 1", ".tabs")
    page.go("#/cues", "cues")
    page.see(f"POST {host}/other", "#cue-list")
    page.go("#/runs", "runs")
    page.click("#filter")
    page.fill("#d-cue", "twin")
    page.click("dialog button", "Show")
    page.see(f"twin (POST {host}/other, {cues[1]['id']})", "#d-cue-problem")


@test
def a_server_without_mail_says_that_nobody_is_told(world):
    server = world.signed_in()
    page = world.page
    cue = server.cue("sync")
    page.see("You get no message when a cue fails.", "#channel-hint")
    page.go(f"#/cues/{cue['id']}", "cue")
    page.see("After a failure nothing else")
    page.see("You get no message when a run fails. Add a channel", "#silent")
    page.go("#/cues/new", "editor")
    page.see("You get no message when a run fails. Add a channel, or start the server with --smtp-url", "#preview")
    check("a mail to you" not in page.words("#preview"), "no mail is promised")
    page.click("summary", "If a run fails")
    page.see("This server cannot send email: messages go to its log.")
    page.go("#/notifications/new/email", "notifications")
    page.see("This server cannot send email: messages go to its log, so nobody gets them.")
    page.click("#save")
    page.see("Log only", "tbody")
    page.show(f"#/cues/{cue['id']}", "cue")
    page.see("You get no message when a run fails.", "#silent")
    server.post("/v1/channels", {"type": "ntfy", "url": world.receiver.url + "/backups"})
    page.show(f"#/cues/{cue['id']}", "cue")
    page.see("After a failure")
    check(page.count("#silent") == 0, "a channel tells")


@test
def a_channel_that_fails_and_a_run_that_is_retried_are_not_well(world):
    server = world.signed_in()
    page = world.page
    world.receiver.answers["/hook"] = (500, "")
    server.post("/v1/channels", {"type": "ntfy", "url": world.receiver.url + "/topic", "name": "phone"})
    world.receiver.answers["/"] = (500, "")
    cue = server.cue("sync", world.receiver.url + "/hook", retry={"max_attempts": 2, "backoff_minutes": [60]})
    server.fire(server.key, cue["id"])
    server.settle()
    page.show("#/", "overview")
    page.see("1 run is being retried.", "#not-well")
    server.advance("PT2H")
    server.advance("PT3H")
    page.show("#/", "overview")
    page.see("The channel phone fails: nobody hears of failures.", "#failing-channels")
    check(page.count("#all-well") == 0, "nothing says that all is well")


@test
def twins_differ_on_a_phone(world):
    server = world.signed_in()
    page = world.page
    page.look("light", 360, 740)
    for path in ("/a/very/long/path/to/the/daily/backup", "/a/very/long/path/to/the/weekly/report"):
        server.cue("twin", world.receiver.url + path)
    page.show("#/", "overview")
    page.see("twin", "#next")
    lines = "return [...document.querySelectorAll('#next .cut')].every((p) => p.scrollWidth <= p.clientWidth)"
    check(page.run(lines), "what they call is not cut off")
    check(not page.overflows(), "it fits")
    page.go("#/cues", "cues")
    page.click("[aria-label='Actions on twin']")
    page.click("[popover]:popover-open button", "Delete")
    page.see("POST 127.0.0.1", "dialog")


@test
def flows_are_shown_where_there_are_some(world):
    server = world.signed_in()
    page = world.page
    server.cue("plain")
    page.show("#/", "overview")
    page.see("plain", "#next")
    check(page.count("#flows") == 0, "no cue has a flow")
    for name in ("one", "two"):
        server.cue(name, callback={"url": "http://127.0.0.1:9/", "flow": {"key": "nas", "parallelism": 2}})
    page.see("nas 2 at once, 2 cues 0 waiting, 0 running", "#flows li")
