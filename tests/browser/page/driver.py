"""The page as a person meets it: looks for what is shown, clicks, types, and waits for what must come."""

import json
import os
import sys
import time
import urllib.parse
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
from chromium import ELEMENT, Chromium  # noqa: E402

PATIENCE = 20
# A name that is no loopback address: browsers do not take it for a secure context.
PLAIN_HOST = "pi.lan"
FLAGS = ["--hide-scrollbars", f"--host-resolver-rules=MAP {PLAIN_HOST} 127.0.0.1", "--js-flags=--expose-gc"]
# Over plain HTTP Chromium ignores this header of the page, and says so.
HARMLESS = "The Cross-Origin-Opener-Policy header has been ignored"
KEYS = {"Tab": "\ue004", "Enter": "\ue007", "Escape": "\ue00c", "Space": " ", "Shift": "\ue008", "Control": "\ue009",
        "Backspace": "\ue003", "Down": "\ue015", "Up": "\ue013"}
# Marks around names that may be written from right to left.
ISOLATES = dict.fromkeys(map(ord, "\u2066\u2067\u2068\u2069"))
# A person sees an element that is drawn; of equals the one that has exactly this text.
FIND = """
const [css, text] = arguments;
const plain = (value) => (value || "").replace(/\\s+/g, " ").trim();
const shown = [...document.querySelectorAll(css)].filter((one) => one.checkVisibility({visibilityProperty: true}));
if (text === null) return shown[0] ?? null;
const named = (one) => [plain(one.innerText), plain(one.getAttribute("aria-label")), plain(one.value)];
return shown.find((one) => named(one).includes(text)) ?? shown.find((one) => named(one)[0].includes(text)) ?? null;
"""
LOADED = """
const screen = document.querySelector("#screen [data-screen]");
return screen && (!arguments[0] || screen.dataset.screen === arguments[0]) && !screen.querySelector(".bones") && screen.children.length > 1;
"""

def check(condition, what):
    if not condition:
        raise AssertionError(what)


class Page(Chromium):
    def __init__(self):
        super().__init__(scripts=True, flags=FLAGS, logs=("browser", "performance"))
        self.url = ""
        self._origins = set()
        self._expected = []

    # Places.

    def at(self, url):
        """The page of this server, without what was kept of an earlier one."""
        self.url = url.rstrip("/") + "/"
        self._origins.add("/".join(self.url.split("/")[:3]) + "/")
        return self

    def show(self, hash="#/", screen=None):
        """Reloads the page at a screen."""
        self.open("about:blank")
        self.open(self.url + hash)
        self.loaded(screen)

    def go(self, hash, screen=None):
        """Goes to a screen as a link does."""
        self.run("location.hash = arguments[0]", hash)
        self.wait(f"the address is {hash}", lambda: self.hash() == hash)
        self.loaded(screen)

    def loaded(self, screen=None):
        self.wait(f"screen {screen or ''}", lambda: self.run(LOADED, screen))

    def hash(self):
        return self.run("return location.hash")

    def sign_in(self, key):
        """Signs in as its own script would, then opens the page."""
        page = urllib.parse.urlsplit(self.url)
        headers = {"Content-Type": "application/json", "Sec-Fetch-Site": "same-origin", "Host": page.netloc}
        local = self.url.replace(PLAIN_HOST, "127.0.0.1")
        asked = urllib.request.Request(local + "v1/auth/session", json.dumps({"api_key": key}).encode(), headers)
        with urllib.request.urlopen(asked, timeout=30) as answer:
            name, _, value = answer.headers["Set-Cookie"].split(";")[0].partition("=")
            user = json.load(answer)["user"]["id"]
        self.devtools("Network.setCookie", name=name, value=value, url=self.url, httpOnly=True, sameSite="Strict")
        # An address of the same origin that has no script, and no icon either.
        self.expect("/favicon.ico")
        self.open(self.url + "health")
        self.run("localStorage.setItem('cued account ' + arguments[0], arguments[1])", page.path, user)
        self.show()

    def forget(self):
        self.devtools("Network.clearBrowserCookies")

    # The shown text.

    def wait(self, what, ask):
        """Asks again until the answer is true, and returns it."""
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                answer, last = ask(), ""
            except RuntimeError as error:
                if "stale element" not in str(error) and "no such element" not in str(error):
                    raise
                answer, last = None, f" ({error})"
            if answer:
                return answer
            if time.monotonic() > deadline:
                raise AssertionError(f"waited {PATIENCE} s in vain for {what}{last}; shown: {self.words()[:1500]}")
            time.sleep(0.01)

    def words(self, css="body"):
        """The text that is shown, with single spaces."""
        found = (
            "return [...document.querySelectorAll(arguments[0])].filter((one) => one.checkVisibility())"
            ".map((one) => one.innerText).join(' ')"
        )
        return " ".join(self.run(found, css).translate(ISOLATES).split())

    def see(self, text, css="body"):
        self.wait(f"{text!r} in {css}", lambda: text in self.words(css))

    def gone(self, text, css="body"):
        self.wait(f"{text!r} to go from {css}", lambda: text not in self.words(css))

    def count(self, css):
        return self.run("return document.querySelectorAll(arguments[0]).length", css)

    def find(self, css, text=None):
        found = self.wait(f"{css} {text or ''}", lambda: self.run(FIND, css, text))
        return found[ELEMENT]

    def is_shown(self, css, text=None):
        return self.run(FIND, css, text) is not None

    # Acts.

    def click(self, css, text=None):
        """Clicks once the element is shown and nothing lies above it."""

        def attempt():
            found = self.run(FIND, css, text)
            if not found:
                return False
            try:
                self.run("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", found)
                self._ask("POST", f"/element/{found[ELEMENT]}/click", {})
            except RuntimeError as error:
                if "intercepted" in str(error) or "not interactable" in str(error):
                    return False
                raise
            return True

        self.wait(f"a click on {css} {text or ''}", attempt)

    def fill(self, css, text):
        """Types into a field, in place of what it has."""

        def attempt():
            field = {ELEMENT: self.find(css)}
            self.run("arguments[0].focus(); arguments[0].select?.()", field)
            self._ask("POST", f"/element/{field[ELEMENT]}/value", {"text": text or KEYS["Backspace"]})
            # A screen that is drawn at the same time moves the focus to its heading.
            return self.run("return arguments[0].value", field) == text

        self.wait(f"{text!r} in {css}", attempt)

    def choose(self, css, value):
        self.find(css)
        self.run(
            "const field = document.querySelector(arguments[0]); field.value = arguments[1];"
            "for (const type of ['input', 'change']) field.dispatchEvent(new Event(type, {bubbles: true}))",
            css,
            value,
        )

    def press(self, *keys):
        """Keys for whatever has the focus: names, single letters, or `Shift+Tab`."""
        steps = []
        for key in keys:
            parts = [KEYS.get(part, part) for part in (key.split("+") if len(key) > 1 else [key])]
            steps += [{"type": "keyDown", "value": part} for part in parts]
            steps += [{"type": "keyUp", "value": part} for part in reversed(parts)]
        self._ask("POST", "/actions", {"actions": [{"type": "key", "id": "keyboard", "actions": steps}]})

    def keys(self, text):
        self.press(*text)

    def focused(self):
        """The name that a screen reader announces for the focus."""
        return self.run(
            "const one = document.activeElement; if (!one || one === document.body) return '';"
            "const label = one.labels?.[0]?.innerText;"
            "return (one.getAttribute('aria-label') || label || one.innerText || one.id || one.tagName).replace(/\\s+/g, ' ').trim()"
        )

    def tab_to(self, name, most=80):
        """Presses Tab until this has the focus, as a person without a mouse does."""
        passed = []
        for _ in range(most):
            self.press("Tab")
            passed.append(self.focused())
            if passed[-1] == name or (name.endswith("…") and passed[-1].startswith(name[:-1])):
                return
        raise AssertionError(f"Tab does not reach {name!r}: {passed}")

    # Tabs.

    def tabs(self):
        return self._ask("GET", "/window/handles")

    def tab(self):
        return self._ask("GET", "/window")

    def new_tab(self):
        handle = self._ask("POST", "/window/new", {"type": "tab"})["handle"]
        self.to_tab(handle)
        return handle

    def to_tab(self, handle):
        self._ask("POST", "/window", {"handle": handle})

    def close_tab(self):
        self._ask("DELETE", "/window")

    # Errors and foreign requests.

    def expect(self, *texts):
        """The test causes complaints with these texts."""
        self._expected += texts

    def reckoning(self):
        """Raises if the browser complained, or the page asked another server, since the last one."""
        complaints = [
            entry["message"]
            for entry in self.log("browser")
            if entry["level"] in ("SEVERE", "WARNING")
            if HARMLESS not in entry["message"] and not any(known in entry["message"] for known in self._expected)
        ]
        asked = [json.loads(entry["message"])["message"] for entry in self.log("performance")]
        urls = {one["params"]["request"]["url"] for one in asked if one["method"] == "Network.requestWillBeSent"}
        away = [url for url in urls if not url.startswith((*self._origins, "about:", "blob:", "data:"))]
        self._expected = []
        check(not complaints, f"complaints of the browser: {complaints[:5]}")
        check(not away, f"requests that left the origin: {away[:5]}")

    def fresh(self):
        """As a browser that was never here."""
        for handle in self.tabs()[1:]:
            self.to_tab(handle)
            self.close_tab()
        self.to_tab(self.tabs()[0])
        self.open("about:blank")
        self.forget()
        self.look("light", 1280, 800)
        self.complaints()
        self.log("performance")
        self._expected = []
        self._origins = set()
