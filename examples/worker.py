#!/usr/bin/env python3
"""Does the work of cues with transport `worker`: no open port, no address of its own.

    CUED_API_KEY=cue_sk_... python3 worker.py [--url http://127.0.0.1:8000] [--id NAME]

Add a function to HANDLERS for each `payload.task` that it should do. Only the standard library is used.
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

POLL_SECONDS = 25  # the server holds the request this long when there is no work
HEARTBEAT_SECONDS = 60  # a worker that is silent for 180 seconds counts as stale
LONGEST_PAUSE = 60


def count_words(payload):
    return f"{len(payload['text'].split())} words"


def echo(payload):
    return json.dumps(payload.get("text"))


def wait(payload):
    """As long as it wants: the claim is kept meanwhile."""
    time.sleep(payload["seconds"])
    return f"waited {payload['seconds']} s"


# What a handler returns is reported as `result`; an exception is reported as `error`.
HANDLERS = {"count-words": count_words, "echo": echo, "wait": wait}


class Refused(Exception):
    """The server understood and said no: asking again gives the same answer."""

    retry_after = 0

    def __init__(self, status, code, message):
        super().__init__(f"{status} {code}: {message}")
        self.code = code


class Unavailable(Exception):
    """No answer, or one that asks for patience."""

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
                return json.loads(response.read() or b"null")
        except urllib.error.HTTPError as error:
            if error.code == 429 or error.code >= 500:
                raise Unavailable(error, retry_after(error)) from error
            answer = json.loads(error.read() or b"{}").get("error", {})
            raise Refused(error.code, answer.get("code"), answer.get("message")) from error
        except (OSError, ValueError) as error:  # refused, reset, timed out, or cut off in the middle
            raise Unavailable(error) from error


def retry_after(error):
    value = error.headers.get("Retry-After", "")
    return int(value) if value.isdigit() else 0


class Worker:
    def __init__(self, server, worker_id):
        self.server = server
        self.id = worker_id
        self.stop = threading.Event()
        # One lock per task, held from before a claim until its outcome is reported.
        self.busy = {task: threading.Lock() for task in HANDLERS}

    def run(self):
        """Works until `stop` is set, then ends what was begun and nothing more."""
        threading.Thread(target=self.repeat, args=(self.heartbeat,), daemon=True).start()
        # A thread per task, because `task` filters on the server: work that another worker must do is never seen here.
        for task in HANDLERS:
            threading.Thread(target=self.repeat, args=(self.take_one, task), daemon=True).start()
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
        # Twice as long each time, and not in step with other workers that lost the same server.
        backoff = random.uniform(0.5, 1) * min(LONGEST_PAUSE, 2 ** (failures - 1))
        self.stop.wait(max(backoff, error.retry_after))

    def heartbeat(self):
        body = {"worker_id": self.id, "handlers": sorted(HANDLERS)}
        self.server.call("POST", "/v1/worker/heartbeat", body)
        self.stop.wait(HEARTBEAT_SECONDS)

    def take_one(self, task):
        query = urllib.parse.urlencode({"task": task, "limit": 1, "wait": POLL_SECONDS})
        waiting = self.server.call("GET", f"/v1/executions/claimable?{query}")["executions"]
        for execution in waiting:
            with self.busy[task]:
                if not self.stop.is_set():
                    self.claim_and_do(execution["id"], HANDLERS[task])

    def claim_and_do(self, execution_id, handler):
        try:
            claim = self.server.call("POST", f"/v1/executions/{execution_id}/claim", {"worker_id": self.id})
        except Refused as error:
            if error.code in ("already_claimed", "execution_not_found"):
                return  # another worker was faster, or the cue was deleted: both are daily life
            raise
        done = threading.Event()
        lease = claim.get("lease_seconds", 900)
        threading.Thread(target=self.keep_claim, args=(execution_id, lease, done), daemon=True).start()
        try:
            outcome = {"success": True, "result": str(handler(claim["payload"] or {}))}
        except Exception as error:  # whatever it was: the user should read it beside the execution
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
                pass  # two more tries fit into the lease
            except Refused as error:
                print(f"worker {self.id}: lost {execution_id}: {error}", file=sys.stderr, flush=True)
                return

    def report(self, execution_id, outcome):
        # The work is done and must not be done again for want of a report, so this does not give up;
        # a report that arrived although its answer was lost is a 409 the next time.
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
    # Unique per process, so that a claim tells who holds it.
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
