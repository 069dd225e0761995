"""The start of each test: a server with its own file and a clock that stands, a receiver, one browser for all."""

import contextlib
import json
import os
import queue
import re
import sys
import threading
import time
import traceback
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "clients"))
from driver import check  # noqa: E402
from server import Cued, until  # noqa: E402

START = "2026-03-02T08:00:00Z"
BASE = ("--registration", "open", "--allow-callbacks-to", "loopback")
FROZEN = ("--test-clock", START)
TESTS = []


def test(function):
    """A test of the run: its name is what must hold."""
    TESTS.append(function)
    return function


class Server(Cued):
    """A server; `key` is that of an account made for the test."""

    def __init__(self, program, *flags, base=(*BASE, *FROZEN, "--limits", "off")):
        super().__init__(program, *flags, base=base)
        self.key = None
        # A file that is there already; else a new one.
        self.place = None

    def start(self, listen):
        self.db = self.place or self.db
        super().start(listen)

    def new_account(self):
        self.key, email = self.account()
        return email

    def get(self, path, **more):
        return self.call("GET", path, key=self.key, **more)

    def post(self, path, body=None):
        return self.call("POST", path, {} if body is None else body, key=self.key)

    def patch(self, path, body):
        return self.call("PATCH", path, body, key=self.key)

    def refused(self, method, path, body=None, key=None):
        """The status and the error of a request that must fail."""
        try:
            answer = self.call(method, path, body, key)
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())["error"]
        raise AssertionError(f"{method} {path}: answered {answer}")

    def cue(self, name, url="http://127.0.0.1:9/hook", **more):
        body = {"name": name, "schedule": {"type": "recurring", "cron": "0 4 * * *", "timezone": "UTC"}, **more}
        if body.get("transport") != "worker":
            body.setdefault("callback", {"url": url})
        return self.post("/v1/cues", body)

    def login_link(self):
        """The link of the last login, which a server without mail writes into its log."""

        def last():
            with open(self._log.name) as log:
                return re.findall(r"http://\S+/v1/auth/verify\S+", log.read())

        return until("a link in the log", last)[-1]

    @property
    def port(self):
        return self.url.rsplit(":", 1)[1]

    @property
    def pid(self):
        return self._process.pid

    def kill(self):
        """As a fault ends it."""
        self._process.kill()
        self._process.wait()

    def begin_again(self):
        self.start(f"127.0.0.1:{self.port}")


class Receiver:
    """Answers each path with its configured (status, text), and keeps what it received."""

    def __init__(self):
        self.answers = {}
        self.taken = queue.Queue()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                receiver.taken.put((self.path, dict(self.headers), body.decode()))
                # Topics of ntfy are posted to the root, and it confirms each message.
                usual = '{"id": "x", "event": "message"}' if self.path == "/" else ""
                answer = receiver.answers.get(self.path, (200, usual))
                status, text = answer(self) if callable(answer) else answer
                self.send_response(status)
                kind = "application/json" if text.startswith(("{", "[")) else "text/plain"
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(text.encode())))
                self.end_headers()
                self.wfile.write(text.encode())

            do_PUT = do_PATCH = do_GET = do_POST

            def log_message(self, *_):
                pass

        ThreadingHTTPServer.request_queue_size = 128  # Python's 5 delays a burst
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def next(self):
        return self.taken.get(timeout=60)


class Shared(contextlib.ExitStack):
    """The story, made when the first test asks for it; ends with the run."""

    def __init__(self, program, story):
        super().__init__()
        self._program, self._story = program, story
        self.made = None

    def make(self, world):
        server = self.enter_context(Server(self._program))
        server.key = server.call("POST", "/v1/auth/register", {"email": "ann@example.com"})["api_key"]
        return self._story(server, world.receiver)


class World(contextlib.ExitStack):
    """The tools of a test; servers that it starts end with it."""

    def __init__(self, program, page, folder, shared):
        super().__init__()
        self.program, self.page, self.folder = program, page, folder
        self.receiver = Receiver()
        self._shared = shared

    def serve(self, *flags, **more):
        return self.enter_context(Server(self.program, *flags, **more))

    def signed_in(self, *flags, **more):
        """A server with an account, and the page signed in there."""
        server = self.serve(*flags, **more)
        server.new_account()
        self.page.at(server.url).sign_in(server.key)
        return server

    def story(self):
        """The page signed in at the server of the story, which all tests share: they change nothing that another reads."""
        if self._shared.made is None:
            self._shared.made = self._shared.make(self)
        story = self._shared.made
        story.rest()
        self.page.at(story.server.url).sign_in(story.server.key)
        return story

    def take(self, path):
        """The next delivery to this path."""
        return until(f"a delivery to {path}", lambda: next((one for one in [self.receiver.next()] if one[0] == path), None))

    def report(self, line):
        print(f"    {line}", flush=True)


def run(program, page, folder, wanted, story):
    """Runs the tests whose name or module has one of the words; returns those that failed twice, the second time alone."""
    chosen = [one for one in TESTS if not wanted or any(word in name_of(one) for word in wanted)]
    with Shared(program, story) as shared:
        failed = [one for one in chosen if not passes(one, World(program, page, folder, shared))]
    twice = []
    for one in failed:
        with Shared(program, story) as shared:
            if passes(one, World(program, page, folder, shared)):
                print(f"FLAKY {name_of(one)}", flush=True)
            else:
                twice.append(name_of(one))
    return twice


def name_of(one):
    return f"{one.__module__}: {one.__name__.replace('_', ' ')}"


def passes(one, world):
    name, began = name_of(one), time.monotonic()
    try:
        world.page.fresh()
        with world:
            one(world)
            world.page.reckoning()
    except Exception:
        print(f"FAILED {name}", flush=True)
        traceback.print_exc()
        with contextlib.suppress(RuntimeError):
            world.page.screenshot(os.path.join(world.folder, f"failed-{one.__name__}.png"))
        return False
    print(f"{time.monotonic() - began:6.1f} s  {name}", flush=True)
    return True


__all__ = ["BASE", "FROZEN", "START", "Server", "check", "run", "test", "until"]
