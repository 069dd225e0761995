"""Attacks with receivers that never answer (contract §11.4)."""

import json
import random

from attack import attack
from caller import MIB, text

# Ten attempts, each as soon as possible after the one before.
AGAIN_AND_AGAIN = {"max_attempts": 10, "backoff_minutes": [0.01]}


def hanging_cues(caller, receiver, count, payload="{}"):
    return [
        caller.create(f"hang {host}", url=receiver.url(caller, host), payload=payload, retry=AGAIN_AND_AGAIN)
        for host in range(count)
    ]


def fire_often(caller, ids, pause):
    [caller.fire(id) for id in ids]
    while True:
        caller.fire(random.choice(ids))
        yield pause


@attack(accounts=7, receiver=True, expect={"fire 200": 25, "attempt that hangs": 3})
def free_accounts_hang(caller, receiver):
    """Delivers to ten hosts per free account."""
    ids = hanging_cues(caller, receiver, 10)
    yield
    yield from fire_often(caller, ids, 2)


@attack(accounts=4, plan="pro", receiver=True, expect={"fire 200": 200, "attempt that hangs": 3})
def pro_accounts_hang(caller, receiver):
    """Delivers to 90 hosts per pro account."""
    ids = hanging_cues(caller, receiver, 90)
    yield
    yield from fire_often(caller, ids, 1)


@attack(accounts=4, receiver=True, expect={"fire 200": 25, "attempt that hangs": 3})
def large_deliveries_hang(caller, receiver):
    """Delivers 3 MB to ten hosts per account: 1 MiB of letters beyond ASCII takes three times as much when it is
    escaped."""
    ids = hanging_cues(caller, receiver, 10, text(MIB // 2, "é"))
    yield
    yield from fire_often(caller, ids, 3)


@attack(accounts=4, receiver=True, expect={"fire 200": 30, "attempt that hangs": 3})
def notifications_hang(caller, receiver):
    """Lets cues fail whose failure notifications and alerts go to receivers that never answer."""
    caller.must("PATCH", "/v1/auth/me", json.dumps({"alert_webhook_url": receiver.url(caller, 100)}))
    ids = [
        caller.create(
            "fails",
            # Nothing listens there: the only attempt fails at once.
            url="http://127.0.0.1:1/",
            retry={"max_attempts": 1},
            on_failure={"email": True, "webhook": receiver.url(caller, host)},
        )
        for host in range(10)
    ]
    yield
    yield from fire_often(caller, ids, 2)
