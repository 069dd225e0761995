"""The screen of operators: users, registration, requests for plans, backups, health, and a copy on hold."""

import os
import tempfile

from rig import BASE, FROZEN, Server, check, test

ALONE = ("--allow-callbacks-to", "loopback", *FROZEN)


def first_user(world, *flags, base=ALONE):
    """A server whose first user, an operator, is signed in to the page."""
    server = world.serve(*flags, base=base)
    server.key = server.call("POST", "/v1/auth/register", {"email": "ann@example.com"})["api_key"]
    world.page.at(server.url).sign_in(server.key)
    return server


def row(email):
    return f"#users tr:has([aria-label='Actions for {email}'])"


def act(page, email, text):
    page.click("button", f"Actions for {email}")
    page.click(f"{row(email)} .menu button", text)


def copied(page):
    return page.run("return document.querySelector('dialog code').textContent")


@test
def an_operator_adds_finds_disables_and_promotes_users(world):
    server = first_user(world)
    page = world.page
    page.click("#nav a", "Operator")
    page.loaded("admin")
    page.see("you operator", row("ann@example.com"))
    check(not page.is_shown("#plan-requests"), "nobody asked for a plan")
    page.click("#add-user")
    page.fill("#d-email", "bo@example.com")
    page.click("dialog button", "Add")
    page.see("The API key of bo@example.com", "dialog")
    key = copied(page)
    page.click("dialog button", "I stored it")
    page.see("2 users", "#users")
    check(key not in page.words(), "it is not shown again")
    check(server.call("GET", "/v1/auth/me", key=key)["is_operator"] is False, "it works, and is no operator")
    page.expect("status of 400", "status of 409", "status of 422", "status of 401")
    page.click("#add-user")
    page.fill("#d-email", "bo@example.com")
    page.click("dialog button", "Add")
    page.wait("the reason", lambda: page.words("dialog .problem") or page.words("dialog [role=alert]"))
    page.press("Escape")

    page.fill("#search", "bo@")
    page.see("1 user", "#users")
    check(page.hash() == "#/admin?q=bo%40", page.hash())
    page.fill("#search", "nobody")
    page.see("No user matches", "#users")
    page.fill("#search", "")
    page.see("2 users", "#users")

    act(page, "bo@example.com", "Change the plan")
    page.fill("#d-plan", "gold")
    page.click("dialog button", "Change")
    page.see("free, pro, scale", "dialog")
    page.fill("#d-plan", "pro")
    page.click("dialog button", "Change")
    page.see("pro", row("bo@example.com"))
    act(page, "bo@example.com", "Make operator")
    page.see("sign in as every user", "dialog")
    page.click("dialog button", "Make operator")
    page.see("operator", row("bo@example.com"))
    act(page, "bo@example.com", "Remove as operator")
    page.click("dialog button", "Remove")
    page.gone("operator", row("bo@example.com"))
    act(page, "bo@example.com", "Disable")
    page.see("its cues are paused, and its waiting runs fail", "dialog")
    page.click("dialog button", "Disable")
    page.see("Disabled", row("bo@example.com"))
    check(server.refused("GET", "/v1/auth/me", key=key)[0] == 401, "the key is refused")
    act(page, "bo@example.com", "Enable")
    page.gone("Disabled", row("bo@example.com"))
    page.click("button", "Actions for ann@example.com")
    check(page.count(f"{row('ann@example.com')} .menu .danger") == 0, "nobody disables the own account")


@test
def a_sign_in_link_of_an_operator_opens_the_page_of_the_user(world):
    server = first_user(world)
    page = world.page
    server.post("/v1/admin/users", {"email": "bo@example.com"})
    page.go("#/admin", "admin")
    act(page, "bo@example.com", "Create a sign-in link")
    page.see("It works once", "dialog")
    url = copied(page)
    page.expect("status of 401")
    page.forget()
    page.run("localStorage.clear()")
    page.open("about:blank")
    page.open(url)
    page.see("bo@example.com", "#tools")
    check(not page.is_shown("#nav a", "Operator"), "the menu has it for operators only")
    page.go("#/admin", "admin")
    page.see("your account is not one of them")


@test
def registration_is_opened_and_closed_unless_a_flag_fixes_it(world):
    server = first_user(world)
    page = world.page
    page.go("#/admin", "admin")
    page.see("Only operators add accounts", "#registration")
    page.click("#registration button", "Anyone")
    page.click("dialog button", "Open registration")
    page.see("Anyone who reaches this server", "#registration")
    check(server.get("/v1/info")["registration"] == "open", "it is open")
    page.click("#registration button", "Nobody")
    page.see("Only operators add accounts", "#registration")
    check(server.get("/v1/info")["registration"] == "closed", "it is closed")
    first_user(world, base=(*BASE, *FROZEN))
    page.go("#/admin", "admin")
    page.see("The server was started with --registration", "#registration")
    check(page.count("#registration button") == 0, "it is not changed here")


@test
def requests_for_plans_are_approved_and_declined(world):
    server = first_user(world, base=(*BASE, *FROZEN))
    page = world.page
    for email in ("bo@example.com", "cy@example.com"):
        key = server.call("POST", "/v1/auth/register", {"email": email})["api_key"]
        page.expect("favicon")
        url = server.call("POST", "/v1/billing/checkout", {"plan": "pro", "interval": "monthly"}, key=key)["checkout_url"]
        page.open(url)
        page.click("button")
        page.see("Your request was sent")
    page.show("#/admin", "admin")
    page.see("bo@example.com, on plan free, asks for pro (monthly)", "#plan-requests")
    page.click("#plan-requests li:first-child button", "Approve")
    page.see("Approved the request of bo@example.com", "#toasts")
    page.see("pro", row("bo@example.com"))
    page.click("#plan-requests button", "Decline")
    page.wait("no request", lambda: page.count("#plan-requests") == 0)
    page.see("free", row("cy@example.com"))


@test
def a_backup_is_made_downloaded_and_deleted(world):
    folder = world.enter_context(tempfile.TemporaryDirectory(prefix="cued-backups-"))
    first_user(world, "--backup-dir", folder)
    page = world.page
    page.look("dark", 360, 740)
    page.go("#/admin/backups", "admin")
    page.see("No backup yet")
    page.click("#make-backup")
    page.see("Backed up to", "#toasts")
    [name] = os.listdir(folder)
    page.see(name, "#backups")
    page.see("now", "#backups")
    check(not page.overflows(), "the list fits")
    start = page.run_async(
        "const done = arguments[0]; const link = document.querySelector('#backups a[download]');"
        "fetch(link.href).then((answer) => answer.text()).then((text) => done([link.download, text.slice(0, 15)]))"
    )
    check(start == [name, "SQLite format 3"], start)
    page.click("#backups button", f"Delete {name}")
    page.click("dialog button", "Delete")
    page.see("No backup yet")
    check(os.listdir(folder) == [], "the file is gone")


@test
def health_and_the_last_warnings_are_shown(world):
    first_user(world)
    page = world.page
    page.go("#/admin/backups", "admin")
    page.see("start the server with --backup-dir", "#no-folder")
    page.go("#/admin/health", "admin")
    page.see("Healthy", "#health")
    page.see("Free disk", "#health")
    page.see("No warnings since the start", "#warnings")
    page.click("#refresh")
    page.see("Healthy", "#health")


@test
def a_copy_on_hold_is_promoted_on_the_page(world):
    server = first_user(world)
    server.cue("hourly", world.receiver.url + "/hourly", schedule={"type": "recurring", "cron": "0 * * * *", "timezone": "UTC"})
    copy = os.path.join(world.enter_context(tempfile.TemporaryDirectory(prefix="cued-copy-")), "copy.db")
    server.administer("backup", copy)
    held = Server(world.program, base=("--allow-callbacks-to", "loopback", "--test-clock", "2026-03-02T12:30:00Z"))
    held.place, held.key = copy, server.key
    world.enter_context(held)
    page = world.page
    page.at(held.url).sign_in(held.key)
    page.click("[data-banner=held] a", "Promote…")
    page.loaded("admin")
    page.see("Nothing fires", "#held")
    page.click("#promote")
    page.see("both call each URL", "dialog")
    page.click("dialog button", "Promote")
    page.see("Promoted. 1 cue", "#toasts")
    page.wait("no hold", lambda: page.count("#held") == 0 and page.count("[data-banner=held]") == 0)
    held.advance("PT0S")
    world.take("/hourly")
