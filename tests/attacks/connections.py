"""Attacks with connections and unfinished requests (contract §11.1, §11.2)."""

import struct
import time

from attack import attack
from caller import MIB, answers, close, still_open

HEAD = b"GET /status HTTP/1.1\r\nHost: 127.0.0.1\r\n"


def hold(caller, sockets, outcome, seconds, answered=False):
    """Keeps connections for some seconds and notes how many of them the server keeps."""
    time.sleep(1)
    caller.tally.add("opened", len(sockets))
    caller.tally.peak(outcome, len(still_open(sockets, answered)))
    yield seconds
    close(sockets)


@attack(addresses=2, expect={"body of GET 400": 100})
def bodies_of_free_routes(caller):
    """Announces bodies on a route without a rate window and sends none. Each is refused at once."""
    yield
    while True:
        sockets = caller.open_many(64, caller.head("GET", "/status", 2))
        yield 1
        answers(sockets, caller.tally, "body of GET")


@attack(addresses=5, expect={"opened": 5_000, "held": 100})
def idle_connections(caller):
    """Opens 1,000 connections per address; half of them send nothing, half are kept alive after a request."""
    yield
    while True:
        sockets = caller.open_many(500, b"") + caller.open_many(500, HEAD + b"\r\n")
        yield from hold(caller, sockets, "held", 8, answered=True)


@attack(addresses=5, expect={"opened": 5_000, "held": 50})
def unfinished_heads(caller):
    """Sends 15 KB of a head on 1,000 connections per address."""
    yield
    while True:
        sockets = caller.open_many(1_000, HEAD + b"X-A: " + b"a" * 15_500)
        yield from hold(caller, sockets, "held", 7)


@attack(accounts=4, expect={"opened": 60, "held": 1})
def unfinished_bodies(caller):
    """Sends all but one byte of 24 bodies of 2 MB."""
    yield
    while True:
        head = caller.head("POST", "/v1/cues", 2 * MIB)
        sockets = caller.open_many(24, head + b"[" * (2 * MIB - 1))
        yield from hold(caller, sockets, "held", 25)
        # Leaves the memory to the attacks with whole bodies for a while.
        yield 5


@attack(addresses=2, expect={"opened": 30, "held": 1})
def unfinished_echoes(caller):
    """Sends all but one byte of 24 echoes of 1 MB, without a key."""
    yield
    while True:
        head = caller.head("POST", f"/v1/echo/unfinished-{caller.number:08}", MIB)
        sockets = caller.open_many(24, head + b"[" * (MIB - 1))
        yield from hold(caller, sockets, "held", 25)


@attack(accounts=2, expect={"held": 15, "poll 429": 5})
def long_polls(caller):
    """Waits with 25 requests for work that never comes, and gives up half-way."""
    yield
    while True:
        sockets = caller.open_many(25, caller.head("GET", "/v1/executions/claimable?wait=30", 0))
        time.sleep(1)
        caller.tally.peak("held", len(still_open(sockets)))
        yield 13
        answers(sockets, caller.tally, "poll")


def frame(kind, flags, stream, content):
    return struct.pack(">I", len(content))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + content


def field(name, value):
    """A header field as a literal without indexing, as in RFC 7541."""

    def string(content):
        if len(content) < 127:
            return bytes([len(content)]) + content
        rest, out = len(content) - 127, b"\x7f"
        while rest >= 128:
            out, rest = out + bytes([rest % 128 | 128]), rest // 128
        return out + bytes([rest]) + content

    return b"\x00" + string(name) + string(value)


SETTINGS, HEADERS = 4, 1
END_STREAM, END_HEADERS = 1, 4
# The client's window of each stream is 0, so that no response can be sent.
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 0))
FIELDS = [(b":method", b"GET"), (b":scheme", b"http"), (b":authority", b"127.0.0.1"), (b":path", b"/status")]
REQUEST = b"".join(field(*it) for it in FIELDS)
FLOOD = b"".join(frame(HEADERS, END_STREAM | END_HEADERS, 2 * it + 1, REQUEST) for it in range(128))
UNFINISHED = frame(HEADERS, 0, 1, REQUEST + field(b"x-a", b"a" * 15_000))


@attack(addresses=2, expect={"opened": 500, "held": 5})
def h2_floods(caller):
    """Opens 400 HTTP/2 connections, most with 128 requests whose responses it does not take, some with a large
    unfinished head."""
    yield
    while True:
        sockets = caller.open_many(300, PREFACE + FLOOD) + caller.open_many(100, PREFACE + UNFINISHED)
        yield from hold(caller, sockets, "held", 15, answered=True)
