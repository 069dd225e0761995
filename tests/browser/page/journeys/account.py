"""Workers, alerts, plan, keys and settings."""

from rig import BASE, FROZEN, check, test


@test
def workers_are_listed_with_what_they_hold(world):
    server = world.signed_in()
    page = world.page
    page.go("#/workers", "workers")
    page.see("cued work --task")
    server.post("/v1/worker/heartbeat", {"worker_id": "nas-1", "handlers": ["report"]})
    page.see("nas-1", "table")
    cue = server.cue("report", transport="worker", payload={"task": "report"})
    server.fire(server.key, cue["id"])
    page.see("Waiting by task")
    server.post("/v1/executions/claim", {"worker_id": "nas-1", "task": "report"})
    page.see("Running now")
    page.see("cued work --task report -- ./COMMAND", "#start")
    server.advance("PT2H")
    page.show("#/workers", "workers")
    page.click("button", "Remove nas-1")
    page.click("dialog button", "Remove")
    page.see("No worker yet")


@test
def alerts_lead_to_their_runs(world):
    server = world.signed_in()
    page = world.page
    world.receiver.answers["/hook"] = (500, "")
    page.go("#/alerts", "alerts")
    page.see("No alert")
    cue = server.cue("sync", world.receiver.url + "/hook", retry={"max_attempts": 1, "backoff_minutes": [1]})
    for _ in range(3):
        server.fire(server.key, cue["id"])
        server.settle()
    page.see("1 alert")
    page.see("New", "table")
    unread = "return document.querySelector('[data-nav=alerts] span').dataset.unread"
    check(page.run(unread) == "", "it was shown")
    page.go("#/settings", "settings")
    server.advance("PT2H")
    # Failures after a success are others, with an alert of their own.
    for status in (200, 500, 500, 500):
        world.receiver.answers["/hook"] = (status, "")
        server.fire(server.key, cue["id"])
        server.settle()
    page.wait("a mark in the navigation", lambda: page.run(unread) == "1")
    page.show("#/settings", "settings")
    page.wait("the mark after a reload", lambda: page.run(unread) == "1")
    page.go("#/alerts", "alerts")
    page.see("1 more of this cue", "table")
    page.see("POST 127.0.0.1:", "table")
    check(page.count("tbody tr") == 1, "one row for the cue")
    page.wait("no mark", lambda: page.run(unread) == "")
    page.click(".tabs a", "Rejected")
    page.see("No alert matches")
    page.click(".tabs a", "Failing")
    page.see("sync", "table")
    page.click("table a.name")
    page.loaded("run")


@test
def the_plan_shows_what_is_used_and_what_happens_at_the_limit(world):
    server = world.serve(base=(*BASE, *FROZEN))
    server.new_account()  # the operator, who lifts limits instead
    server.new_account()
    page = world.page.at(server.url)
    page.sign_in(server.key)
    for number in range(10):
        server.cue(f"job {number}")
    page.show("#/account/plan", "plan")
    page.see("What happens at the limit")
    page.wait("the plan in the navigation", lambda: page.is_shown("#nav a", "Plan"))
    page.see("10 of 10", "[data-meter=cues]")
    page.see("Limit of active cues reached. 10 of 10", "[data-banner=cues]")
    page.see("Change the plan", "#plans")
    page.expect("status of 403", "status of 402", "status of 409", "status of 422")
    page.go("#/cues/new", "editor")
    page.fill("#f-url", "http://127.0.0.1:9/")
    page.click(".editor button.primary")
    page.see("The plan allows 10 active cues", "#refused")


@test
def the_plan_of_a_private_server_says_what_lifts_the_limits(world):
    server = world.signed_in(base=("--registration", "first-user", "--allow-callbacks-to", "loopback", *FROZEN))
    page = world.page
    for number in range(10):
        server.cue(f"job {number}")
    page.show("#/account/plan", "plan")
    page.see("cued serve --limits off", "#lift")
    page.see("To lift the limits, start the server with --limits off", "[data-banner=cues]")
    check("Ask for" not in page.words(), "there is nobody to ask")


@test
def without_limits_the_plan_says_so(world):
    world.story()
    page = world.page
    page.go("#/account/plan", "plan")
    page.see("This server has no limits", "#no-limits")
    check(not page.is_shown("#plans"), "no plan is offered")
    check(not page.is_shown("#nav a", "Plan"), "nor is there an entry for it")
    check("plan" not in page.words().lower(), "nothing speaks of plans")
    page.see("Twelve months")


@test
def a_key_is_made_shown_once_and_revoked(world):
    server = world.signed_in()
    page = world.page
    page.go("#/account/keys", "keys")
    page.see("The last key stays", "#keys")
    page.click("#new-key")
    page.fill("#d-name", "laptop")
    page.click("dialog button", "Create")
    page.see("Your new key", "dialog")
    key = page.words("dialog code")
    page.click("dialog button", "I stored it")
    page.see("laptop", "#keys")
    check(key not in page.words(), "it is not shown again")
    check(server.call("GET", "/v1/auth/me", key=key)["email"], "it works")
    page.click("button", "Revoke laptop")
    page.click("dialog button", "Revoke")
    page.see("Revoked laptop", "#toasts")
    page.gone("laptop", "#keys")
    check(server.refused("GET", "/v1/auth/me", key=key)[0] == 401, "it does not work any more")


@test
def the_secret_is_shown_on_demand_and_replaced_with_an_overlap(world):
    server = world.signed_in()
    page = world.page
    page.go("#/account/keys", "keys")
    secret = server.get("/v1/auth/webhook-secret")["webhook_secret"]
    check(secret not in page.words(), "hidden at first")
    page.click("#webhook-secret button", "Show the webhook secret")
    page.see(secret, "#webhook-secret")
    page.click("#webhook-secret button", "Replace")
    page.see("24 hours", "dialog")
    page.click("dialog button", "Replace")
    page.see("The old secret also signs until", "#webhook-secret")
    check(server.get("/v1/auth/webhook-secret")["webhook_secret"] in page.words(), "the new one is shown")
    page.see("Verify it in your receiver", "#webhook-secret a[href='docs/how-to/signatures']")


@test
def other_sessions_are_listed_and_ended(world):
    server = world.signed_in()
    page = world.page
    cookies = page.devtools("Network.getCookies", urls=[server.url])["cookies"][0]
    page.forget()
    page.sign_in(server.key)
    page.show("#/account/keys", "keys")
    page.see("this one", "#sessions")
    check(page.count("#sessions tbody tr") == 2, "two sessions")
    page.click("#end-others")
    page.click("dialog button", "End them")
    page.see("Ended 1", "#toasts")
    page.wait("one session", lambda: page.count("#sessions tbody tr") == 1)
    page.forget()
    page.devtools("Network.setCookie", name=cookies["name"], value=cookies["value"], url=server.url)
    page.expect("status of 401")
    page.show("", "sign_in")
    page.see("Your session has ended. Sign in again")


@test
def settings_change_the_look_and_the_times_and_stay(world):
    story = world.story()
    page = world.page
    page.go("#/settings", "settings")
    page.click("#look button", "Dark")
    dark = page.run("return getComputedStyle(document.body).backgroundColor")
    page.click("#look button", "Light")
    check(page.run("return getComputedStyle(document.body).backgroundColor") != dark, "another ground")
    page.fill("#f-zone", "")
    page.keys("tokyo")
    page.wait("the zone of the place", lambda: page.run("return document.getElementById('f-zone').value") == "Asia/Tokyo")
    page.click("#times button", "12 h")
    page.show(f"#/cues/{story.invoices['id']}", "cue")
    page.see("pm", "#next-runs")
    page.press("z", "z")
    page.wait("times in UTC", lambda: page.run("return document.querySelector('#tools select').value") == "utc")
    page.go("#/settings", "settings")
    page.fill("#f-zone", "Nowhere/Town")
    page.see("does not know this zone", "#f-zone-problem")
    page.click("[name=shortcuts]")
    page.run("document.activeElement.blur()")
    page.press("g", "c")
    check(page.hash() == "#/settings", "single keys do nothing now")
    page.see("cued ", "#about")
    page.run("localStorage.removeItem('cued')")
