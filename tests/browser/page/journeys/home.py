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
    page.see("the callback returned 503", "#failing")
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
    page.see("All is well", "#all-well")


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
    page.see("There is no such screen")
    page.click("#screen a", "Overview")
    page.see("No cue yet")
    page.expect("status of 404")
    page.go("#/runs/018f0000-0000-7000-8000-000000000000", "run")
    page.see("This run is gone")
    page.go("#/cues/cue_000000000000", "cue")
    page.see("not found")


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
