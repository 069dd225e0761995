"""Cues are made and changed in a form that shows what will happen."""

import json

from rig import check, test

BIG = "12345678901234567890"


def new(page, url, name="made by form", cron="*/5 * * * *"):
    page.go("#/cues/new", "editor")
    page.fill("#f-url", url)
    page.fill("#f-name", name)
    page.fill("#f-cron", cron)


@test
def a_cue_is_made_by_form_and_fired(world):
    server = world.signed_in()
    page = world.page
    world.receiver.answers["/hook"] = (200, "")
    new(page, world.receiver.url + "/hook")
    page.see("Every 5 minutes", "#preview")
    check(page.count("#preview ol.runs li") == 10, "the next ten runs")
    page.see("8,928 runs in the next 31 days", "#preview")
    page.click(".editor button", "Create and fire")
    page.loaded("run")
    page.see("Succeeded at the first attempt", "#why")
    cue = server.get("/v1/cues")["cues"][0]
    check((cue["name"], cue["schedule"]["cron"]) == ("made by form", "*/5 * * * *"), cue)


@test
def a_name_that_another_cue_has_is_noted_with_a_link(world):
    server = world.signed_in()
    page = world.page
    url = world.receiver.url + "/hook"
    first = server.post("/v1/cues", {"name": "nightly", "schedule": {"type": "recurring", "cron": "0 2 * * *"},
                                     "callback": {"url": url}})
    new(page, url, name="Nightly")
    check(page.count("#f-name-help") == 0, "names differ in their letters")
    page.fill("#f-name", "nightly")
    page.run("document.getElementById('f-cron').focus()")
    page.see("Another cue has this name", "#f-name-help")
    page.see("/hook, Every day at 02:00, UTC", f"#f-name-help a[href='#/cues/{first['id']}']")
    page.click(".editor button.primary", "Create")
    page.loaded("cue")
    page.go("#/runs", "runs")
    server.post(f"/v1/cues/{first['id']}/fire")
    page.go("#/", "overview")
    page.see("/hook, Every day at 02:00, UTC", "#next")
    page.see("/hook, Every 5 minutes, UTC", "#next")


@test
def a_wrong_cron_is_marked_where_it_is_wrong(world):
    world.signed_in()
    page = world.page
    page.expect("status of 400", "status of 422")
    new(page, "http://example.com/", cron="0 25 * * *")
    page.see("25", ".wrong mark")
    check(page.run("return document.getElementById('f-cron').getAttribute('aria-invalid')") == "true", "for readers too")
    page.see("Correct the schedule to see the runs", "#preview")
    page.click(".editor button[type=submit], .editor button.primary")
    page.wait("the focus at the fault", lambda: page.run("return document.activeElement.id") == "f-cron")
    page.click(".chips button", "Nightly")
    page.see("Every day at 03:00", "#preview")
    page.click(".chips button", "After month's end")
    page.see("Understood: At 00:00", "#f-cron-help")
    page.fill("#f-cron", "last day of the month")
    page.see("A cron has no last day of a month", "#f-cron-problem")
    page.see("last day of the month", ".wrong mark")
    page.fill("#f-cron", "")
    page.see("Enter a schedule; examples are “every 5m”", "#f-cron-problem")


@test
def words_are_shown_as_they_were_understood_and_saved_as_the_api_has_them(world):
    server = world.signed_in()
    page = world.page
    page.expect("status of 400")
    new(page, world.receiver.url + "/hook", cron="every weekday at 9")
    page.fill("#f-zone", "")
    page.keys("berlin")
    zone = lambda: page.run("return document.getElementById('f-zone').value")
    page.wait("the zone of the place", lambda: zone() == "Europe/Berlin")
    page.see("At 09:00, Monday to Friday, Europe/Berlin", "#preview")
    page.see("Understood: At 09:00, Monday to Friday (0 9 * * 1-5)", "#f-cron-help")
    page.click(".editor button.primary")
    page.loaded("cue")
    cue = server.get("/v1/cues")["cues"][0]
    schedule = cue["schedule"]
    check((schedule["cron"], schedule["timezone"]) == ("0 9 * * 1-5", "Europe/Berlin"), cue)
    page.go(f"#/cues/{cue['id']}/edit", "editor")
    page.fill("#f-cron", "every fortnight")
    page.see("fortnight", ".wrong mark")
    page.fill("#f-cron", "every 20 min")
    page.see("Understood: Every 20 minutes", "#f-cron-help")
    page.click(".editor button.primary")
    page.loaded("cue")
    schedule = server.get(f"/v1/cues/{cue['id']}")["schedule"]
    check((schedule["every"], schedule["cron"]) == ("20m", None), schedule)
    page.go(f"#/cues/{cue['id']}/edit", "editor")
    page.fill("#f-cron", "today 0:00")
    page.see("00:00 is in the past.", "#f-cron-problem")
    page.fill("#f-cron", "tomorrow 9:00")
    page.see("Understood: Once, on ", "#f-cron-help")
    page.click(".editor button.primary")
    page.loaded("cue")
    schedule = server.get(f"/v1/cues/{cue['id']}")["schedule"]
    check(schedule["type"] == "once" and schedule["at"], schedule)


@test
def a_time_from_now_counts_from_the_moment_of_saving(world):
    server = world.signed_in()
    page = world.page
    new(page, world.receiver.url.removeprefix("http://") + "/hook", cron="+1m")
    check(page.run("return document.getElementById('f-url').value") == world.receiver.url + "/hook", "a scheme is added")
    page.see("Understood: Once, on Monday 2 March 2026 at 08:01", "#f-cron-help")
    server.advance("PT5M")
    page.click(".editor button.primary", "Create")
    page.loaded("cue")
    cue = server.get("/v1/cues")["cues"][0]
    check(cue["schedule"]["at"] == "2026-03-02T08:06:00Z", cue)


@test
def a_zone_has_no_problem_while_it_is_typed_and_may_be_a_place(world):
    world.signed_in()
    page = world.page
    page.expect("status of 422", "status of 400")
    new(page, world.receiver.url + "/hook")
    page.fill("#f-zone", "")
    page.keys("new y")
    page.see("Correct the time zone", "#preview")
    check(page.count("#f-zone-problem") == 0, "it is not finished")
    page.run("document.getElementById('f-name').focus()")
    page.see("is not a time zone", "#f-zone-problem")
    page.fill("#f-zone", "kolkata")
    zone = lambda: page.run("return document.getElementById('f-zone').value")
    page.wait("the zone of the place", lambda: zone() in ("Asia/Kolkata", "Asia/Calcutta"))
    page.click("summary", "Start, end, jitter")
    page.choose("#f-start", "2020-01-01T09:00")
    page.see("This is in the past", "#f-start-help")


@test
def an_interval_with_an_end_jitter_and_a_time_limit_is_made_and_changed_on_a_phone(world):
    server = world.signed_in()
    page = world.page
    page.look("light", 360, 780)
    page.expect("status of 422", "status of 400")
    new(page, world.receiver.url + "/hook", cron="@every 9s")
    page.see("from 10 seconds to 366 days", "#f-cron-problem")
    page.fill("#f-cron", "@every 90s")
    page.see("Every 1 min 30 s", "#preview")
    page.click("summary", "Start, end, jitter")
    page.fill("#f-jitter", "91")
    page.see("at most the time between two runs", "#f-jitter-problem")
    page.fill("#f-jitter", "40")
    page.choose("#f-end", "2026-03-02T08:10")
    page.see("until 2 March 2026 at 08:10, up to 40 s later", "#preview")
    page.click("summary", "Headers and response")
    page.fill("#f-timeout", "301")
    page.click(".editor button.primary")
    page.see("Must be at most 300", "#f-timeout-problem")
    page.fill("#f-timeout", "5")
    page.click("summary", "Retries")
    page.fill("#f-waits", "30s, 5m")
    page.see("at once, after 30 s, after 5 min 30 s, after 10 min 30 s")
    check(not page.overflows(), "it fits")
    page.click(".editor button.primary")
    page.loaded("cue")
    for text in ("every 90s", "up to 40 s later", "5 s an attempt", "4, after 30 s"):
        page.see(text)
    cue = server.get("/v1/cues")["cues"][0]
    schedule = cue["schedule"]
    check((schedule["every"], schedule["cron"], schedule["jitter_seconds"]) == ("90s", None, 40), cue)
    check((schedule["start"], schedule["end"]) == (None, "2026-03-02T08:10:00Z"), cue)
    check((cue["callback"]["timeout_seconds"], cue["retry"]["backoff_seconds"]) == (5, [30, 300]), cue)
    page.go(f"#/cues/{cue['id']}/edit", "editor")
    page.see("No changes yet")
    check(page.run("return document.getElementById('f-cron').value") == "@every 90s", "the interval")
    # The runs of this cue, not of one that begins now.
    upcoming = server.get(f"/v1/cues/{cue['id']}/upcoming?detail=true")
    page.see(upcoming["description"], "#preview")
    page.see(upcoming["occurrences"][0]["local"][11:], "#preview .runs")
    page.click("summary", "Start, end, jitter")
    page.choose("#f-end", "2026-03-02T08:01")
    page.see("No run is left before", "#f-end-problem")
    page.choose("#f-end", "")
    page.fill("#f-jitter", "0")
    page.see("Changed: end, jitter")
    page.click(".editor button.primary")
    page.loaded("cue")
    page.see("Every 1 min 30 s, UTC")
    schedule = server.get(f"/v1/cues/{cue['id']}")["schedule"]
    check((schedule["every"], schedule["end"], schedule["jitter_seconds"]) == ("90s", None, 0), schedule)


@test
def limits_and_tags_are_set_and_changed_on_a_phone(world):
    server = world.signed_in()
    page = world.page
    page.look("light", 360, 740)
    page.expect("status of 422")
    new(page, world.receiver.url + "/hook")
    page.click("summary", "Overlap and limits")
    page.choose("#f-overlap", "buffer_one")
    page.fill("#f-max_age_seconds", "10")
    page.see("Write a number with its unit", "#f-max_age_seconds-problem")
    page.fill("#f-max_age_seconds", "10m")
    page.fill("#f-outcome_deadline_seconds", "90s")
    page.fill("#f-parallel", "65")
    page.click("summary", "Tags and more")
    page.click("#f-tags")
    page.keys("prod,Nas")
    page.press("Enter")
    page.keys("no/slash")
    page.press("Enter")
    page.see("“no/slash” is not a tag", "#f-tags-problem")
    page.press("Backspace")
    page.gone("is not a tag")
    page.see("overlap: wait for the earlier run (at most one waits), gives up 10m after it was due, result due within 90s", "summary")
    page.see("prod, nas", "summary")
    check(not page.overflows(), "it fits a phone")
    page.click(".editor button.primary")
    page.see("Must be at most 64", "#f-parallel-problem")
    page.fill("#f-parallel", "2")
    page.click(".editor button.primary")
    page.loaded("cue")
    for text in ("Wait for the earlier run", "10 min after it was due", "1 min 30 s of its delivery", ": 2 at once"):
        page.see(text)
    page.see("prod nas", ".title .tag")
    cue = server.get("/v1/cues")["cues"][0]
    flow = {"key": world.receiver.url[7:], "parallelism": 2, "per_minute": None}
    check((cue["overlap"], cue["max_age_seconds"], cue["outcome_deadline_seconds"]) == ("buffer_one", 600, 90), cue)
    check((cue["callback"]["flow"], cue["tags"]) == (flow, ["prod", "nas"]), cue)
    page.go(f"#/cues/{cue['id']}/edit", "editor")
    page.see("No changes yet")
    page.click("summary", "Overlap and limits")
    page.fill("#f-parallel", "")
    page.fill("#f-max_age_seconds", "")
    page.click("summary", "Tags and more")
    page.click("button", "Remove the tag prod")
    page.see("Changed: max age, flow, tags")
    page.click(".editor button.primary")
    page.loaded("cue")
    cue = server.get(f"/v1/cues/{cue['id']}")
    check((cue["overlap"], cue["max_age_seconds"], cue["outcome_deadline_seconds"]) == ("buffer_one", None, 90), cue)
    check((cue["callback"]["flow"], cue["tags"]) == (None, ["nas"]), cue)


@test
def a_cue_without_a_run_before_its_end_is_completed_and_can_go_on(world):
    server = world.signed_in()
    page = world.page
    page.expect("status of 400")
    schedule = {"type": "recurring", "every": "10s", "end": "2026-03-02T08:00:15Z"}
    cue = server.cue("over", world.receiver.url + "/hook", schedule=schedule)
    server.advance("PT20S")
    page.go(f"#/cues/{cue['id']}", "cue")
    page.see("Completed: no run is left before its end.")
    page.go(f"#/cues/{cue['id']}/edit", "editor")
    page.see("The end is past. The cue does not run again unless you set a later one.", "#preview")
    check(page.count("[aria-invalid=true]") == 0, "no fault of the form")
    page.click("summary", "Start, end, jitter")
    page.choose("#f-end", "2026-03-02T08:01")
    page.see("Every 10 seconds until 2 March 2026 at 08:01", "#preview")
    page.click(".editor button.primary")
    page.loaded("cue")
    page.wait("it goes on", lambda: server.get(f"/v1/cues/{cue['id']}")["status"] == "active")


@test
def a_gap_of_the_clock_is_told_before_saving(world):
    world.signed_in()
    page = world.page
    new(page, "http://example.com/", cron="30 2 29 3 *")
    page.fill("#f-zone", "Europe/Berlin")
    page.see("02:30", "#preview .warn")
    page.see("clock changes", "#preview")


@test
def a_big_number_of_a_payload_survives_every_step(world):
    server = world.signed_in()
    page = world.page
    new(page, world.receiver.url + "/hook")
    page.click("summary", "Payload")
    page.fill("#f-payload", '{"id": %s, "rate": 1.10}' % BIG)
    page.click("button", "Format")
    page.click(".editor button.primary")
    page.loaded("cue")
    page.see(BIG, "#payload")
    cue = server.get("/v1/cues")["cues"][0]["id"]
    page.go(f"#/cues/{cue}/edit", "editor")
    page.wait("the payload", lambda: BIG in page.run("return document.getElementById('f-payload')?.value || ''"))
    page.fill("#f-name", "renamed")
    page.fill("#f-payload", '{"id": %s, "rate": 1.10, "more": true}' % BIG)
    page.click(".editor button.primary")
    page.loaded("cue")
    page.see("renamed", "h1")
    text = server.get(f"/v1/cues/{cue}?payload=text")["payload_text"]
    check(BIG in text and "1.1" in text and "more" in text, text)


@test
def unsaved_changes_ask_before_they_are_left(world):
    server = world.signed_in()
    page = world.page
    cue = server.cue("kept")
    page.go(f"#/cues/{cue['id']}/edit", "editor")
    page.fill("#f-name", "changed")
    page.see("Changed: name")
    page.click("#nav a", "Runs")
    page.see("Leave without saving?", "dialog")
    page.click("dialog button", "Cancel")
    check(page.hash() == f"#/cues/{cue['id']}/edit", page.hash())
    kept = page.run("return document.getElementById('f-name').value")
    check(kept == "changed", kept)
    page.click("#nav a", "Runs")
    page.click("dialog button", "Leave")
    page.loaded("runs")
    check(server.get(f"/v1/cues/{cue['id']}")["name"] == "kept", "nothing was saved")


@test
def what_somebody_else_changed_meanwhile_is_not_overwritten(world):
    server = world.signed_in()
    page = world.page
    cue = server.cue("one")
    page.go(f"#/cues/{cue['id']}/edit", "editor")
    page.fill("#f-name", "mine")
    server.patch(f"/v1/cues/{cue['id']}", {"name": "theirs"})
    page.see("This cue was changed elsewhere: name.")
    check(page.run("return document.getElementById('f-name').value") == "mine", "what was typed is kept")
    page.click("button", "Merge with my changes")
    page.click(".editor button.primary")
    page.loaded("cue")
    page.see("mine", "h1")


@test
def the_address_of_a_callback_is_checked_by_the_server(world):
    world.signed_in()
    page = world.page
    page.expect("status of 422", "status of 400")
    new(page, "http://192.168.1.10/hook")
    page.see("--allow-callbacks-to", "#f-url-help")
    page.click(".editor button.primary")
    page.see("192.168.1.10", ".editor")
    page.wait("a problem at the address", lambda: page.run("return document.getElementById('f-url').ariaInvalid") == "true")


@test
def a_run_at_one_time_and_a_task_for_workers(world):
    server = world.signed_in()
    page = world.page
    page.go("#/cues/new", "editor")
    page.click(".segments button", "Run on a worker")
    page.fill("#f-task", "report")
    page.click(".segments button", "Once")
    page.choose("#f-at", "2026-03-05T10:30")
    page.fill("#f-zone", "Asia/Tokyo")
    page.see("10:30", "#preview")
    page.click(".editor button.primary")
    page.loaded("cue")
    cue = server.get("/v1/cues")["cues"][0]
    check(cue["transport"] == "worker" and cue["next_run"] == "2026-03-05T01:30:00+00:00", json.dumps(cue))
    payload = json.loads(server.get(f"/v1/cues/{cue['id']}?payload=text")["payload_text"])
    check(payload == {"task": "report"}, payload)


@test
def a_test_calls_the_address_and_shows_the_response(world):
    server = world.signed_in()
    page, receiver = world.page, world.receiver
    page.look("light", 360, 740)
    receiver.answers["/hook"] = (503, "down for maintenance")
    new(page, receiver.url + "/hook")
    page.click("summary", "Payload")
    page.fill("#f-payload", '{"n": %s}' % BIG)
    page.click(".bulk button", "Test")
    page.see("The URL returned 503, after", "#test-call")
    page.see("down for maintenance", "#test-call")
    check(not page.overflows(), "the answer fits")
    receiver.answers["/hook"] = (200, '{"thanks": true}')
    page.click("#test-call button", "Again")
    page.see("The response is 200, after", "#test-call")
    page.see("thanks", "#test-call")
    page.click("#test-call summary", "Headers of the response")
    page.see("application/json", "#test-call")
    page.click("#test-call summary", "Headers of the request")
    page.see("X-CueAPI-Test", "#test-call")
    check(not page.overflows(), "the headers fit")
    for _ in range(2):
        path, headers, body = receiver.next()
        headers = {name.lower(): value for name, value in headers.items()}
        check((path, body, headers["x-cueapi-test"]) == ("/hook", '{"n": %s}' % BIG, "true"), (path, headers, body))
    page.click("#test-call button", "Close")
    check(page.run("return document.getElementById('f-payload').value").strip() == '{"n": %s}' % BIG, "the form stays")
    check(server.get("/v1/cues")["total"] == server.get("/v1/executions")["total"] == 0, "nothing is stored")


@test
def a_test_that_cannot_be_made_says_why(world):
    world.signed_in()
    page = world.page
    page.expect("status of 400")
    new(page, "http://192.168.1.10/hook")
    page.click(".bulk button", "Test")
    page.see("192.168.1.10", "#test-call")
    page.click("#test-call button", "Close")
    page.fill("#f-url", "http://127.0.0.1:9/hook")
    page.click(".bulk button", "Test")
    page.see("The connection was refused, after", "#test-call")
    page.click("#test-call button", "Close")
    page.click(".segments button", "Run on a worker")
    page.wait("no Test for workers, which are not called", lambda: not page.is_shown(".bulk button", "Test"))


@test
def the_request_of_a_run_is_shown_without_a_call_of_the_address(world):
    server = world.signed_in("--allow-callbacks-to", "loopback")
    page = world.page
    new(page, "http://example.com/hook")
    page.click("summary", "Payload")
    page.fill("#f-payload", '{"n": %s}' % BIG)
    page.click(".editor button", "Show request")
    page.see("Preview the request", "dialog")
    page.see("x-cueapi-signature", "dialog")
    page.see(BIG, "dialog")
    page.click("dialog button", "Close")
    check(server.get("/v1/cues?limit=1")["total"] == 0, "the cue of the request is gone")
