"""Verifies real deliveries with the published packages: `deliveries.py PATH-TO-CUED raw|reserialised`.

Each payload is stored by a create, delivered, and checked three ways: the SDK's `verify_webhook`, the Standard
Webhooks library, and that it says what was sent. `raw` checks the bytes as they came; `reserialised` checks what a
receiver has that parsed the JSON and writes it again with `json.dumps(sort_keys=True)`.
"""

import json
import math
import sys

from cueapi import CueAPI, verify_webhook
from server import Cued, Recorder
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

# As JSON text, because what Python would write need not be what a client of another language sends.
PAYLOADS = {
    "empty": "{}",
    "plain": '{"task": "greet", "count": 3, "ok": true, "none": null}',
    "unsorted and nested": '{"z": {"b": [1, {"y": 2, "x": 1}], "a": {}}, "a": [], "m": [[], [[]], {}]}',
    "keys that sort by code point": '{"é": 1, "z": 2, "Z": 3, "": 4, "a.b": 5, "ab": 6, "😀": 7, "｡": 8, "10": 9, "9": 10}',
    "latin and east asian": '{"text": "Grüße, 世界, ελληνικά, עברית"}',
    "astral planes": '{"😀": "𝄞 and 👩‍👩‍👧‍👦 and \\ud83d\\ude80"}',
    "escapes": r'{"s": "quote \" backslash \\ slash \/ tab \t newline \n return \r feed \f back \b nul \u0000 esc \u001b del \u007f"}',
    "separators of lines": r'{"s": "\u2028 \u2029 \u0085 \ufeff \ufffe \uffff"}',
    "html": '{"s": "<script>alert(1)&amp;</script> \' "}',
    "thirty digits": '{"n": 123456789012345678901234567890, "m": -999999999999999999999999999999}',
    "around 2^53": '{"a": 9007199254740991, "b": 9007199254740992, "c": 9007199254740993, "d": -9007199254740993}',
    "around 2^63 and 2^64": '{"a": 9223372036854775807, "b": 9223372036854775808, "c": 18446744073709551615, "d": 18446744073709551616}',
    "zeros": '{"a": 0, "b": -0, "c": 0.0, "d": -0.0, "e": 0e10, "f": 0.000}',
    "where Python begins exponents": '{"a": 1e15, "b": 1e16, "c": 1e17, "d": 1e-4, "e": 1e-5, "f": 1e-7, "g": 123456789012345680.0}',
    "forms of one": '{"a": 1, "b": 1.0, "c": 1e0, "d": 1E+0, "e": 10e-1, "f": 1.000000}',
    "small and large floats": '{"a": 5e-324, "b": 2.2250738585072014e-308, "c": 1.7976931348623157e308, "d": 1e22, "e": 1e23, "f": 1e-400}',
    "shortest forms": '{"a": 0.1, "b": 0.30000000000000004, "c": 1.1, "d": 3.141592653589793, "e": 9007199254740993.0, "f": 2.5, "g": 4.35}',
    "long decimals": '{"a": 0.1000000000000000055511151231257827, "b": 123456789.123456789123456789}',
    "deep": '{"d": ' + "[" * 60 + "]" * 60 + "}",
    "wide": json.dumps({f"key {n}": [n, str(n), n / 7] for n in range(2_000)}),
    "large": json.dumps({"s": "ü" * 150_000}),
    "repeated name": '{"a": 1, "b": 2, "a": 3}',
}


class Checks:
    def __init__(self):
        self.passed = self.failed = 0

    def that(self, truth, what):
        if truth:
            self.passed += 1
        else:
            self.failed += 1
            print(f"FAILED: {what}", flush=True)


def same(left, right):
    """Equality that distinguishes 1 from 1.0 from True and 0.0 from -0.0."""
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(left[name], right[name]) for name in left)
    if isinstance(left, list):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, float):
        return left == right and math.copysign(1, left) == math.copysign(1, right)
    return left == right


def standard_accepts(secret, body, headers):
    try:
        Webhook(secret).verify(body, headers)
    except WebhookVerificationError:
        return False
    return True


def sdk_accepts(secret, body, headers):
    signature, timestamp = headers["x-cueapi-signature"], headers["x-cueapi-timestamp"]
    return verify_webhook(body, signature, secret, timestamp)


def verify(checks, name, sent, delivery, secret, mode):
    body, headers = delivery.body, delivery.headers
    if mode == "reserialised":
        body = json.dumps(json.loads(body), sort_keys=True).encode()
    checks.that(sdk_accepts(secret, body, headers), f"{name}: the SDK accepts it")
    checks.that(sdk_accepts(secret, json.loads(body), headers), f"{name}: the SDK accepts it parsed")
    checks.that(standard_accepts(secret, body, headers), f"{name}: Standard Webhooks accepts it")
    checks.that(same(json.loads(delivery.body), json.loads(sent)), f"{name}: what came says what was sent")
    changed = json.dumps({**json.loads(body), "added": 1}, sort_keys=True).encode()
    checks.that(not sdk_accepts(secret, changed, headers), f"{name}: the SDK rejects it changed")
    checks.that(not standard_accepts(secret, changed, headers), f"{name}: Standard Webhooks rejects it changed")


def deliver(server, key, receiver, payload):
    """Stores the payload text as it is in a cue and runs it: what was delivered."""
    head = {
        "name": "delivery",
        "schedule": {"type": "recurring", "cron": "0 0 1 1 *"},
        "callback": {"url": receiver.url},
    }
    body = json.dumps(head)[:-1] + f', "payload": {payload}}}'
    cue = server.call("POST", "/v1/cues", body, key)
    server.call("POST", f"/v1/cues/{cue['id']}/fire", {}, key)
    return cue, receiver.next()


def main():
    program, mode = sys.argv[1:]
    checks, receiver = Checks(), Recorder()
    with Cued(program) as server:
        key = server.call("POST", "/v1/auth/register", {"email": "someone@example.com"})["api_key"]
        secret = server.call("GET", "/v1/auth/webhook-secret", key=key)["webhook_secret"]
        client = CueAPI(key, base_url=server.url)
        for name, payload in PAYLOADS.items():
            cue, delivery = deliver(server, key, receiver, payload)
            verify(checks, name, payload, delivery, secret, mode)
            checks.that(same(cue["payload"], json.loads(payload)), f"{name}: the cue shows what was sent")
            seen = client.cues.get(cue["id"])
            checks.that(seen.id == delivery.headers["x-cueapi-cue-id"], f"{name}: the SDK reads the cue")
        rotate(checks, server, key, receiver, secret)
    # The form that every runner of tests is read by.
    print(f"{checks.passed} passed, {checks.failed} failed")
    sys.exit(1 if checks.failed else 0)


def rotate(checks, server, key, receiver, old):
    """For a day after a rotation Standard Webhooks accepts either secret."""
    new = server.call("POST", "/v1/auth/webhook-secret/regenerate", key=key)["webhook_secret"]
    _, delivery = deliver(server, key, receiver, '{"after": "rotation"}')
    checks.that(new != old, "a rotation makes a new secret")
    checks.that(sdk_accepts(new, delivery.body, delivery.headers), "rotated: the SDK accepts the new secret")
    for secret, which in ((new, "new"), (old, "old")):
        accepted = standard_accepts(secret, delivery.body, delivery.headers)
        checks.that(accepted, f"rotated: Standard Webhooks accepts the {which} secret")


if __name__ == "__main__":
    main()
