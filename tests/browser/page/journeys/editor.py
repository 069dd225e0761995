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
    page.see("At 03:00", "#preview")
    page.click(".chips button", "Month's end")
    page.see("Cron has no last day of a month")


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
    page.click("button", "Take it, with my changes")
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
    page.click(".segments button", "For a worker")
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
def a_test_shows_what_a_receiver_gets(world):
    server = world.signed_in("--allow-callbacks-to", "loopback")
    page = world.page
    new(page, "http://example.com/hook")
    page.click("summary", "Payload")
    page.fill("#f-payload", '{"n": %s}' % BIG)
    page.click(".editor button", "Test")
    page.see("What a receiver gets", "dialog")
    page.see("x-cueapi-signature", "dialog")
    page.see(BIG, "dialog")
    page.click("dialog button", "Close")
    check(server.get("/v1/cues?limit=1")["total"] == 0, "the cue of the test is gone")
