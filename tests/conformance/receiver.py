"""The receiver of deliveries, which verifies and keeps them."""

import base64
import hashlib
import hmac
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from values import read_json

# Five minutes cover every legitimate delay of a delivery.
TOLERANCE_SECONDS = 300


def is_verified(secret, headers, body):
    """Whether both signatures are those of the secret, and recent."""
    v1_time, standard_time = headers.get("x-cueapi-timestamp", ""), headers.get("webhook-timestamp", "")
    if not all(it.isdecimal() and abs(time.time() - int(it)) <= TOLERANCE_SECONDS for it in (v1_time, standard_time)):
        return False
    v1 = hmac.new(secret.encode(), f"{v1_time}.".encode() + body, hashlib.sha256)
    message = f"{headers.get('webhook-id')}.{standard_time}.".encode() + body
    standard = hmac.new(base64.b64decode(secret.split("_", 1)[-1]), message, hashlib.sha256)
    # For a day after a change of the secret there are two signatures of Standard Webhooks.
    signatures = headers.get("webhook-signature", "").split(" ")
    is_standard = f"v1,{base64.b64encode(standard.digest()).decode()}" in signatures
    return is_standard and headers.get("x-cueapi-signature") == f"v1={v1.hexdigest()}"


class Server(ThreadingHTTPServer):
    request_queue_size = 128  # with Python's 5, a burst of deliveries is a second late


class Receiver:
    """Responds with each of the statuses once, then with the last one."""

    def __init__(self, listen, statuses, secret):
        self.statuses, self.secret = [int(status) for status in statuses.split(",")], secret
        # Those that are not read yet.
        self.deliveries, self.changed = [], threading.Condition()

        class Handler(BaseHTTPRequestHandler):
            receiver = self

            def receive(self):
                self.send_response(self.receiver.receive(self))
                self.send_header("Content-Length", "0")
                self.end_headers()

            do_DELETE = do_GET = do_PATCH = do_POST = do_PUT = receive

            def log_message(self, *_):
                """Prints nothing."""

        server = Server(listen, Handler)
        self.url = f"http://{server.server_address[0]}:{server.server_port}"
        threading.Thread(target=server.serve_forever, daemon=True).start()

    def receive(self, request):
        headers = {name.lower(): value for name, value in request.headers.items()}
        body = request.rfile.read(int(headers.get("content-length", 0)))
        delivery = {
            "method": request.command, "path": request.path, "headers": headers, "body": read_json(body),
            "cue_id": headers.get("x-cueapi-cue-id"), "execution_id": headers.get("x-cueapi-execution-id"),
            "attempt": read_json(headers.get("x-cueapi-attempt", "")),
            "verified": is_verified(self.secret, headers, body),
        }
        # The deliveries are in the order of their statuses.
        with self.changed:
            self.deliveries.append(delivery)
            self.changed.notify_all()
            return self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]

    def has_delivery(self, patience):
        """Waits for a delivery that is not read yet."""
        with self.changed:
            return self.changed.wait_for(lambda: self.deliveries, patience)
