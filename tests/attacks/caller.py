"""What the attacks share: callers with an address of their own, and the account of what they were answered."""

import collections
import http.client
import json
import re
import select
import socket
import subprocess
import threading
import time

MIB = 1 << 20
NEVER = {"type": "once", "at": "2099-01-01T00:00:00Z"}
# 0.98 MB of objects that take 630 bytes each as a parsed tree.
SMALL_OBJECTS = "[" + ",".join(['{"":0}'] * 140_000) + "]"


class Tally:
    """Counts of one attack: outcomes, the most sockets held at a time, and the bytes that the server took to store."""

    def __init__(self):
        self.lock = threading.Lock()
        self.counts, self.peaks = collections.Counter(), collections.Counter()
        self.stored = self.requests = 0

    def __getstate__(self):
        with self.lock:
            state = {**vars(self), "counts": self.counts.copy(), "peaks": self.peaks.copy()}
            return state | {"lock": None}

    def add(self, outcome, times=1):
        with self.lock:
            self.counts[outcome] += times

    def peak(self, outcome, value):
        with self.lock:
            self.peaks[outcome] = max(self.peaks[outcome], value)

    def taken(self, body):
        with self.lock:
            self.stored += stored_length(body or "")
            self.requests += 1

    def value(self, beginning):
        """The sum of the outcomes that begin so, or the largest peak."""
        counts = sum(count for outcome, count in self.counts.items() if outcome.startswith(beginning))
        return counts or max((peak for outcome, peak in self.peaks.items() if outcome.startswith(beginning)), default=0)


def stored_length(text):
    """The length of JSON text as the server stores it: characters beyond ASCII take six bytes each."""
    return len(text) + 5 * len(re.findall(r"[^\x00-\x7f]", text))


class Caller:
    """A client with an address of its own, with or without an API key."""

    def __init__(self, server, address, tally, number, key=None):
        self.server, self.address, self.tally, self.number, self.key = server, address, tally, number, key

    def call(self, method, path, body=None, headers=None):
        headers = dict(headers or {})
        if self.key:
            headers["Authorization"] = "Bearer " + self.key
        host, port = self.server
        connection = http.client.HTTPConnection(host, port, timeout=60, source_address=(self.address, 0))
        try:
            connection.request(method, path, None if body is None else body.encode(), headers)
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    def attempt(self, name, method, path, body=None, headers=None):
        """A call of an attacker: any answer is counted, and so is a closed connection."""
        try:
            status, reply = self.call(method, path, body, headers)
        except (OSError, http.client.HTTPException) as error:
            self.tally.add(f"{name} {type(error).__name__}")
            return 0, {}
        reply = json.loads(reply) if reply[:1] == b"{" else {}
        code = reply.get("error", {}).get("code", "") if status >= 400 else ""
        self.tally.add(f"{name} {status} {code}".strip())
        if status < 300 and method != "GET":
            self.tally.taken(body)
        return status, reply

    def must(self, method, path, body=None):
        """A call of the set-up, which must succeed."""
        for _ in range(20):
            status, reply = self.call(method, path, body)
            if status != 503:
                break
            time.sleep(0.5)
        if status >= 300:
            raise AssertionError(f"set-up: {method} {path}: {status} {reply[:300]}")
        self.tally.taken(body)
        return json.loads(reply)

    def add_account(self, program, database, email):
        """Makes an account as the operator does: one that registers is unconfirmed, and bounded far below its plan."""
        command = [program, "user", "add", "--db", database, email]
        added = subprocess.run(command, check=True, capture_output=True, text=True)
        self.key = re.search("cue_sk_[0-9a-f]{32}", added.stdout).group()

    def create(self, *arguments, **fields):
        return self.must("POST", "/v1/cues", cue(*arguments, **fields))["id"]

    def fire(self, id, body="{}"):
        return self.attempt("fire", "POST", f"/v1/cues/{id}/fire", body)

    def head(self, method, path, length):
        key = f"Authorization: Bearer {self.key}\r\n" if self.key else ""
        return f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{key}Content-Length: {length}\r\n\r\n".encode()

    def open(self, data, receive_buffer=None):
        """Opens a connection, sends `data` and returns it; nothing is read. Returns `None` if it was closed before."""
        sent = socket.socket()
        try:
            if receive_buffer:
                sent.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
            sent.settimeout(20)
            sent.bind((self.address, 0))
            sent.connect(self.server)
            sent.sendall(data)
            return sent
        except OSError as error:
            self.tally.add(f"open {type(error).__name__}")
            sent.close()
            return None

    def open_many(self, times, data, **options):
        return [it for it in (self.open(data, **options) for _ in range(times)) if it]


def cue(name, schedule=NEVER, url=None, headers=None, payload="{}", **more):
    target = {"callback": {"url": url, "headers": headers or {}}} if url else {"transport": "worker"}
    fields = json.dumps({"name": name, "schedule": schedule, **target, **more}, ensure_ascii=False)
    return f'{fields[:-1]}, "payload": {payload}}}'


def text(length, character="x"):
    """A payload of at most `length` characters."""
    return json.dumps({"text": character * (length - 100)}, ensure_ascii=False)


def in_parallel(times, action):
    threads = [threading.Thread(target=action, daemon=True) for _ in range(times)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]


def still_open(sockets, answered=False):
    """Those that the server has not closed; with `answered=False`, of these those without an answer."""
    ended = select.POLLRDHUP | select.POLLHUP | select.POLLERR | (0 if answered else select.POLLIN)
    poll = select.poll()
    [poll.register(it, ended) for it in sockets]
    events = dict(poll.poll(0))
    return [it for it in sockets if it.fileno() not in events]


def close(sockets):
    [it.close() for it in sockets]


def answers(sockets, tally, name):
    """Counts the status of each answer, reading only its first bytes, and closes the connections."""
    for it in sockets:
        it.settimeout(0.1)
        try:
            status = it.recv(12)[9:].decode() or "closed"
        except OSError as error:
            status = "none" if isinstance(error, TimeoutError) else type(error).__name__
        tally.add(f"{name} {status}")
    close(sockets)


class HangingReceiver:
    """Accepts connections to any address of 127.0.0.0/8 and never reads or answers."""

    def __init__(self, tally):
        self.listener = socket.create_server(("0.0.0.0", 0), backlog=1024)
        self.port, self.tally = self.listener.getsockname()[1], tally
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        held = collections.deque()
        while True:
            held.append((time.monotonic(), self.listener.accept()[0]))
            self.tally.add("attempt that hangs")
            # The server has given these up.
            while held[0][0] < time.monotonic() - 60:
                held.popleft()[1].close()

    def url(self, caller, host):
        """One of the 250 hosts of a caller; those of other callers are others."""
        second, third = 100 + caller.number // 250, caller.number % 250
        return f"http://127.{second}.{third}.{host + 1}:{self.port}/"
