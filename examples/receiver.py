#!/usr/bin/env python3
"""Receives, verifies and prints deliveries of `webhook` cues.

    WEBHOOK_SECRET=whsec_... python3 receiver.py [PORT]        (default 9000; 0 selects a free port)

The body of a delivery is the payload of the cue itself, with nothing around it.
GET /v1/auth/webhook-secret returns the secret. Requires no packages.
"""

import argparse
import hashlib
import hmac
import json
import os
import re
import threading
import time
from collections import OrderedDict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

# A signature never expires, so a recorded request could be replayed. Five minutes cover every legitimate delay.
TOLERANCE_SECONDS = 300
# A payload has at most 1 MiB of compact UTF-8. Sending non-ASCII as \uXXXX makes it up to three times larger.
MAX_BODY = 8 * 1024 * 1024
REMEMBERED = 10_000


def signature_is_valid(secret, timestamp, body, signature):
    """Returns True if `signature` (`v1=HEX`) is a recent signature of exactly these bytes with `secret`."""
    # `int` also reads "1_0", other digits than 0 to 9, and numbers that no clock shows.
    if not re.fullmatch("[0-9]{1,12}", timestamp):
        return False
    if abs(time.time() - int(timestamp)) > TOLERANCE_SECONDS:
        return False
    # The signature covers the raw bytes. A body that is parsed and serialized again can differ.
    expected = hmac.new(secret.encode(), timestamp.encode() + b"." + body, hashlib.sha256).hexdigest()
    # `==` stops at the first difference, and its duration would reveal how much of a forged value is correct.
    return hmac.compare_digest(f"v1={expected}".encode(), signature.encode())


class Seen:
    """The ids of handled executions. Delivery is at least once: if a response is lost, the execution is sent again.

    A production receiver stores the ids in the transaction of its results, not in memory. `X-CueAPI-Signature` covers
    the time and the body, but not the id: whoever records a delivery can send it again under another id for five
    minutes. Where that matters, serve HTTPS, or verify `webhook-signature` as receiver.js does: it covers `webhook-id`.
    """

    def __init__(self):
        self._ids = OrderedDict()
        self._lock = threading.Lock()

    def __contains__(self, execution_id):
        with self._lock:
            return execution_id in self._ids

    def add(self, execution_id):
        with self._lock:
            self._ids[execution_id] = True
            if len(self._ids) > REMEMBERED:
                self._ids.popitem(last=False)


class Receiver(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # keep the connection open for the next delivery
    timeout = 60
    secret = None
    seen = Seen()

    def do_POST(self):
        length = self.headers.get("Content-Length", "")
        if not re.fullmatch("[0-9]{1,19}", length):  # `read(-1)` reads until the connection ends
            return self.reject(411)
        if int(length) > MAX_BODY:
            return self.reject(413)
        body = self.rfile.read(int(length))
        if len(body) < int(length):
            return self.reject(400)
        if self.secret and not self.is_signed(body):
            return self.respond(401)
        execution_id = self.headers.get("X-CueAPI-Execution-Id", "")
        if execution_id in self.seen:
            print(f"{execution_id} again, ignored", flush=True)
        else:
            self.handle_payload(execution_id, json.loads(body))
            # After the work: if the work raises, no response is sent and the next attempt repeats it.
            # Attempts of one execution never overlap, so no second request does the same work at the same time.
            self.seen.add(execution_id)
        self.respond(200)

    do_PUT = do_PATCH = do_POST

    def is_signed(self, body):
        timestamp = self.headers.get("X-CueAPI-Timestamp", "")
        signature = self.headers.get("X-CueAPI-Signature", "")
        return signature_is_valid(self.secret, timestamp, body, signature)

    def handle_payload(self, execution_id, payload):
        """Does the work. It must take less than 30 seconds; otherwise store the payload and process it later."""
        print(f"{execution_id} {json.dumps(payload)}", flush=True)

    def respond(self, status):
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def reject(self, status):
        self.close_connection = True  # the unread body is still in transit
        self.respond(status)

    def log_message(self, format, *args):
        """Suppresses the request log: standard output is for payloads."""


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128  # deliveries that wait for a thread; with Python's 5, a burst is a second late


def main():
    parser = argparse.ArgumentParser(description="Receives, verifies and prints deliveries of cues.")
    parser.add_argument("port", nargs="?", type=int, default=9000, help="0 selects a free port (default: 9000)")
    parser.add_argument("--secret", default=os.environ.get("WEBHOOK_SECRET"), help="default: $WEBHOOK_SECRET")
    arguments = parser.parse_args()
    Receiver.secret = arguments.secret
    server = Server(("127.0.0.1", arguments.port), Receiver)
    if not arguments.secret:
        print("no secret given: signatures are NOT verified, anyone can post here", flush=True)
    print(f"receiver listening on http://127.0.0.1:{server.server_port}", flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        pass


if __name__ == "__main__":
    main()
