"""Every way to sign in, and out."""

import http.client
import json
import os
import subprocess

from driver import PLAIN_HOST
from rig import BASE, check, test

SIGNED_OUT = ("status of 401",)
REGISTER = {"email": "ann@example.com"}


def opened(world, *flags, base=BASE, register=True):
    """A server with one account, and its page in a browser that is not signed in."""
    server = world.serve(*flags, base=base)
    if register:
        server.key = server.call("POST", "/v1/auth/register", REGISTER)["api_key"]
    page = world.page.at(server.url)
    page.expect(*SIGNED_OUT)
    return server, page


def is_in(page, text="No cue yet"):
    page.see(text)
    check(not page.is_shown("[data-screen=sign_in]"), "the sign-in is gone")


@test
def the_first_account_is_made_on_the_page_and_its_key_is_shown_once(world):
    server, page = opened(world, register=False, base=("--allow-callbacks-to", "loopback"))
    page.show("", "sign_in")
    page.see("Create the first account")
    page.fill("#new-email", "ann@example.com")
    page.click("#way-new button", "Create account")
    page.see("Your API key", "dialog")
    key = page.words("dialog code")
    page.press("Escape", "Escape")
    check(page.is_shown("dialog"), "only the button closes it")
    page.click("dialog button", "I stored it")
    is_in(page)
    me = server.call("GET", "/v1/auth/me", key=key)
    check(me["email"] == "ann@example.com", me)
    page.show("#/account/keys", "keys")
    check(key not in page.source(), "the key is nowhere to be seen again")


@test
def a_key_signs_in_and_a_wrong_one_is_told(world):
    server, page = opened(world)
    page.show("#/runs?status=failed", "sign_in")
    page.wait("the focus in the first field", lambda: page.focused() == "API key")
    page.fill("#key-api_key", "cue_sk_wrong")
    page.click("#way-key button", "Sign in")
    page.see("key", "#key-api_key-problem")
    page.fill("#key-api_key", server.key)
    page.press("Enter")
    page.loaded("runs")
    page.see("No run matches")
    check(page.hash() == "#/runs?status=failed", "the address was kept")


@test
def signing_out_ends_the_session_also_for_a_stolen_cookie(world):
    server, page = opened(world)
    page.sign_in(server.key)
    cookie = page.devtools("Network.getCookies", urls=[server.url])["cookies"][0]
    check(cookie["httpOnly"] and cookie["sameSite"] == "Strict", cookie)
    page.run("window.ofThisAccount = true")
    page.click("#tools button", "ann@example.com")
    page.click("#account-menu button", "Sign out")
    page.wait("a new document, without anything of the account", lambda: page.run("return !window.ofThisAccount"))
    page.loaded("sign_in")
    check(page.devtools("Network.getCookies", urls=[server.url])["cookies"] == [], "the cookie is gone")
    page.devtools("Network.setCookie", name=cookie["name"], value=cookie["value"], url=server.url)
    page.show("", "sign_in")


@test
def a_link_of_a_device_login_signs_in(world):
    server, page = opened(world)
    page.show("", "sign_in")
    check(not page.is_shown("#mail-email"), "other ways are folded")
    page.click("summary", "Other ways to sign in")
    page.fill("#mail-email", "ann@example.com")
    page.click("#way-mail button")
    page.see("in the log")
    code = page.words("#way-mail .eyes")
    link = page.url + server.login_link().split("/", 3)[3]
    first = page.tab()
    page.new_tab()
    page.open(link)
    check(code in page.words(), "the confirmation shows the code of the page")
    page.click("button")
    page.see("signed in")
    page.close_tab()
    page.to_tab(first)
    is_in(page)


@test
def a_link_of_cued_open_and_of_cued_user_link_signs_in_once(world):
    server, page = opened(world)
    environment = {**os.environ, "CUED_API_KEY": server.key, "CUED_URL": server.url}
    command = [world.program, "open", "--no-browser", "cues"]
    link = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.split()[-1]
    page.show("", "sign_in")
    page.open(link)
    page.loaded("cues")
    check("enter" not in page.hash(), page.hash())
    page.forget()
    page.open("about:blank")
    page.open(link)
    page.loaded("sign_in")
    page.see("This link was used before")
    made = server.administer("user", "link", "ann@example.com", "--public-url", server.url).split()
    link = next(word for word in made if word.startswith("http"))
    page.open("about:blank")
    page.open(link)
    is_in(page)
    via = {one["via"] for one in server.get("/v1/auth/sessions")["sessions"]}
    check(via == {"link"}, via)


@test
def a_link_of_another_account_asks_before_it_changes_the_account(world):
    server, page = opened(world)
    page.expect("status of 409")
    server.call("POST", "/v1/auth/register", {"email": "eve@example.com"})

    def link_of(email):
        made = server.administer("user", "link", email, "--public-url", server.url).split()
        return next(word for word in made if word.startswith("http"))

    def follow(link):
        page.open("about:blank")
        page.open(link)

    page.sign_in(server.key)
    is_in(page)
    link = link_of("ann@example.com")
    follow(link)
    is_in(page)
    follow(link)
    page.see("You are signed in as ann@example.com", "#toasts")
    is_in(page)
    link = link_of("eve@example.com")
    follow(link)
    page.see("You are signed in as ann@example.com", "dialog")
    page.click("dialog button", "Cancel")
    is_in(page)
    page.see("ann@example.com", "#tools")
    follow(link)
    page.see("You are signed in as ann@example.com", "dialog")
    page.run("window.ofAnn = true")
    page.click("dialog button", "Switch account")
    page.see("eve@example.com", "#tools")
    check(not page.run("return window.ofAnn"), "a new document")
    check("enter" not in page.hash(), page.hash())
    page.show("#/settings", "settings")
    page.see("eve@example.com", "#account")


@test
def a_page_of_one_account_does_nothing_in_another_one(world):
    server, page = opened(world)
    page.expect("status of 401")
    page.sign_in(server.key)
    is_in(page)
    page.go("#/cues/new", "editor")
    page.fill("#f-name", "of ann")
    page.fill("#f-url", "http://127.0.0.1:9/hook")
    # As if another tab had signed in, but without a word to this one.
    eve = server.call("POST", "/v1/auth/register", {"email": "eve@example.com"})["api_key"]
    cookie = page.devtools("Network.getCookies", urls=[server.url])["cookies"][0]
    signed_in = f"""
        const answer = await fetch("v1/auth/session", {{method: "POST", headers: {{"Content-Type": "application/json"}},
            body: JSON.stringify({{api_key: "{eve}"}})}});
        localStorage.setItem("cued account /", (await answer.json()).user.id);
        document.body.dataset.status = answer.status;"""
    page.run(f"(async () => {{{signed_in}}})()")
    page.wait("the other account", lambda: page.run("return document.body.dataset.status === '201'"))
    other = page.devtools("Network.getCookies", urls=[server.url])["cookies"][0]
    check(other["value"] != cookie["value"], "the cookie is that of all tabs")
    page.click("#save")
    page.see("eve@example.com", "#tools")
    totals = [server.call("GET", "/v1/cues", key=key)["total"] for key in (server.key, eve)]
    check(totals == [0, 0], totals)


@test
def a_cookie_that_another_program_has_set_is_not_used(world):
    server, page = opened(world)
    page.expect("status of 401")
    page.sign_in(server.key)
    is_in(page)
    planted = server.call("POST", "/v1/auth/register", {"email": "eve@example.com"})["api_key"]
    asked = http.client.HTTPConnection("127.0.0.1", int(server.port), timeout=30)
    asked.request("POST", "/v1/auth/session", json.dumps({"api_key": planted}), {"Content-Type": "application/json"})
    name, _, value = asked.getresponse().headers["Set-Cookie"].split(";")[0].partition("=")
    # Browsers send the cookie with the longer path first.
    page.devtools("Network.setCookie", name=name, value=value, url=server.url, path="/v1")
    page.show("#/settings", "settings")
    page.see("ann@example.com", "#account")
    page.forget()
    page.devtools("Network.setCookie", name=name, value=value, url=server.url)
    page.show("", "sign_in")


@test
def other_tabs_learn_at_once_who_is_signed_in(world):
    server, page = opened(world)
    page.expect("status of 401")
    page.sign_in(server.key)
    is_in(page)
    first = page.tab()
    second = page.new_tab()
    page.show("#/cues", "cues")
    page.press("?")
    page.see("Keyboard", "dialog")
    page.to_tab(first)
    page.click("#tools button", "ann@example.com")
    page.click("#account-menu button", "Sign out")
    page.loaded("sign_in")
    page.to_tab(second)
    page.loaded("sign_in")
    check(page.count("dialog[open]") == 0, "no dialog lies above the sign-in")
    page.to_tab(first)
    page.sign_in(server.key)
    is_in(page)
    page.to_tab(second)
    page.loaded("cues")


@test
def a_sign_in_that_the_browser_does_not_keep_says_where_to_sign_in(world):
    server, page = opened(world, base=(*BASE, "--public-url", "https://cue.example.com"))
    page.at(server.url.replace("127.0.0.1", PLAIN_HOST)).show("", "sign_in")
    page.fill("#key-api_key", server.key)
    page.press("Enter")
    page.see("open the page at https://cue.example.com instead")
    check(page.is_shown("[data-screen=sign_in]"), "nobody is signed in")
    made = server.administer("user", "link", "ann@example.com", "--public-url", server.url).split()
    token = made[-1].split("/#/")[1]
    page.open("about:blank")
    page.open(page.url + "#/" + token)
    page.see("open the page at https://cue.example.com instead")


@test
def a_server_for_development_has_a_button(world):
    server, page = opened(world, base=("--dev",), register=False)
    # A name of another site that was bound to this address later does not get in.
    asked = http.client.HTTPConnection("127.0.0.1", int(server.port), timeout=30)
    headers = {"Host": f"evil.lan:{server.port}", "Content-Type": "application/json", "Sec-Fetch-Site": "same-origin"}
    asked.request("POST", "/v1/auth/session", '{"dev": true}', headers)
    check(asked.getresponse().status == 403, "a foreign name is refused")
    page.show("", "sign_in")
    page.see("development mode")
    page.click("#way-dev button", "Continue without a key")
    is_in(page)
    # With a second account the button says which one it enters.
    server.call("POST", "/v1/auth/register", {"email": "ada@exmaple.com"})
    page.forget()
    page.show("", "sign_in")
    page.click("#way-dev button", "Continue as dev@example.com")
    is_in(page)


@test
def two_servers_on_one_host_do_not_sign_each_other_out(world):
    one, page = opened(world)
    page.sign_in(one.key)
    other = world.serve(base=BASE)
    other.new_account()
    page.at(other.url).sign_in(other.key)
    is_in(page)
    page.at(one.url).show("#/settings", "settings")
    page.see("ann@example.com", "#account")
