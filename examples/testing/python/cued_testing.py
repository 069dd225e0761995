"""A pytest plugin for tests of what cued calls: a server whose clock moves when the test says so.

Copy this file beside your tests, and name it in conftest.py: `pytest_plugins = ["cued_testing"]`. It needs
Python 3.9 and pytest. The server is the program that CUED_BIN names, or `cued` on the PATH.
"""

import hashlib
import hmac
import http.client
import itertools
import json
import os
import re
import shutil
import subprocess
import tempfile
import threading
from dataclasses import dataclass, field
from datetime import datetime, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Callable, Mapping, Optional, Union
from urllib.parse import urlencode, urlsplit

import pytest

START = "2030-01-01T00:00:00Z"
# A shell that ends the server when its own input ends, so also when the process of the tests is killed.
GUARD = '"$@" </dev/null & exec >&-; read -r _; kill $! 2>/dev/null; wait'
SHOWN = 20
CUE_ID = "cue_[0-9a-z]{12}"


def pytest_configure(config):
    config.addinivalue_line(
        "markers", "cued(at): gives the test a server of its own, whose clock begins at this instant"
    )


@pytest.fixture(scope="session")
def cued_server():
    """The process that tests share; with pytest-xdist, one for each worker."""
    with Server(START) as server:
        yield server


@pytest.fixture
def cued(request):
    """An account on the shared server, or on a server of its own with `@pytest.mark.cued(at=INSTANT)`."""
    marker = request.node.get_closest_marker("cued")
    if marker is None:
        with Cued(request.getfixturevalue("cued_server")) as account:
            yield account
    else:
        with Server(*marker.args, **marker.kwargs) as server, Cued(server) as account:
            yield account


@pytest.fixture
def receiver(cued):
    """Stands for your application: an HTTP server that records deliveries and answers as the test says."""
    return cued.receiver()


class CuedError(Exception):
    """The server has refused a request."""

    def __init__(self, request, status, code, message):
        super().__init__(f"{request}: {status} {code}: {message}")
        self.status, self.code, self.message = status, code, message


class Server:
    """A process `cued serve` with an empty temporary database."""

    def __init__(self, at=START):
        self.at = at
        self.accounts = itertools.count(1)

    def __enter__(self):
        flags = ["--ephemeral", "--limits", "off", "--listen", "127.0.0.1:0", "--test-clock", self.at]
        # Settings of the developer's own server are not for this one.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("CUED_")}
        self._log = tempfile.TemporaryFile("w+")
        self._process = subprocess.Popen(
            ["sh", "-c", GUARD, "sh", binary(), "serve", *flags],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env=environment,
            start_new_session=True,  # Ctrl-C is for the tests, which then end the server
            text=True,
        )
        # The first line is "cued listening on http://127.0.0.1:PORT".
        self.url = self._process.stdout.readline().rpartition(" ")[2].strip()
        # Mails follow, and a full pipe would stop the server.
        self._process.stdout.close()
        if not self.url:
            self.__exit__()
            pytest.fail(f"{binary()} serve did not start: {self.log or 'it said nothing'}", pytrace=False)
        self._register_operator()
        return self

    def __exit__(self, *_):
        self._process.stdin.close()
        self._process.wait()
        self._log.seek(0)
        self.log = self._log.read().strip()
        self._log.close()

    def _register_operator(self):
        self.key = self.call("POST", "/v1/auth/register", {"email": "operator@example.com"})["api_key"]

    def reset(self):
        self.call("POST", "/v1/test/reset")
        self._register_operator()

    def add_account(self):
        return self.call(
            "POST", "/v1/admin/users", {"email": f"test-{next(self.accounts)}@example.com"}, self.key
        )

    def call(self, method, path, body=None, key=None):
        connection = http.client.HTTPConnection(urlsplit(self.url).netloc, timeout=60)
        headers = {"Content-Type": "application/json"}
        if key:
            headers["Authorization"] = f"Bearer {key}"
        try:
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            response = connection.getresponse()
            answer = json.loads(response.read() or "null")
        finally:
            connection.close()
        if response.status >= 400:
            error = answer["error"]
            raise CuedError(f"{method} {path}", response.status, error["code"], error["message"])
        return answer


def binary():
    found = os.environ.get("CUED_BIN") or shutil.which("cued")
    if not found:
        pytest.fail("there is no cued on the PATH: install it, or set CUED_BIN to its path", pytrace=False)
    if not os.access(found, os.X_OK):
        pytest.fail(f"CUED_BIN is {found}, which is no program", pytrace=False)
    return found


class Cued:
    """An account, the API with its key, and the clock of the server."""

    def __init__(self, server):
        self._server = server
        self._receivers = []

    def __enter__(self):
        self._sign_up()
        return self

    def __exit__(self, *_):
        # What the account has left would be due in later tests.
        self._server.call("PATCH", f"/v1/admin/users/{self._id}", {"is_disabled": True}, self._server.key)
        for receiver in self._receivers:
            receiver.close()

    def _sign_up(self):
        account = self._server.add_account()
        self._id, self.key, self.email = account["id"], account["api_key"], account["email"]
        self.secret = self.get("/v1/auth/webhook-secret")["webhook_secret"]
        self.alert_secret = self.get("/v1/auth/alert-webhook-secret")["alert_webhook_secret"]

    @property
    def url(self):
        return self._server.url

    def get(self, path):
        return self._server.call("GET", path, key=self.key)

    def post(self, path, body=None):
        return self._server.call("POST", path, body, self.key)

    def patch(self, path, body):
        return self._server.call("PATCH", path, body, self.key)

    def delete(self, path):
        return self._server.call("DELETE", path, key=self.key)

    def create(self, **fields):
        """Creates a cue; the fields are those of `POST /v1/cues`."""
        return self.post("/v1/cues", fields)

    def fire(self, cue, **fields):
        """Runs a cue now. A cue is its name, its id or what `create` has returned."""
        return self.post(f"/v1/cues/{self._cue_id(cue)}/fire", fields)

    def runs(self, cue=None, **filters):
        """The runs of a cue, or of all, oldest first, once the deliveries under way have ended."""
        self.advance("PT0S")
        if cue is not None:
            filters["cue_id"] = self._cue_id(cue)
        runs, has_more = [], True
        while has_more:
            page = self.get("/v1/executions?" + urlencode({**filters, "limit": 100, "offset": len(runs)}))
            runs += page["executions"]
            has_more = page["has_more"]
        return runs[::-1]

    @property
    def now(self):
        """The instant of the server. It stands still until the clock is moved."""
        return instant(self.get("/v1/test/clock")["now"])

    def advance(self, span):
        """Moves the clock by an ISO 8601 duration, and returns once all that became due is done."""
        return self.post("/v1/test/clock", {"advance": span})

    def advance_to(self, moment):
        """Moves the clock to an instant."""
        to = moment if isinstance(moment, str) else moment.isoformat()
        try:
            return self.post("/v1/test/clock", {"to": to})
        except CuedError as error:
            if "forward" in error.message:
                hint = "@pytest.mark.cued(at=INSTANT) gives the test a server of its own"
                error.args = (f"{error}; it is {text(self.now)}. {hint}",)
            raise

    def until_next(self):
        """Moves the clock to the next instant at which something is due: `next` in the result, None without one."""
        return self.post("/v1/test/clock", {"until": "next"})

    def reset(self):
        """Empties the server, for all, and gives this object a new account. The clock stays where it is."""
        self._server.reset()
        self._sign_up()

    def receiver(self):
        """One more receiver; it ends with the test."""
        self._receivers.append(Receiver(self))
        return self._receivers[-1]

    def _cue_id(self, cue):
        if not isinstance(cue, str):
            return cue["id"]
        if re.fullmatch(CUE_ID, cue):
            return cue
        found = self.get("/v1/cues?" + urlencode({"q": cue[:100], "limit": 100}))["cues"]
        ids = [known["id"] for known in found if cue == known["name"]]
        if len(ids) != 1:
            raise LookupError(f"the account has {len(ids) or 'no'} cues with the name {cue!r}")
        return ids[0]


@dataclass
class Answer:
    """What a receiver answers, after `delay` seconds; with `hang_up` it closes the connection instead."""

    status: int = 200
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
    delay: float = 0
    hang_up: bool = False


HANG_UP = Answer(hang_up=True)


@dataclass
class Delivery:
    """A request that a receiver has got."""

    at: Optional[datetime]  # the instant of the server
    method: str
    path: str
    headers: Mapping[str, str]  # any case
    body: Any  # the payload; None without one, text if it is no JSON
    cue_id: Optional[str]
    execution_id: Optional[str]
    attempt: int
    is_signed: bool  # with a secret of the account; what is not gets a 401, and no expectation counts it
    answer: Optional[Answer] = None

    def describe(self, names):
        answered = "hung up" if self.answer.hang_up else self.answer.status
        of = f" attempt {self.attempt} of {names[self.execution_id]!r}" if self.execution_id in names else ""
        unsigned = "" if self.is_signed else ", not signed"
        return f"{text(self.at)} {self.method} {self.path}{of} → {answered}{unsigned} {json.dumps(self.body)}"


Scripted = Union[int, Answer, Callable[[Delivery], Any]]


class _Listener(ThreadingHTTPServer):
    daemon_threads = True
    # Five by default, and the sixth delivery at once would be a second late.
    request_queue_size = 128


class Receiver:
    """An HTTP server on 127.0.0.1 that records deliveries. It answers 200 unless the test says otherwise."""

    def __init__(self, cued):
        self.deliveries = []
        self._cued, self._script, self._otherwise = cued, [], 200
        self._changed, self._closed = threading.Condition(), threading.Event()
        self._http = _Listener(("127.0.0.1", 0), type("Handler", (_Handler,), {"receiver": self}))
        self.url = f"http://127.0.0.1:{self._http.server_port}"
        threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True).start()

    def close(self):
        self._closed.set()
        self._http.shutdown()
        self._http.server_close()

    def answer(self, *script: Scripted):
        """Answers the next deliveries, in this order: a status, an `Answer`, or a function of the delivery."""
        with self._changed:
            self._script.extend(script)

    def always(self, answer: Scripted):
        """Answers all deliveries that no script is left for."""
        self._otherwise = answer

    def wait_for_delivery(self, count=1, *, cue=None, path=None, timeout=5.0):
        """Waits until so many signed deliveries of the cue and at the path have come; returns the last."""
        __tracebackhide__ = True
        ids = cue and self._cued._cue_id(cue)
        with self._changed:
            self._changed.wait_for(lambda: len(self._matching(ids, path)) >= count, timeout)
            found = self._matching(ids, path)
        if len(found) < count:
            self._fail(count, found, cue, path, f" in {timeout:g} s")
        return found[count - 1]

    def expect_deliveries(self, count, *, cue=None, path=None):
        """Fails unless exactly so many have come, once those under way have ended; returns them."""
        __tracebackhide__ = True
        self._cued.advance("PT0S")
        found = self._matching(cue and self._cued._cue_id(cue), path)
        if len(found) != count:
            self._fail(count, found, cue, path)
        return found

    def _matching(self, cue_id, path):
        return [
            delivery
            for delivery in self.deliveries
            if delivery.is_signed and cue_id in (None, delivery.cue_id) and path in (None, delivery.path)
        ]

    def _fail(self, count, found, cue, path, waited=""):
        __tracebackhide__ = True
        name = cue if cue is None or isinstance(cue, str) else cue["name"]
        what = f"{count} {'delivery' if count == 1 else 'deliveries'}"
        what += (f" of cue {name!r}" if cue else "") + (f" at {path}" if path else "")
        runs = self._cued.runs(cue)
        names = {run["id"]: run["cue_name"] for run in (runs if cue is None else self._cued.runs())}
        lines = [f"expected {what}, got {len(found)}{waited}; it is {text(self._cued.now)}", "deliveries:"]
        lines += listed([delivery.describe(names) for delivery in self.deliveries])
        lines += ["runs:", *listed([describe_run(run) for run in runs])]
        if not runs:
            cues = self._cued.get("/v1/cues?limit=100")["cues"]
            lines += ["cues:", *listed([describe_cue(cue) for cue in cues])]
        pytest.fail("\n".join(lines), pytrace=True)

    def _respond_to(self, delivery):
        with self._changed:
            scripted = self._script.pop(0) if delivery.is_signed and self._script else self._otherwise
        answer = scripted if delivery.is_signed else 401
        try:
            answer = answer(delivery) if callable(answer) else answer
        except Exception as error:  # an application that fails answers 500
            answer = Answer(500, repr(error))
        delivery.answer = answer if isinstance(answer, Answer) else Answer(200 if answer is None else answer)
        with self._changed:
            self.deliveries.append(delivery)
            self._changed.notify_all()
        self._closed.wait(delivery.answer.delay)
        return delivery.answer


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    receiver: Receiver

    def do_POST(self):
        raw = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        timestamp = self.headers.get("X-CueAPI-Timestamp", "")
        answer = self.receiver._respond_to(
            Delivery(
                at=datetime.fromtimestamp(int(timestamp), timezone.utc) if timestamp.isdecimal() else None,
                method=self.command,
                path=self.path,
                headers=self.headers,
                body=parsed(raw),
                cue_id=self.headers.get("X-CueAPI-Cue-Id"),
                execution_id=self.headers.get("X-CueAPI-Execution-Id"),
                attempt=int(self.headers.get("X-CueAPI-Attempt", 0)),
                is_signed=is_signed(self.headers, timestamp, raw, self.receiver._cued),
            )
        )
        if answer.hang_up:
            # A kept connection that closes without a byte was idle for too long: the server repeats the request at once.
            self.wfile.write(b"HTTP/1.1 ")
            self.close_connection = True
            return
        body = b"" if answer.body is None else json.dumps(answer.body).encode()
        try:
            self.send_response(answer.status)
            for name, value in {**answer.headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)
        except ConnectionError:  # the answer is too late for the timeout of the cue
            self.close_connection = True

    do_GET = do_PUT = do_PATCH = do_DELETE = do_POST

    def log_message(self, *_):
        pass


def is_signed(headers, timestamp, raw, cued):
    signature = headers.get("X-CueAPI-Signature", "")
    signed = f"{timestamp}.".encode() + raw
    made = (hmac.new(secret.encode(), signed, hashlib.sha256) for secret in (cued.secret, cued.alert_secret))
    return any(hmac.compare_digest(f"v1={code.hexdigest()}", signature) for code in made)


def parsed(raw):
    try:
        return json.loads(raw) if raw else None
    except ValueError:
        return raw.decode(errors="replace")


def instant(written):
    return datetime.fromisoformat(written.replace("Z", "+00:00"))


def text(moment):
    return "no time" if moment is None else moment.isoformat().replace("+00:00", "Z")


def listed(lines):
    more = [f"  and {len(lines) - SHOWN} before these"] if len(lines) > SHOWN else []
    return more + [f"  {line}" for line in lines[-SHOWN:]] if lines else ["  none"]


def describe_run(run):
    attempts = f"{run['attempts']} of {run['max_attempts']} attempts"
    reason = f", {run['error_message']}" if run["error_message"] else ""
    again = f", next attempt at {run['next_retry']}" if run["next_retry"] else ""
    return f"{run['scheduled_for']} {run['cue_name']!r} {run['status']}, {attempts}{reason}{again}"


def describe_cue(cue):
    return f"{cue['name']!r} {cue['status']}, next run at {cue['next_run']}"
