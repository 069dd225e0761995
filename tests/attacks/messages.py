"""Attacks with whole requests that cost memory, processor time or the writer (contract §11.1, §11.3, §11.5)."""

from attack import attack
from caller import MIB, SMALL_OBJECTS, answers, in_parallel, text

TREES = f'{{"items": {SMALL_OBJECTS}}}'


def listable(caller):
    """Prepares a list of claimable executions whose payloads reach the 4 MiB of a response."""
    id = caller.create("listed", payload=TREES)
    for _ in range(8):
        caller.must("POST", f"/v1/cues/{id}/fire", "{}")


@attack(accounts=2, expect={"claimable 200": 5})
def claimable_trees(caller):
    """Asks for executions with payloads of many small objects."""
    listable(caller)
    yield
    while True:
        caller.attempt("claimable", "GET", "/v1/executions/claimable")
        yield 1


@attack(accounts=3, expect={"patch 200": 10})
def patch_bursts(caller):
    """Changes the name of a cue with a large payload, 50 times at once."""
    id = caller.create("patched", payload=TREES)
    yield
    while True:
        in_parallel(50, lambda: caller.attempt("patch", "PATCH", f"/v1/cues/{id}", '{"name": "x"}'))
        yield 60


@attack(addresses=3, expect={"register 422": 40, "large 413": 3})
def registrations(caller):
    """Sends bodies of small objects to a route without a key: as large as it takes, and larger."""
    body = '{"email": %s}' % ("[" + ",".join(['{"":0}'] * 9_000) + "]")
    yield
    while True:
        in_parallel(25, lambda: caller.attempt("register", "POST", "/v1/auth/register", body))
        caller.attempt("large", "POST", "/v1/auth/register", SMALL_OBJECTS)
        yield 15


@attack(accounts=4, expect={"reply": 4})
def unread_payloads(caller):
    """Asks for ten responses of 4 MiB of payloads at a time and reads nothing."""
    listable(caller)
    yield
    while True:
        request = caller.head("GET", "/v1/executions/claimable", 0)
        sockets = caller.open_many(10, request, receive_buffer=4_096)
        # The server cuts them off after 10 s.
        yield 12
        answers(sockets, caller.tally, "reply")


@attack(accounts=2, expect={"reply": 4})
def unread_lists(caller):
    """Asks for ten lists of 4 MiB of callback headers and reads nothing."""
    headers = {f"H{number}": "x" * 4_096 for number in range(32)}
    fields = {"url": "http://127.0.0.1:1/", "headers": headers, "description": "😀" * 9_999}
    for number in range(24):
        id = caller.create("long", **fields)
        # Ten may be active.
        if number < 14:
            caller.must("PATCH", f"/v1/cues/{id}", '{"status": "paused"}')
    yield
    while True:
        sockets = caller.open_many(10, caller.head("GET", "/v1/cues?limit=100", 0), receive_buffer=4_096)
        # The server cuts them off after 10 s.
        yield 12
        answers(sockets, caller.tally, "reply")


@attack(addresses=4, expect={"echo 200": 15})
def echo_floods(caller):
    """Posts echoes of 1 MB, each with a token of its own."""
    yield
    number = 0
    while True:
        number += 1
        caller.attempt("echo", "POST", f"/v1/echo/flood-{caller.number:08}-{number:08}", text(MIB))
        yield 1


@attack(addresses=2, expect={"event 404 not_found": 10})
def billing_events(caller):
    """Posts events of 512 KB for a payment provider that is not set up."""
    yield
    while True:
        caller.attempt("event", "POST", "/v1/billing/webhook", SMALL_OBJECTS[: 512 * 1024])
        yield 1


@attack(accounts=8, expect={"pending 200": 30})
def pending_beside_a_queue(caller):
    """Lists pending executions beside those of other accounts. A queue of 300,000 takes hours at 60 requests a minute
    and is part of the Rust tests; here 400 wait."""
    id = caller.create("queue")
    for _ in range(48):
        caller.must("POST", f"/v1/cues/{id}/fire", "{}")
    yield
    while True:
        caller.attempt("pending", "GET", "/v1/executions?status=pending&limit=1")
        yield 5
