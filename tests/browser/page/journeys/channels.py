"""Notifications: channels added in two steps, tested, changed and removed, and what the overview says of them."""

import json

from rig import check, test

TOKEN = "tk_AgQdq7mVBoFD37zQVN29RhuMzNIz2"


def own(server):
    return [channel for channel in server.get("/v1/channels")["channels"] if not channel["built_in"]]


def header(request, name):
    return {one.lower(): value for one, value in request[1].items()}.get(name)


def bearers(world):
    """The tokens with which the receiver was asked since the last time."""
    return [header(world.receiver.taken.get(), "authorization") for _ in range(world.receiver.taken.qsize())]


@test
def a_channel_is_added_tested_changed_and_removed_on_a_phone(world):
    server = world.signed_in()
    page = world.page
    page.look("dark", 360, 780)
    page.expect("status of 422")
    page.go("#/notifications", "notifications")
    page.see("Failure emails", "table")
    page.see("No channel of your own yet")
    page.click(".head a", "Add a channel")
    page.wait("ten services", lambda: page.count("a.tile") == 10)
    check(not page.overflows(), "they fit")
    page.click("a.tile", "ntfy")
    page.see("New channel: ntfy", "h1")
    guide = "const {href, target, rel} = document.querySelector('#screen a[target]'); return [href, target, rel]"
    check(page.run(guide) == ["https://docs.ntfy.sh/", "_blank", "noreferrer"], page.run(guide))
    page.fill("#f-token", TOKEN)
    page.click("[name='cue.paused']")
    page.click("#save")
    page.see("This field is required", "#f-url-problem")
    page.wait("the focus at the fault", lambda: page.run("return document.activeElement.id") == "f-url")
    page.fill("#f-url", "https://hooks.slack.com/services/T0/B0/x")
    page.click("#save")
    page.see("add a channel for Slack instead", "#f-url-problem")
    check(page.run("return document.getElementById('f-token').value") == TOKEN, "what was typed is kept")
    page.fill("#f-url", world.receiver.url + "/backups")
    page.click("#f-tags")
    page.keys("nas")
    page.press("Enter")
    check(not page.overflows(), "the form fits")
    page.click("#save")
    page.see("Saved ntfy backups")
    page.see("Failures, recoveries, pauses, all alerts", "table")
    page.see("Only cues with the tag nas", "table")
    check(not page.overflows(), "the list fits")
    [channel] = own(server)
    check((channel["url"], channel["tags"]) == (world.receiver.url + "/backups", ["nas"]), channel)

    world.receiver.answers["/"] = (200, '{"id": "hwQ2YpKdmg", "event": "message"}')
    page.click("#test-saved")
    page.see("The test arrived.", "#test")
    page.see("HTTP status 200", "#test")
    page.see("hwQ2YpKdmg", "#test")
    check(not page.overflows(), "the answer fits")
    sent = world.receiver.next()
    check((header(sent, "authorization"), json.loads(sent[2])["topic"]) == (f"Bearer {TOKEN}", "backups"), sent)
    page.click("#test button", "Close")
    world.receiver.answers["/"] = (507, '{"code": 50701, "http": 507, "error": "the disk is full"}')
    row = f"[data-row='{channel['id']}']"
    page.click(f"{row} button", "Send a test to ntfy backups")
    page.see("The test failed: ntfy answered 507 the disk is full", "#test")
    page.click("#test button", "Close")
    page.see("Failed now: ", row)
    page.see("ntfy answered 507 the disk is full", row)

    page.click(f"{row} button", "Actions for ntfy backups")
    page.click(f"{row} .menu button", "Edit")
    page.see("Edit ntfy backups", "h1")
    check(page.run("return document.getElementById('f-token').autocapitalize") == "none", "a phone leaves tokens as they are")
    check(page.run("return document.getElementById('f-token').value") == "…" + TOKEN[-4:], "the token is masked")
    page.click("[name=quiet]")
    page.choose("#f-quietFrom", "23:30")
    page.choose("#f-quietTo", "23:30")
    page.fill("#f-timezone", "")
    page.keys("berlin")
    zone = "return document.getElementById('f-timezone').value"
    page.wait("the zone of the place", lambda: page.run(zone) == "Europe/Berlin")
    page.click("#save")
    page.see("Must differ from the start", "#f-quietTo-problem")
    page.choose("#f-quietTo", "06:00")
    page.click("#save")
    page.see("Quiet from 23:30 to 06:00, Europe/Berlin", row)
    check(own(server)[0]["quiet"] == {"from": "23:30", "to": "06:00", "timezone": "Europe/Berlin"}, own(server))
    del world.receiver.answers["/"]
    bearers(world)
    page.click("#test-saved")
    page.see("The test arrived.", "#test")
    page.press("Escape")
    check(set(bearers(world)) == {f"Bearer {TOKEN}"}, "the token is still the one that was typed")
    page.gone("Failed now: ", row)
    page.click(f"{row} button", "Actions for ntfy backups")
    page.click(f"{row} .menu button", "Remove")
    page.click("dialog button", "Remove")
    page.see("Removed ntfy backups", "#toasts")
    page.see("No channel of your own yet")
    check(own(server) == [], "it is gone")


@test
def the_two_steps_work_by_keyboard_alone(world):
    server = world.signed_in()
    page = world.page
    page.go("#/settings", "settings")
    page.keys("gh")
    page.loaded("notifications")
    page.keys("n")
    page.wait("the focus on the heading", lambda: page.focused() == "New channel")
    page.tab_to("ntfy…")
    page.press("Enter")
    page.wait("the focus on the heading", lambda: page.focused() == "New channel: ntfy")
    page.tab_to("Topic URL")
    page.keys(world.receiver.url + "/keys")
    page.tab_to("Any alert")
    page.press("Space")
    page.tab_to("Individual alerts")
    page.press("Enter")
    page.tab_to("Worker lost")
    page.press("Space")
    page.tab_to("Add")
    page.press("Enter")
    page.see("Saved ntfy keys")
    check(own(server)[0]["events"] == ["execution.failed", "cue.recovered", "alert.claim_lost"], own(server))
    page.see("Failures, recoveries, alerts (Worker lost)", "table")
    page.wait("the focus on the heading", lambda: page.focused() == "Notifications")
    page.tab_to("Send a test")
    page.press("Enter")
    page.see("The test arrived.", "#test")
    page.press("Escape")
    page.wait("the focus where it was", lambda: page.focused() == "Send a test")
    page.go("#/notifications/new/gotify")
    page.fill("#f-token", "x")
    page.run("location.hash = '#/'")
    page.see("Leave without saving?", "dialog")
    page.click("dialog button", "Leave")
    page.loaded("overview")


@test
def the_overview_hints_at_channels_once_and_shows_those_that_fail(world):
    server = world.signed_in()
    page = world.page
    hints = lambda: page.count("#channel-hint")  # noqa: E731
    page.see("No cue yet")
    check(hints() == 1, "a new account sees it")
    world.receiver.answers["/hook"] = (500, "")
    cue = server.cue("sync", world.receiver.url + "/hook", retry={"max_attempts": 1, "backoff_minutes": [1]})
    page.see("You get no message when a cue fails.", "#channel-hint")
    page.click("#channel-hint button", "Dismiss")
    page.wait("no hint", lambda: hints() == 0)
    page.show("#/", "overview")
    check(hints() == 0, "it was dismissed")
    page.run("localStorage.removeItem('cued')")
    page.show("#/", "overview")
    page.click("#channel-hint a", "Add a channel")
    page.loaded("notifications")
    page.see("New channel", "h1")
    page.show("#/", "overview")
    check(hints() == 0, "it was followed")
    world.receiver.answers["/"] = (503, "")
    server.post("/v1/channels", {"type": "ntfy", "url": world.receiver.url + "/backups"})
    server.fire(server.key, cue["id"])
    server.settle()
    # Nine more attempts: after 10 s, 1, 5 and 15 min, and five times half an hour.
    server.advance("PT3H")
    page.show("#/", "overview")
    page.see("The channel ntfy backups fails: nobody hears of failures. ntfy answered 503", "#failing-channels")
    page.click("#failing-channels a", "Open Notifications")
    page.loaded("notifications")
    page.see("Failing", "table .badge")
    page.see("Failed 10 times in a row", "table")
    page.see("tried once an hour", "table")
    del world.receiver.answers["/"]
    page.click("table button", "Send a test to ntfy backups")
    page.see("The test arrived.", "#test")
    page.press("Escape")
    page.go("#/", "overview")
    page.wait("no channel that fails", lambda: page.count("#failing-channels") == 0)


@test
def built_in_channels_say_where_they_are_set_and_are_tested(world):
    server = world.signed_in()
    page = world.page
    page.go("#/notifications", "notifications")
    page.see("Set it in each cue", "[data-row=email]")
    page.see("At most 10 emails an hour", "[data-row=email]")
    check(page.count("[popovertarget=menu-email]") == 0, "it is not changed here")
    page.click("[data-row=email] button", "Send a test")
    page.see("The test failed: this server sends no mail", "#test")
    page.press("Escape")
    page.see("Every failed run", "[data-row=cue_webhooks]")
    row = "[data-row=alert_webhook]"
    page.see("Not set", row)
    page.click("#set-webhook")
    page.fill("#d-alert_webhook_url", world.receiver.url + "/alerts")
    page.click("dialog button.primary")
    page.see("/alerts", row)
    check(server.get("/v1/auth/me")["alert_webhook_url"].endswith("/alerts"), "it is set")
    page.click(f"{row} button", "Send a test")
    page.see("The test arrived.", "#test")
    page.see("HTTP status 200", "#test")
    world.take("/alerts")
    page.press("Escape")
    world.receiver.answers["/alerts"] = (500, "")
    page.click(f"{row} button", "Send a test")
    page.see("The test failed: the URL returned 500. It will be sent again.", "#test")
    page.press("Escape")
    check(server.get("/v1/alerts")["total"] == 0, "a test is in no list")
    page.go("#/alerts", "alerts")
    page.click("#destinations a", "Where alerts are sent")
    page.loaded("notifications")
    page.click(f"{row} button", "Actions for Alert webhook")
    page.click(f"{row} .menu button", "Remove")
    page.click("dialog button", "Remove")
    page.see("Not set", row)
    check(server.get("/v1/auth/me")["alert_webhook_url"] is None, "it is removed")
