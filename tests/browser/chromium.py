"""Chromium, driven over WebDriver with the standard library alone."""

import base64
import json
import shutil
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


class Chromium:
    """A browser with a profile of its own; ends with the `with` block. Scripts of pages run only where they are asked for."""

    def __init__(self, scripts=False, flags=(), logs=()):
        self._options = {"args": [*FLAGS, *flags]}
        if not scripts:
            self._options["prefs"] = {"profile.managed_default_content_settings.javascript": 2}
        self._logs = {name: "ALL" for name in logs}

    def __enter__(self):
        self._profile = tempfile.mkdtemp(prefix="cued-browser-")
        self._driver = subprocess.Popen(
            ["chromedriver", "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        for line in self._driver.stdout:
            if "started successfully on port" in line:
                self._base = "http://127.0.0.1:" + line.rsplit(" ", 1)[1].strip().rstrip(".")
                break
        else:
            raise RuntimeError("chromedriver did not start")
        self._options["args"].append(f"--user-data-dir={self._profile}")
        wanted = {"browserName": "chrome", "goog:chromeOptions": self._options}
        if self._logs:
            wanted["goog:loggingPrefs"] = self._logs
        capabilities = {"alwaysMatch": wanted}
        self._session = ""
        self._session = "/session/" + self._ask("POST", "/session", {"capabilities": capabilities})["sessionId"]
        return self

    def __exit__(self, *_):
        try:
            self._ask("DELETE", "")
        finally:
            self._driver.terminate()
            self._driver.wait(timeout=30)
            shutil.rmtree(self._profile, ignore_errors=True)

    def open(self, url):
        self._ask("POST", "/url", {"url": url})

    def title(self):
        return self._ask("GET", "/title")

    def source(self):
        return self._ask("GET", "/source")

    def text(self, css="body"):
        return self._ask("GET", f"/element/{self._find(css)}/text")

    def value(self, css):
        return self._ask("GET", f"/element/{self._find(css)}/property/value")

    def has(self, css):
        return bool(self._ask("POST", "/elements", {"using": "css selector", "value": css}))

    def type(self, css, text):
        self._ask("POST", f"/element/{self._find(css)}/value", {"text": text})

    def run(self, script, *arguments):
        """What a script of the test returns; it is subject to no policy of the page."""
        return self._ask("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def run_async(self, script, *arguments):
        """As `run`; the script calls its last argument with the result."""
        return self._ask("POST", "/execute/async", {"script": script, "args": list(arguments)})

    def patience(self, seconds):
        """How long a script may take to call its end; 30 seconds unless it is set."""
        self._ask("POST", "/timeouts", {"script": seconds * 1000})

    def devtools(self, command, **parameters):
        return self._ask("POST", "/goog/cdp/execute", {"cmd": command, "params": parameters})

    def log(self, kind):
        """The entries of a log since it was last asked for."""
        return self._ask("POST", "/se/log", {"type": kind})

    def set_attribute(self, css, name, value):
        document = self.devtools("DOM.getDocument")["root"]["nodeId"]
        node = self.devtools("DOM.querySelector", nodeId=document, selector=css)["nodeId"]
        self.devtools("DOM.setAttributeValue", nodeId=node, name=name, value=value)

    def submit(self, css):
        """Clicks what sends a form, and waits until the answer has taken the page's place."""
        page = self._find("html")
        self._ask("POST", f"/element/{self._find(css)}/click", {})
        end = time.monotonic() + 30
        while self._is_shown(page):
            if time.monotonic() > end:
                raise RuntimeError(f"{css}: no answer took the page's place")
            time.sleep(0.01)

    def _is_shown(self, element):
        try:
            self._ask("GET", f"/element/{element}/name")
        except RuntimeError as gone:
            words = ("stale element", "no such element", "does not belong to the document")
            if any(word in str(gone) for word in words):
                return False
            raise
        return True

    def look(self, scheme, width, height):
        """Shows pages in a colour scheme and on a screen of this size."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.devtools("Emulation.setEmulatedMedia", features=features)
        mobile = width < 600
        scale = 2 if mobile else 1
        self.devtools(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=mobile
        )

    def screenshot(self, path):
        with open(path, "wb") as file:
            file.write(base64.b64decode(self._ask("GET", "/screenshot")))

    def overflows(self):
        """Whether the page is wider than the screen."""
        sizes = self.devtools("Page.getLayoutMetrics")
        return sizes["cssContentSize"]["width"] > sizes["cssLayoutViewport"]["clientWidth"]

    def complaints(self):
        """What the browser noted since it was last asked: what its policy refused, above all."""
        return [entry["message"] for entry in self.log("browser")]

    def _find(self, css):
        return self._ask("POST", "/element", {"using": "css selector", "value": css})[ELEMENT]

    def _ask(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._base + self._session + path, data, method=method)
        request.add_header("Content-Type", "application/json")
        try:
            with urllib.request.urlopen(request, timeout=60) as response:
                return json.load(response)["value"]
        except urllib.error.HTTPError as error:
            raise RuntimeError(f"{method} {path}: {error.read().decode()[:500]}") from None
