"""The device login as a person meets it: page, mail, link, confirmation; then the device's poll.

login.py CUED [SCREENSHOTS]: the program, and a folder for pictures of every page, light and dark, phone and desktop.
"""

import asyncio
import email
import os
import queue
import re
import sys
import threading
from html import escape
from urllib.parse import quote

from aiosmtpd.smtp import SMTP
from chromium import Chromium

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "clients"))
from server import Cued  # noqa: E402

LOOKS = [
    (scheme, name, width, height)
    for scheme in ("light", "dark")
    for name, width, height in (("phone", 360, 720), ("desktop", 1280, 800))
]
NASTY = "<img src=x><b>bold</b>\"'&amp;"


class Mails:
    """A server for mail on a free port of loopback, in a thread that ends with the program."""

    def __init__(self):
        self.taken = queue.Queue()
        started = queue.Queue()
        threading.Thread(target=lambda: asyncio.run(self._serve(started)), daemon=True).start()
        self.port = started.get(timeout=30)

    async def _serve(self, started):
        server = await asyncio.get_running_loop().create_server(lambda: SMTP(self), "127.0.0.1", 0)
        started.put(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    async def handle_DATA(self, _server, _session, envelope):
        self.taken.put((envelope.rcpt_tos, email.message_from_bytes(envelope.content)))
        return "250 taken"


def check(condition, what):
    if not condition:
        raise AssertionError(what)


def link_of(mail):
    return re.search(r"^http://\S+", mail.get_payload(decode=True).decode(), re.MULTILINE)[0]


def login(cued, mails, browser, picture):
    device = cued.call("POST", "/v1/auth/device-code", {})
    code, shown = device["device_code"], device["user_code"]

    def poll():
        return cued.call("POST", "/v1/auth/device-code/poll", {"device_code": code})

    browser.open(device["verification_url"])
    check(shown in browser.text(), "the page shows the code")
    picture("1-address")
    browser.type("input[name=email]", "ann@example.com")
    browser.submit("button")
    check("ann@example.com" in browser.text(), "the page names the address")
    picture("2-sent")
    check(poll() == {"status": "email_sent"}, "the address was taken")

    readers, mail = mails.taken.get(timeout=30)
    check(readers == ["ann@example.com"], readers)
    browser.open(link_of(mail))
    check(shown in browser.text(".code"), "the confirmation shows the code")
    picture("3-confirm")
    check(poll() == {"status": "email_sent"}, "opening the link confirms nothing")
    browser.submit("button")
    check("signed in" in browser.title(), browser.title())
    picture("4-confirmed")

    answer = poll()
    check(answer["status"] == "approved" and answer["email"] == "ann@example.com", answer["status"])
    check(poll() == {"status": "claimed"}, "the key is handed out once")
    me = cued.call("GET", "/v1/auth/me", key=answer["api_key"])
    check(me["email"] == "ann@example.com", "the key works")

    browser.open(link_of(mail))
    check("already used" in browser.title(), browser.title())
    picture("5-used")


def hostile_text(cued, browser, picture):
    browser.open(f"{cued.url}/auth/device?code={quote(NASTY)}")
    check(NASTY in browser.text(), "HTML in a code is text")
    check(not browser.has("img") and not browser.has("b"), "and no element")
    picture("6-unknown")
    browser.open(f"{cued.url}/auth/device")
    check(browser.has("input[name=code]"), "without a code the page asks for it")
    picture("7-no-code")
    code = cued.call("POST", "/v1/auth/device-code", {"device_code": "W" * 128})["device_code"]
    browser.open(f"{cued.url}/auth/device?code={code}")
    picture("8-long")
    browser.type("input[name=email]", "a&b'c@" + "long" * 15 + ".example")
    browser.submit("button")
    check("a&b'c@longlong" in browser.text(), browser.text())
    picture("9-long-sent")
    # A form of another site changes nothing.
    code = cued.call("POST", "/v1/auth/device-code", {})["device_code"]
    form = f"<form method=post action={cued.url}/auth/device><input name=code value={code}>"
    browser.open("data:text/html," + quote(f"{form}<input name=email value='{escape(NASTY)}'><button>"))
    browser.submit("button")
    check("another site" in browser.text(), browser.text())
    # The page's own form sends nothing that is no address, unless its check is taken away.
    browser.open(f"{cued.url}/auth/device?code={code}")
    browser.set_attribute("input[name=email]", "type", "text")
    browser.type("input[name=email]", NASTY)
    browser.submit("button")
    check(not browser.has("img") and not browser.has("b"), "HTML in an address is no element")
    check(browser.value("input[name=email]") == NASTY, "it is the address that was typed")
    check(browser.has("[aria-invalid]"), "and marked as wrong")
    picture("A-refused")


def main():
    program, folder = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else ""
    mails = Mails()
    flags = ["--smtp-url", f"smtp://127.0.0.1:{mails.port}", "--mail-from", "cued <cued@example.com>"]
    with Cued(program, *flags) as cued, Chromium() as browser:
        browser.open("data:text/html,<title>off</title><script>document.title='on'</script>")
        check(browser.title() == "off", "scripts are switched off")
        browser.complaints()

        def picture(name):
            for scheme, screen, width, height in LOOKS:
                browser.look(scheme, width, height)
                check(not browser.overflows(), f"{name} fits a {screen}")
                if folder:
                    browser.screenshot(os.path.join(folder, f"{name}-{scheme}-{screen}.png"))
            # That a page has a status of its own is no complaint about it.
            complaints = [text for text in browser.complaints() if "responded with a status of" not in text]
            check(complaints == [], complaints)

        if folder:
            os.makedirs(folder, exist_ok=True)
        login(cued, mails, browser, picture)
        hostile_text(cued, browser, picture)
    print("device login: well")


main()
