"""The victim: an ordinary account beside the attackers, and what it notices.

Each request begins at its time, whether or not the one before has ended, so that a server that stops answering is seen
with its whole delay. Requests without an answer at the end count with the time that they have taken so far.
"""

import datetime
import http.server
import json
import socketserver
import threading
import time

from caller import Caller, Tally, cue

ADDRESS = "127.0.0.9"
CREATE_EVERY_S = 1.5
DUE_AFTER_S = 2.5
STATUS_EVERY_S = 0.25
# A delivery that is later than this is missing.
LAST_DELIVERY_S = 5


class Timings:
    """How long requests took, and those that are under way."""

    def __init__(self):
        self.lock, self.took, self.under_way, self.errors = threading.Lock(), [], {}, []

    def measure(self, action):
        began, token = time.monotonic(), object()
        with self.lock:
            self.under_way[token] = began
        try:
            action()
        except Exception as error:  # noqa: BLE001: whatever it is, the victim noticed it
            self.errors.append(repr(error))
        with self.lock:
            del self.under_way[token]
            self.took.append(time.monotonic() - began)

    def all(self):
        with self.lock:
            return self.took + [time.monotonic() - began for began in self.under_way.values()]

    def every(self, pause, end, action):
        """Measures `action` in a thread of its own every `pause` seconds until `end`."""
        began = time.monotonic()
        number = 0
        while (at := began + number * pause) < end:
            time.sleep(max(0, at - time.monotonic()))
            threading.Thread(target=self.measure, args=(action,), daemon=True).start()
            number += 1


class Receiver(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
    request_queue_size = 128


class Victim:
    def __init__(self, server):
        self.caller = Caller(server, ADDRESS, Tally(), 0)
        self.creates, self.statuses = Timings(), Timings()
        # By how much this machine prolongs a sleep of 10 ms: what is measured contains such pauses.
        self.pauses = []
        # Instants at which a delivery is due, and when it came.
        self.due, self.arrived = [], {}
        self.receiver = Receiver(("127.0.0.1", 0), handler(self.arrived))
        threading.Thread(target=self.receiver.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.receiver.server_address[1]}/"

    def run(self, seconds):
        """Creates cues and asks for the status; the deliveries of the last cues are due before the end."""
        end = time.monotonic() + seconds
        creates_end = end - DUE_AFTER_S - LAST_DELIVERY_S
        for timings, arguments in [
            (self.creates, (CREATE_EVERY_S, creates_end, self.create)),
            (self.statuses, (STATUS_EVERY_S, end, self.status)),
        ]:
            threading.Thread(target=timings.every, args=arguments, daemon=True).start()
        threading.Thread(target=self.watch_pauses, args=(end,), daemon=True).start()

    def watch_pauses(self, end):
        while (began := time.monotonic()) < end:
            time.sleep(0.01)
            self.pauses.append(time.monotonic() - began - 0.01)

    def create(self):
        due = int((time.time() + DUE_AFTER_S) * 1000) / 1000
        at = datetime.datetime.fromtimestamp(due, datetime.timezone.utc).isoformat(timespec="milliseconds")
        body = cue("victim", {"type": "once", "at": at}, self.url)
        status, reply = self.caller.call("POST", "/v1/cues", body)
        assert status == 201, f"create: {status} {reply[:200]}"
        self.due.append((json.loads(reply)["id"], due))

    def status(self):
        status, reply = Caller(self.caller.server, ADDRESS, None, 0).call("GET", "/status")
        assert (status, json.loads(reply)["status"]) == (200, "healthy"), f"/status: {status} {reply[:200]}"

    def lateness(self):
        """Seconds for each delivery that came, and the number of those that did not."""
        late = [self.arrived[id] - due for id, due in self.due if id in self.arrived]
        return late, len(self.due) - len(late)


def handler(arrived):
    class Hook(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            arrived.setdefault(self.headers["X-CueAPI-Cue-Id"], time.time())
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_):
            pass

    return Hook
