"""A server under test, and a receiver that keeps what is delivered."""

import itertools
import json
import os
import queue
import signal
import subprocess
import tempfile
import threading
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

LOGIN = "/v1/auth/verify?"
LISTENING = "cued listening on "
# What a person who tries it alone starts with.
ALONE = ("--dev", "--limits", "off")
PATIENCE = 60


def until(what, ask):
    """Asks again until the answer is true, and returns it."""
    deadline = time.monotonic() + PATIENCE
    while True:
        answer = ask()
        if answer:
            return answer
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {PATIENCE} s in vain: {what}")
        time.sleep(0.02)


class Cued:
    """The built program on a database of its own, in a new folder of `folder`; ends with the `with` block."""

    def __init__(self, program, *flags, base=ALONE, folder=None, listen="127.0.0.1:0"):
        self.program, self._parent, self._listen = program, folder, listen
        self._flags = [*base, *flags]
        self._numbers = itertools.count(1)
        self._mails = queue.Queue()

    def __enter__(self):
        self._dir = tempfile.TemporaryDirectory(prefix="cued-clients-", dir=self._parent)
        self.folder, self.log = self._dir.name, os.path.join(self._dir.name, "log")
        self._log = open(self.log, "w+")
        self.db = os.path.join(self.folder, "cued.db")
        self.start(self._listen)
        return self

    def __exit__(self, *_):
        try:
            self.stop()
        finally:
            self._log.close()
            self._dir.cleanup()

    def start(self, listen):
        command = [self.program, "serve", "--listen", listen, "--db", self.db, *self._flags]
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=self._log, text=True, env=clean_environment()
        )
        line = self._process.stdout.readline()
        if not line.startswith(LISTENING):
            self._log.seek(0)
            raise RuntimeError(f"cued did not start: {line}{self._log.read()}")
        self.url = line[len(LISTENING) :].strip()
        # Read to the end, so that the server never waits for its reader.
        threading.Thread(target=self._read, args=(self._process.stdout,), daemon=True).start()

    def stop(self):
        # After `kill`.
        if self._process.returncode == -signal.SIGKILL:
            return
        self._process.terminate()
        code = self._process.wait(timeout=PATIENCE)
        if code != 0:
            raise RuntimeError(f"cued ended with exit code {code}")

    def kill(self):
        """Ends it as `kill -9` does: the program writes nothing any more."""
        self._process.kill()
        self._process.wait()

    @property
    def pid(self):
        return self._process.pid

    def _read(self, stdout):
        for line in stdout:
            if line.startswith("mail to "):
                self._mails.put(line.removeprefix("mail to ").strip().split(": ", 1))

    def mail(self, address):
        """The link of the next mail about a login, which must be to this address; others report failures."""
        while True:
            reader, about = self._mails.get(timeout=PATIENCE)
            if LOGIN in about:
                assert reader == address, f"a mail to {reader}"
                return about

    def administer(self, *arguments):
        """A command of the program on the database file: what it prints."""
        command = [self.program, arguments[0], "--db", self.db, *arguments[1:]]
        done = subprocess.run(command, env=clean_environment(), capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def account(self):
        """The key and the address of a new account."""
        email = f"user{next(self._numbers)}@example.com"
        return self.call("POST", "/v1/auth/register", {"email": email})["api_key"], email

    def call(self, method, path, body=None, key=None):
        """One request by hand, where no client has a method for it. `body` may be text, which is sent as it is."""
        data = body if isinstance(body, (str, type(None))) else json.dumps(body)
        request = urllib.request.Request(self.url + path, None if data is None else data.encode(), method=method)
        if key:
            request.add_header("Authorization", f"Bearer {key}")
        with urllib.request.urlopen(request, timeout=30) as response:
            return json.loads(response.read() or b"null")

    def fire(self, key, cue_id, **fields):
        """Runs a cue: the id of the execution."""
        return self.call("POST", f"/v1/cues/{cue_id}/fire", fields, key)["execution_id"]

    def execution(self, key, execution_id):
        return self.call("GET", f"/v1/executions/{execution_id}", key=key)

    def advance(self, span):
        """Moves the test clock; all that fell due has then been done."""
        return self.call("POST", "/v1/test/clock", {"advance": span})

    def settle(self):
        return self.advance("PT0S")


def clean_environment():
    return {name: value for name, value in os.environ.items() if not name.startswith("CUED_")}


class Delivery:
    def __init__(self, headers, body):
        self.headers = {name.lower(): value for name, value in headers.items()}
        self.body = body


class Recorder:
    """Answers 200 or as configured, and keeps the requests in order of arrival."""

    def __init__(self):
        deliveries = self._deliveries = queue.Queue()
        recorder = self
        self.status = 200

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                deliveries.put(Delivery(self.headers, body))
                self.send_response(recorder.status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            do_PUT = do_PATCH = do_POST

            def log_message(self, *_):
                pass

        ThreadingHTTPServer.request_queue_size = 128  # Python's 5 delays a burst
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}/hook"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def next(self, patience=PATIENCE):
        return self._deliveries.get(timeout=patience)
