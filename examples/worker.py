#!/usr/bin/env python3
"""Executes `worker` cues: polls for executions, claims them, does the work, reports. Needs no open port.

    CUED_API_KEY=cue_sk_... python3 worker.py [--url http://127.0.0.1:8000] [--id NAME]

Add a function to HANDLERS for each `payload.task`. Requires no packages.
"""

import argparse
import json
import os
import random
import signal
import socket
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request

POLL_SECONDS = 25  # how long the server waits for work before it returns an empty list
HEARTBEAT_SECONDS = 60  # the server marks a worker as stale after 180 seconds without one
MAX_PAUSE_SECONDS = 60
# A response holds at most one payload of 1 MiB and its frame.
MAX_RESPONSE = 8 * 1024 * 1024


def count_words(payload):
    return f"{len(payload['text'].split())} words"


def echo(payload):
    return json.dumps(payload.get("text"))


def wait(payload):
    """Takes any time: the claim is extended while it runs."""
    time.sleep(payload["seconds"])
    return f"waited {payload['seconds']} s"


# The return value of a handler is reported as `result`, an exception as `error`.
HANDLERS = {"count-words": count_words, "echo": echo, "wait": wait}


class Refused(Exception):
    """The server rejected the request. Repeating it would fail in the same way."""

    retry_after = 0

    def __init__(self, status, code, message):
        super().__init__(f"{status} {code}: {message}")
        self.code = code


class Unavailable(Exception):
    """There was no response, or one that asks for a retry."""

    def __init__(self, reason, retry_after=0):
        super().__init__(str(reason))
        self.retry_after = retry_after


class Server:
    def __init__(self, url, key):
        self.url = url.rstrip("/")
        self.key = key

    def call(self, method, path, body=None, headers=()):
        request = urllib.request.Request(self.url + path, method=method)
        request.add_header("Authorization", f"Bearer {self.key}")
        request.add_header("Content-Type", "application/json")
        for name, value in headers:
            request.add_header(name, value)
        data = None if body is None else json.dumps(body).encode()
        try:
            with urllib.request.urlopen(request, data, timeout=POLL_SECONDS + 15) as response:
                return json.loads(read_bounded(response) or b"null")
        except urllib.error.HTTPError as error:
            if error.code == 429 or error.code >= 500:
                raise Unavailable(error, retry_after(error)) from error
            raise refusal(error) from error
        except (OSError, ValueError) as error:  # connection refused, reset, timed out or interrupted
            raise Unavailable(error) from error


def read_bounded(response):
    body = response.read(MAX_RESPONSE + 1)
    if len(body) > MAX_RESPONSE:
        raise ValueError(f"the response has more than {MAX_RESPONSE} bytes")
    return body


def refusal(error):
    try:
        details = json.loads(read_bounded(error))["error"]
        return Refused(error.code, details.get("code"), details.get("message"))
    except (OSError, ValueError, LookupError, TypeError, AttributeError):  # not an answer of cued, but of a proxy, say
        return Refused(error.code, None, error.reason)


def retry_after(error):
    value = error.headers.get("Retry-After", "")
    return int(value) if value.isdigit() else 0


class Worker:
    def __init__(self, server, worker_id):
        self.server = server
        self.id = worker_id
        self.stop = threading.Event()
        # One lock per task, held from before the claim until the outcome is reported.
        self.busy = {task: threading.Lock() for task in HANDLERS}

    def run(self):
        """Works until `stop` is set, then finishes the executions in progress."""
        threading.Thread(target=self.repeat, args=(self.heartbeat,), daemon=True).start()
        # One thread per task: the server filters by `task`, so executions for other workers are never received.
        for task in HANDLERS:
            threading.Thread(target=self.repeat, args=(self.poll, task), daemon=True).start()
        self.stop.wait()
        for lock in self.busy.values():
            lock.acquire()

    def repeat(self, step, *arguments):
        failures = 0
        while not self.stop.is_set():
            try:
                step(*arguments)
                failures = 0
            except (Refused, Unavailable) as error:
                print(f"worker {self.id}: {error}", file=sys.stderr, flush=True)
                failures += 1
                self.pause(failures, error)

    def pause(self, failures, error):
        # Exponential backoff with jitter, so that many workers do not retry at the same moments.
        backoff = random.uniform(0.5, 1) * min(MAX_PAUSE_SECONDS, 2 ** (failures - 1))
        self.stop.wait(max(backoff, error.retry_after))

    def heartbeat(self):
        body = {"worker_id": self.id, "handlers": sorted(HANDLERS)}
        self.server.call("POST", "/v1/worker/heartbeat", body)
        self.stop.wait(HEARTBEAT_SECONDS)

    def poll(self, task):
        query = urllib.parse.urlencode({"task": task, "limit": 1, "wait": POLL_SECONDS})
        claimable = self.server.call("GET", f"/v1/executions/claimable?{query}")["executions"]
        for execution in claimable:
            with self.busy[task]:
                if not self.stop.is_set():
                    self.claim_and_run(execution["id"], HANDLERS[task])

    def claim_and_run(self, execution_id, handler):
        try:
            claim = self.server.call("POST", f"/v1/executions/{execution_id}/claim", {"worker_id": self.id})
        except Refused as error:
            if error.code in ("already_claimed", "execution_not_found"):
                return  # another worker was faster, or the cue was deleted: both are normal
            raise
        done = threading.Event()
        lease = claim.get("lease_seconds", 900)
        threading.Thread(target=self.keep_claim, args=(execution_id, lease, done), daemon=True).start()
        try:
            outcome = {"success": True, "result": str(handler(claim["payload"] or {}))}
        except Exception as error:  # any error belongs in the report, where the user sees it
            outcome = {"success": False, "error": f"{type(error).__name__}: {error}"}
        finally:
            done.set()
        self.report(execution_id, outcome)

    def keep_claim(self, execution_id, lease, done):
        while not done.wait(lease / 3):
            try:
                headers = [("X-Worker-Id", self.id)]
                self.server.call("POST", f"/v1/executions/{execution_id}/heartbeat", {}, headers)
            except Unavailable:
                pass  # the lease leaves time for two more attempts
            except Refused as error:
                print(f"worker {self.id}: lost {execution_id}: {error}", file=sys.stderr, flush=True)
                return

    def report(self, execution_id, outcome):
        # Without a report the work would be done again, so this retries until the server responds. If an earlier
        # report was recorded and only its response was lost, the next one returns 409.
        failures = 0
        while True:
            try:
                self.server.call("POST", f"/v1/executions/{execution_id}/outcome", outcome)
                print(f"{execution_id} {json.dumps(outcome)}", flush=True)
                return
            except Refused as error:
                print(f"{execution_id} not recorded: {error}", file=sys.stderr, flush=True)
                return
            except Unavailable as error:
                if self.stop.is_set():
                    print(f"{execution_id} not reported: {error}", file=sys.stderr, flush=True)
                    return
                failures += 1
                self.pause(failures, error)


def main():
    parser = argparse.ArgumentParser(description="Claims executions and reports their outcomes.")
    parser.add_argument("--url", default=os.environ.get("CUED_URL", "http://127.0.0.1:8000"))
    # Unique per process, so that a claim identifies its holder.
    parser.add_argument("--id", default=f"{socket.gethostname()}-{os.getpid()}")
    arguments = parser.parse_args()
    key = os.environ.get("CUED_API_KEY")
    if not key:
        parser.error("set CUED_API_KEY to a key of the account (cue_sk_...)")
    worker = Worker(Server(arguments.url, key), arguments.id)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: worker.stop.set())
    print(f"worker {arguments.id} waits for: {', '.join(HANDLERS)}", flush=True)
    worker.run()


if __name__ == "__main__":
    main()
