#!/usr/bin/env python3
"""Attack one server in every known way at once and check that a victim hardly notices.

    tests/attacks/run.py target/release/cued [SECONDS]

The attackers stay within the limits of a free account or of a caller without an account (contract §11). Each has an
address of its own in 127.0.0.0/8. The victim creates a `once` cue every few seconds and waits for its delivery.
Needs Linux (`/proc`) and Python's standard library only. Exits with 1 if a bound is exceeded.
"""

import datetime
import http.client
import http.server
import json
import os
import random
import signal
import socket
import socketserver
import subprocess
import sys
import tempfile
import threading
import time

MIB = 1 << 20
MAX_PEAK_MIB = 128
MAX_MIB_AFTERWARDS = 40
SECONDS_TO_RECOVER = 60
MAX_CREATE_S = 1.0
MAX_LATENESS_S = 2.0
MAX_STATUS_S = 0.1

SMALL_OBJECTS = "[" + ",".join(['{"":0}'] * 140_000) + "]"
VICTIM = "127.0.0.9"
NEVER = {"type": "once", "at": "2099-01-01T00:00:00Z"}

stop = threading.Event()
counts = {}
counts_lock = threading.Lock()


def count(name):
    with counts_lock:
        counts[name] = counts.get(name, 0) + 1


class Caller:
    """A client with an address of its own, with or without an API key."""

    def __init__(self, server, address, key=None):
        self.server, self.address, self.key = server, address, key

    def connect(self, timeout=60):
        host, port = self.server
        return http.client.HTTPConnection(host, port, timeout=timeout, source_address=(self.address, 0))

    def call(self, method, path, body=None, headers=None):
        headers = dict(headers or {})
        if self.key:
            headers["Authorization"] = "Bearer " + self.key
        connection = self.connect()
        try:
            connection.request(method, path, body if body is None else body.encode(), headers)
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    def try_call(self, name, *arguments, **named):
        """A call of an attacker: any answer is fine, and so is a closed connection."""
        try:
            status, body = self.call(*arguments, **named)
            count(f"{name} {status}")
            return status, body
        except (OSError, http.client.HTTPException) as error:
            count(f"{name} {type(error).__name__}")
            return 0, b""

    def register(self, email):
        status, body = self.call("POST", "/v1/auth/register", json.dumps({"email": email}))
        assert status == 201, (status, body)
        return Caller(self.server, self.address, json.loads(body)["api_key"])

    def head(self, method, path, length):
        key = f"Authorization: Bearer {self.key}\r\n" if self.key else ""
        return f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{key}Content-Length: {length}\r\n\r\n".encode()

    def open_and_send(self, data):
        sent = socket.create_connection(self.server, timeout=60, source_address=(self.address, 0))
        sent.sendall(data)
        return sent


def cue(name, schedule, url=None, payload="{}", **more):
    fields = {"name": name, "schedule": schedule, **more}
    fields.update({"callback": {"url": url}} if url else {"transport": "worker"})
    return json.dumps(fields)[:-1] + f', "payload": {payload}}}'


def created(caller, text):
    status, body = caller.try_call("setup", "POST", "/v1/cues", text)
    return json.loads(body)["id"] if status == 201 else None


def until_stopped(pause, action):
    while not stop.is_set():
        action()
        stop.wait(pause * random.uniform(0.5, 1.5))


# The attacks. Each runs until `stop`, in a thread of its own.


def large_claimable(caller):
    """Asks for executions with a payload of many small objects, sixty times a minute."""
    id = created(caller, cue("claimable", NEVER, payload=f'{{"items": {SMALL_OBJECTS}}}'))
    for _ in range(8):
        caller.try_call("fire", "POST", f"/v1/cues/{id}/fire", "{}")
    until_stopped(1, lambda: caller.try_call("claimable", "GET", "/v1/executions/claimable"))


def patch_burst(caller):
    """Changes the name of a cue with a large payload, 50 times at once, every minute."""
    id = created(caller, cue("patched", NEVER, payload=f'{{"items": {SMALL_OBJECTS}}}'))
    patch = lambda: caller.try_call("patch", "PATCH", f"/v1/cues/{id}", '{"name": "x"}')
    until_stopped(60, lambda: in_parallel(50, patch))


def in_parallel(times, action):
    threads = [threading.Thread(target=action, daemon=True) for _ in range(times)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]


def silent_bodies(caller):
    """Announces bodies on free routes and sends none."""

    def hold():
        held = []
        try:
            for _ in range(128):
                held.append(caller.open_and_send(caller.head("GET", "/status", 2)))
                count("silent body")
        except OSError:
            count("silent body refused")
        stop.wait(10)
        [sent.close() for sent in held]

    until_stopped(1, hold)


def unfinished_bodies(caller):
    """Sends the beginning of 32 bodies of 2 MB."""

    def hold():
        held = []
        for _ in range(32):
            try:
                sent = caller.open_and_send(caller.head("POST", "/v1/auth/register", 2 * MIB) + b"[" * 60_000)
                held.append(sent)
                count("unfinished body")
            except OSError:
                count("unfinished body refused")
        stop.wait(10)
        [sent.close() for sent in held]

    until_stopped(1, hold)


def large_registrations(caller):
    """Sends bodies of 2 MB of small objects to a route without a key."""
    body = SMALL_OBJECTS * 2
    until_stopped(5, lambda: in_parallel(25, lambda: caller.try_call("register", "POST", "/v1/auth/register", body)))


def unread_replies(caller):
    """Asks for long lists and reads nothing."""
    for number in range(25):
        id = created(caller, cue(f"long {number}", NEVER, description="ä" * 9_999))
        caller.try_call("pause", "PATCH", f"/v1/cues/{id}", '{"status": "paused"}')

    def ask():
        request = caller.head("GET", "/v1/cues?limit=100", 0)
        held = []
        for _ in range(40):
            try:
                held.append(caller.open_and_send(request))
                count("unread reply")
            except OSError:
                count("unread reply refused")
        stop.wait(30)
        [sent.close() for sent in held]

    until_stopped(30, ask)


def hanging_receivers(caller, port, number):
    """Fires ten cues whose ten hosts never answer."""
    ids = [
        created(caller, cue(f"hang {host}", NEVER, f"http://127.0.{100 + number}.{host + 1}:{port}/", retry={"max_attempts": 5, "backoff_minutes": [0.01]}))
        for host in range(10)
    ]
    until_stopped(2, lambda: caller.try_call("fire", "POST", f"/v1/cues/{random.choice(ids)}/fire", "{}"))


def store_much(caller):
    """Creates and pauses cues with large payloads."""
    payload = '{"text": "' + "x" * (MIB - 100) + '"}'

    def store():
        headers = {"Idempotency-Key": str(random.random())}
        status, body = caller.try_call("store", "POST", "/v1/cues", cue("s", NEVER, payload=payload), headers)
        if status == 201:
            caller.try_call("pause", "PATCH", f"/v1/cues/{json.loads(body)['id']}", '{"status": "paused"}')

    until_stopped(1, store)


def long_tasks(caller):
    """Fires a cue whose `task` takes a megabyte."""
    id = created(caller, cue("task", NEVER, payload='{"task": "' + "t" * (MIB - 100) + '"}'))
    until_stopped(1, lambda: caller.try_call("fire", "POST", f"/v1/cues/{id}/fire", "{}"))


def workers_and_keys(caller):
    """Registers workers with many handlers, and keys."""
    handlers = json.dumps(["h" * 255] * 60)

    def step():
        name = f"w{random.random()}"
        caller.try_call("heartbeat", "POST", "/v1/worker/heartbeat", f'{{"worker_id": "{name}", "handlers": {handlers}}}')
        caller.try_call("key", "POST", "/v1/auth/keys", '{"name": "k"}')
        caller.try_call("workers", "GET", "/v1/workers")

    until_stopped(3, step)


# The victim and its receiver.


class Hook(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    lateness = []

    def do_POST(self):
        now = time.time()
        scheduled = self.headers["X-CueAPI-Scheduled-For"]
        self.rfile.read(int(self.headers["Content-Length"]))
        self.lateness.append(now - instant(scheduled))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


class Receiver(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True


def instant(text):
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def never_answer(listener):
    held = []
    while True:
        held.append(listener.accept())


def timed(action):
    began = time.monotonic()
    result = action()
    return time.monotonic() - began, result


def create_cues(victim, url, found):
    def create():
        at = datetime.datetime.fromtimestamp(time.time() + 2.5, datetime.timezone.utc).isoformat()
        took, (status, body) = timed(lambda: victim.call("POST", "/v1/cues", cue("v", {"type": "once", "at": at}, url)))
        assert status == 201, (status, body)
        found.append(took)

    until_stopped(2.5, create)


def ask_status(caller, found):
    def ask():
        took, (status, _) = timed(lambda: caller.call("GET", "/status"))
        assert status == 200, status
        found.append(took)

    until_stopped(0.5, ask)


def memory_mib(pid, field):
    with open(f"/proc/{pid}/status") as status:
        line = next(line for line in status if line.startswith(field))
    return int(line.split()[1]) / 1024


def guarded(failures, action, *arguments):
    try:
        action(*arguments)
    except Exception as error:  # noqa: BLE001: reported at the end, whatever it is
        failures.append(f"{action.__name__}: {error!r}")


def quantile(values, share):
    return sorted(values)[min(len(values) - 1, int(len(values) * share))] if values else float("inf")


def start_server(program, folder):
    log = open(os.path.join(folder, "cued.log"), "w")
    command = [program, "serve", "--registration", "open", "--allow-callbacks-to", "loopback"]
    command += ["--listen", "127.0.0.1:0", "--db", os.path.join(folder, "cued.db")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
    port = int(process.stdout.readline().rsplit(":", 1)[1])
    return process, ("127.0.0.1", port)


def start_attacks(server, hang_port):
    attacks = [(large_claimable, 1), (patch_burst, 3), (silent_bodies, 2), (unfinished_bodies, 2)]
    attacks += [(large_registrations, 2), (unread_replies, 2), (store_much, 2), (long_tasks, 1), (workers_and_keys, 1)]
    without_key = {silent_bodies, unfinished_bodies, large_registrations}
    last = 0
    for attack, times in attacks:
        for _ in range(times):
            last += 1
            caller = Caller(server, f"127.0.1.{last}")
            caller = caller if attack in without_key else caller.register(f"attacker{last}@example.com")
            threading.Thread(target=attack, args=(caller,), daemon=True).start()
    for number in range(7):
        caller = Caller(server, f"127.0.2.{number + 1}").register(f"hanging{number}@example.com")
        threading.Thread(target=hanging_receivers, args=(caller, hang_port, number), daemon=True).start()


def main():
    program, seconds = sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else 120
    folder = tempfile.TemporaryDirectory(prefix="cued-attacks-")
    process, server = start_server(program, folder.name)
    hook = Receiver(("127.0.0.1", 0), Hook)
    threading.Thread(target=hook.serve_forever, daemon=True).start()
    hanging = socket.create_server(("0.0.0.0", 0), backlog=1024)
    threading.Thread(target=never_answer, args=(hanging,), daemon=True).start()
    victim = Caller(server, VICTIM).register("victim@example.com")
    failures, creates, statuses, peak = [], [], [], 0.0
    try:
        start_attacks(server, hanging.getsockname()[1])
        url = f"http://127.0.0.1:{hook.server_address[1]}/"
        for action, arguments in [(create_cues, (victim, url, creates)), (ask_status, (Caller(server, VICTIM), statuses))]:
            threading.Thread(target=guarded, args=(failures, action, *arguments), daemon=True).start()
        end = time.monotonic() + seconds
        while time.monotonic() < end and process.poll() is None:
            time.sleep(0.2)
        stop.set()
        assert process.poll() is None, "the server has ended"
        peak = memory_mib(process.pid, "VmHWM")
        began = time.monotonic()
        while memory_mib(process.pid, "VmRSS") > MAX_MIB_AFTERWARDS and time.monotonic() < began + SECONDS_TO_RECOVER:
            time.sleep(0.5)
        recovered = time.monotonic() - began
        after = memory_mib(process.pid, "VmRSS")
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)
    late = Hook.lateness
    for name in sorted(counts):
        print(f"{counts[name]:8} {name}")
    results = [
        ("peak memory, MiB", peak, MAX_PEAK_MIB),
        (f"memory {recovered:.0f} s afterwards, MiB", after, MAX_MIB_AFTERWARDS),
        (f"create, slowest of {len(creates)}, s", max(creates, default=float("inf")), MAX_CREATE_S),
        (f"lateness, 99th percentile of {len(late)}, s", quantile(late, 0.99), MAX_LATENESS_S),
        (f"GET /status, slowest of {len(statuses)}, s", max(statuses, default=float("inf")), MAX_STATUS_S),
    ]
    for name, value, bound in results:
        verdict = "ok" if value <= bound else "TOO MUCH"
        print(f"{name:44} {value:9.3f}   at most {bound:7.3f}   {verdict}")
    missing = len(creates) - len(late)
    # The last cues may not have been due yet.
    failures += [f"{missing} deliveries are missing"] if missing > 3 else []
    failures += [name for name, value, bound in results if value > bound]
    print("\n".join(f"FAILED: {failure}" for failure in failures) or "all bounds hold")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
