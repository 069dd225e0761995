#!/usr/bin/env python3
"""Receives the deliveries of cues with transport `webhook`.

    WEBHOOK_SECRET=whsec_... python3 receiver.py [PORT]        (default 9000; 0 takes a free port)

The secret is the account's: GET /v1/auth/webhook-secret. Only the standard library is used.
"""

import argparse
import hashlib
import hmac
import json
import os
import threading
import time
from collections import OrderedDict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

# A signature stays valid for ever, so a recorded request could be sent again: five minutes cover any honest delay.
TOLERANCE_SECONDS = 300
# Payloads are at most 1 MiB, non-ASCII characters written as \uXXXX: nothing honest is larger than this.
MAX_BODY = 8 * 1024 * 1024
REMEMBERED = 10_000


def signature_is_valid(secret, timestamp, body, signature):
    """Whether `signature` (`v1=HEX`) was made with `secret`, not long ago, for exactly these bytes."""
    try:
        age = abs(time.time() - int(timestamp))
    except ValueError:
        return False
    if age > TOLERANCE_SECONDS:
        return False
    # Over the raw bytes: a body that was parsed and written again need not be the same.
    expected = hmac.new(secret.encode(), timestamp.encode() + b"." + body, hashlib.sha256).hexdigest()
    # `==` would stop at the first difference and so tell, by its time, how much of a guess was right.
    return hmac.compare_digest(f"v1={expected}".encode(), signature.encode())


class Seen:
    """The executions that were handled. Delivery is at least once: a lost answer means the same one again.

    A real receiver keeps this with its results, in one transaction, and not in memory.
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
    protocol_version = "HTTP/1.1"  # keeps the connection for the next delivery
    timeout = 60
    secret = None
    seen = Seen()

    def do_POST(self):
        length = int(self.headers.get("Content-Length") or 0)
        if length > MAX_BODY:
            self.close_connection = True  # the unread body is still on its way
            return self.answer(413)
        body = self.rfile.read(length)
        if self.secret and not self.is_signed(body):
            return self.answer(401)
        execution_id = self.headers.get("X-CueAPI-Execution-Id", "")
        if execution_id in self.seen:
            print(f"{execution_id} again, ignored", flush=True)
        else:
            self.handle_payload(execution_id, json.loads(body))
            # After the work, not before: if it raises, no answer is sent and the next attempt does it again.
            # Attempts of one execution never overlap, so nobody else is at it meanwhile.
            self.seen.add(execution_id)
        self.answer(200)

    do_PUT = do_PATCH = do_POST

    def is_signed(self, body):
        timestamp = self.headers.get("X-CueAPI-Timestamp", "")
        signature = self.headers.get("X-CueAPI-Signature", "")
        return signature_is_valid(self.secret, timestamp, body, signature)

    def handle_payload(self, execution_id, payload):
        """The work. Keep it under 30 seconds, or note the payload down and do it after the answer."""
        print(f"{execution_id} {json.dumps(payload)}", flush=True)

    def answer(self, status):
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format, *args):
        """Quiet: the payloads are what this program prints."""


def main():
    parser = argparse.ArgumentParser(description="Receives, verifies and prints the deliveries of cues.")
    parser.add_argument("port", nargs="?", type=int, default=9000, help="0 takes a free one (default: 9000)")
    parser.add_argument("--secret", default=os.environ.get("WEBHOOK_SECRET"), help="default: $WEBHOOK_SECRET")
    arguments = parser.parse_args()
    Receiver.secret = arguments.secret
    server = ThreadingHTTPServer(("127.0.0.1", arguments.port), Receiver)
    server.daemon_threads = True
    if not arguments.secret:
        print("no secret given: signatures are NOT verified, anyone can post here", flush=True)
    print(f"receiver listening on http://127.0.0.1:{server.server_port}", flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        pass


if __name__ == "__main__":
    main()
