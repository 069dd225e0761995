"""A server under test, and a receiver that keeps what is delivered."""

import json
import os
import queue
import subprocess
import tempfile
import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

LISTENING = "cued listening on "


class Cued:
    """The built program on a database of its own; ends with the `with` block."""

    def __init__(self, program, *flags):
        self._program = program
        self._flags = flags

    def __enter__(self):
        self._dir = tempfile.TemporaryDirectory(prefix="cued-clients-")
        self._log = open(os.path.join(self._dir.name, "log"), "w+")
        environment = {name: value for name, value in os.environ.items() if not name.startswith("CUED_")}
        command = [self._program, "serve", "--dev", "--limits", "off", "--listen", "127.0.0.1:0"]
        command += ["--db", os.path.join(self._dir.name, "cued.db"), *self._flags]
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=self._log, text=True, env=environment
        )
        line = self._process.stdout.readline()
        if not line.startswith(LISTENING):
            self._log.seek(0)
            raise RuntimeError(f"cued did not start: {line}{self._log.read()}")
        self.url = line[len(LISTENING) :].strip()
        return self

    def __exit__(self, *_):
        self._process.terminate()
        code = self._process.wait(timeout=60)
        self._log.close()
        self._dir.cleanup()
        if code != 0:
            raise RuntimeError(f"cued ended with exit code {code}")

    def call(self, method, path, body=None, key=None):
        """One request by hand, where no client has a method for it. `body` may be text, which is sent as it is."""
        data = body if isinstance(body, (str, type(None))) else json.dumps(body)
        request = urllib.request.Request(self.url + path, None if data is None else data.encode(), method=method)
        if key:
            request.add_header("Authorization", f"Bearer {key}")
        with urllib.request.urlopen(request, timeout=30) as response:
            return json.load(response)


class Delivery:
    def __init__(self, headers, body):
        self.headers = {name.lower(): value for name, value in headers.items()}
        self.body = body


class Recorder:
    """Answers 200 and keeps each request, in the order in which they come."""

    def __init__(self):
        deliveries = self._deliveries = queue.Queue()

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                deliveries.put(Delivery(self.headers, body))
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}/hook"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def next(self):
        return self._deliveries.get(timeout=60)
