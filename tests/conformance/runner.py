"""Runs the promises of the API, which are data (`scenarios`), against a server.

A group has `values` for all its promises, and steps that come `first`. A step is a list: the request, its body if it has
one, what must come (`404 cue_not_found`, `422 missing body.name`), and an object with the rest:

- `send`, headers of the request, and `text`, a body as it is
- `headers`, `has` (a part of the JSON) and `body` (the text) of the response
- `keep`, names for parts and headers of the response: what was created stays until the end of the group
- `undo`, the path of what was created, unless the response has its id
- `until`, a part of the JSON: the request is repeated until it comes
- `unless`, a response after which the promise, or the group, is not checked, if no delivery has come

`each` of a promise has values of `{it}`, each with a round of the steps; of a list the items are `{a}`, `{b}` and `{c}`.
Instead of a request, `LISTEN` starts the receiver, `RECEIVE` is its next delivery, and `RECEIVED` the same one again.
What is under `always` holds for all responses, or those with the status `of`. A short run leaves out what is `long`.
"""

import re
import sys
import time
from email.utils import parsedate_to_datetime

from receiver import Receiver
from server import NO_RESPONSE, PATIENCE
from values import ABSENT, Miss, Values, as_text, at_path, difference, is_like

# Characters of each part of a difference.
MAX_SHOWN = 300

# Refusals that say how much the account holds, not what the server does.
LIMITS = ["cue_limit_exceeded", "execution_limit_exceeded", "key_limit_exceeded", "storage_limit_exceeded"]

# Refusals of one step for the rate, and the pause after one that names none.
MAX_REFUSALS, DEFAULT_RETRY_AFTER = 5, 60

# Requests in a row without a response after which the server counts as gone.
MAX_SILENCE = 3

# What the run creates with its name, and the field of the list that has it.
NAMED = {"/v1/cues": "cues", "/v1/auth/keys": "keys"}


class Differs(Miss):
    result = "differs"

    def __init__(self, request, expected, came):
        self.parts = {"request": request, "expected": expected, "came": came}


class Stop(Exception):
    """Nothing more can be checked."""


class Step:
    def __init__(self, line):
        self.request, *rest = line
        self.method, _, self.path = self.request.partition(" ")
        body = None if isinstance(rest[0], str) else rest.pop(0)
        self.expected, self.rest = rest[0], rest[1] if len(rest) > 1 else {}
        self.body = self.rest.get("text", body)


class Runner:
    def __init__(self, server, arguments, name):
        """`arguments` are those of the command line. All that the run creates has the name."""
        self.server, self.arguments, self.name = server, arguments, name
        self.values = Values(name=name, key=server.key)
        self.receiver = self.delivery = None
        # What every response must have, each with its miss.
        self.always = []
        # The paths of what the run has created, and how many requests may have created more.
        self.made, self.unknown = [], 0
        self.full, self.silence = None, 0
        self.requests, self.waited, self.promises = 0, 0, []

    def sign_in(self):
        """Errors: Stop if the key or the URL is wrong."""
        miss = self.miss([["GET /v1/auth/me", "200", {"has": {}}]])
        if miss:
            raise Stop(f"the server does not know the key, or is of another kind: {miss}")

    def run(self, groups):
        """Runs the groups with a promise that `is_wanted`. Errors: Stop; the promises so far are known then, too."""
        try:
            for group in groups:
                for it in group.get("always", []):
                    self.always.append([it, Miss(f"no response with {it.get('of', 'any status')} came")])
                if any(it["is_wanted"] for it in group["promises"]):
                    self.run_group(group)
                    # What fails is tried again after the next group.
                    self.delete(self.made)
        finally:
            for promise, miss in self.always:
                self.add("Every response", promise, miss)

    def add(self, group, promise, miss):
        if promise["is_wanted"]:
            result = {"result": miss.result, **miss.parts} if miss else {"result": "holds"}
            promise = {"section": promise["section"], "promise": promise["promise"]}
            self.promises.append({"group": group, **promise, **result})

    def run_group(self, group):
        """Later promises of a group need what earlier ones have done: all of them run, and those that are wanted count."""
        for name, value in group.get("values", {}).items():
            self.values.kept[name] = self.values.fill(value)
        first = self.miss(group.get("first", []))
        for promise in group["promises"]:
            self.add(group["group"], promise, first or self.miss(promise["steps"], promise.get("each")))
            if isinstance(first, Differs) and promise["is_wanted"]:
                first = Miss(f"{first.parts['request']} has failed")

    def miss(self, steps, each=None):
        """Runs the steps, with each value if there are some. Returns why they do not hold."""
        try:
            for value in each or [None]:
                if each:
                    value = self.values.fill(value)
                    self.values.kept.update(zip("abc", value) if isinstance(value, list) else (), it=value)
                for line in steps:
                    self.run_step(line)
        except Miss as miss:
            return miss

    def run_step(self, line):
        before, step, miss = len(self.made), Step(self.values.fill(line)), None
        try:
            if step.request == "LISTEN":
                self.listen(step)
            elif step.request in ("RECEIVE", "RECEIVED"):
                self.receive(step)
            else:
                # After a pause the step is filled again: an instant that was soon is past.
                self.accept(*self.at_rate(lambda: self.request(Step(self.values.fill(line)))))
        except Miss as error:
            miss = error
        if "keep" not in step.rest:
            self.delete(self.made[before:])
        if miss:
            raise miss

    def at_rate(self, exchange):
        """Repeats a request that is refused for the rate."""
        for refusals in range(MAX_REFUSALS + 1):
            step, response = exchange()
            if response.status != 429 or refusals == MAX_REFUSALS:
                return step, response
            asked = response.headers.get("retry-after", "")
            seconds = min(int(asked) if asked.isdecimal() else DEFAULT_RETRY_AFTER, 2 * DEFAULT_RETRY_AFTER)
            print(f"waiting {seconds} s for the rate limit", file=sys.stderr, flush=True)
            self.server.pause(seconds)
            self.waited += seconds
            self.values.now += seconds

    def request(self, step):
        """Sends a request, with `until` again and again, except for the rate."""
        until, spent, pause = step.rest.get("until", "{any}"), 0, 0.25
        while True:
            response = self.exchange(step)
            if "unless" in step.rest and not difference(step.rest["unless"], response.json):
                if self.receiver and self.receiver.has_delivery(patience=1):
                    raise self.differs(step, "the status that the receiver has sent", response)
                raise Miss(self.reason(response))
            if response.status == 429 or not difference(until, response.json):
                return step, response
            if spent >= PATIENCE:
                raise self.differs(step, f"within {PATIENCE} s {as_text(until)}", response)
            self.server.pause(pause)
            spent, pause = spent + pause, min(2 * pause, 2)

    def exchange(self, step):
        # Before the request: its response may be lost.
        self.note_made(step.rest.get("undo"))
        creates = step.method == "POST" and step.path in NAMED
        self.unknown += creates
        try:
            response = self.server.call(step.method, step.path, step.rest.get("send", {}), step.body)
        except NO_RESPONSE as error:
            self.silence += 1
            if self.silence >= MAX_SILENCE:
                raise Stop(f"the server does not respond: {error!r}") from error
            raise self.differs(step, step.expected, f"no response: {error!r}") from error
        self.silence, self.requests = 0, self.requests + 1
        made = at_path(response.json, "/id")
        if step.method == "POST" and response.status == 201 and isinstance(made, str):
            self.note_made(f"{step.path}/{made}")
            self.unknown -= creates
        elif response.status // 100 == 4:
            self.unknown -= creates
        if step.method == "DELETE" and response.status in (204, 404) and step.path in self.made:
            self.made.remove(step.path)
        try:
            self.values.now = parsedate_to_datetime(response.headers.get("date")).timestamp()
        except (TypeError, ValueError):
            self.values.now = time.time()
        for always in self.always:
            if not isinstance(always[1], Differs) and is_like(always[0].get("of", "{any}"), str(response.status)):
                always[1] = self.check_parts(step, always[0], response)
        return response

    def accept(self, step, response):
        """Keeps what later steps need, and checks a response."""
        # Before the check: other promises may hold if this one does not.
        missing = None
        for name, at in step.rest.get("keep", {}).items():
            value = at_path(response.json, at) if at[0] == "/" else response.headers.get(at, ABSENT)
            if value is ABSENT:
                missing = self.differs(step, f"a value at {at}", response)
            else:
                self.values.kept[name] = value
        miss = self.check(step, response) or missing
        if miss:
            raise miss

    def check(self, step, response):
        status, code, loc = (step.expected.split(" ") + [None, None])[:3]
        came = at_path(response.json, "/error/code")
        if came != code and came in LIMITS:
            self.full = self.reason(response)
            return Miss(self.full)
        has = {"error": {"code": code}} if code else "{any}"
        if loc:
            places = [int(part) if part.isdecimal() else part for part in loc.split(".")]
            has = {"detail": ["{has}", {"type": code, "loc": places}]}
        if str(response.status) != status or difference(has, response.json):
            return self.differs(step, step.expected, response)
        return self.check_parts(step, step.rest, response)

    def check_parts(self, step, rest, response):
        """Checks everything but the status and the code."""
        parts = [(it, response.headers.get(name, ABSENT), f"{name}:") for name, it in rest.get("headers", {}).items()]
        parts += [(rest.get("has", "{any}"), response.json, ""), (rest.get("body", "{any}"), response.text, "the body")]
        for at, expected, came in filter(None, (difference(*part) for part in parts)):
            return self.differs(step, f"{at} {expected}", came if at else response)

    def differs(self, step, expected, came):
        sent = [f"{name}: {as_text(value)}" for name, value in step.rest.get("send", {}).items()]
        body = [] if step.body is None else [as_text(step.body)]
        request = self.brief("  ".join([step.request, *sent, *body]), MAX_SHOWN // 2)
        return Differs(request, self.brief(expected), self.brief(came))

    def reason(self, response):
        """Why a group is not checked, by a response."""
        messages = [at_path(response.json, "/error_message"), at_path(response.json, "/error/message"), str(response)]
        return self.brief(next(it for it in messages if isinstance(it, str)))

    def brief(self, value, max_chars=MAX_SHOWN):
        """The beginning of a text in one line, without secrets. A key of another server has no form that tells it."""
        text = re.sub(r"(cue_sk_|whsec_)[^\W_]*", r"\1…", str(value).replace(self.server.key, "…"))
        text = " ".join("".join(char if char.isprintable() else " " for char in text).split())
        return text if len(text) <= max_chars else text[:max_chars - 1] + "…"

    def listen(self, step):
        if self.arguments.no_deliveries:
            raise Miss("--no-deliveries")
        host, _, port = self.arguments.receiver.rpartition(":")
        try:
            self.receiver = Receiver((host, int(port)), step.expected, self.values.fill("{secret}"))
        except (OSError, ValueError) as error:
            raise Stop(f"cannot listen on {self.arguments.receiver}: {error}") from error
        self.values.kept["receiver"] = (self.arguments.receiver_url or self.receiver.url).rstrip("/") + "/hook"

    def receive(self, step):
        if step.request == "RECEIVE":
            if not self.receiver.has_delivery(PATIENCE):
                raise self.differs(step, f"a delivery within {PATIENCE} s", "none")
            self.delivery = self.receiver.deliveries.pop(0)
        found = difference(step.rest["has"], self.delivery)
        if found:
            raise self.differs(step, f"{found[0]} {found[1]}", found[2])

    def note_made(self, path):
        if path and path not in self.made:
            self.made.append(path)

    def delete_all(self):
        """Deletes what the run has created, also what a lost response has named. Returns what could not be deleted."""
        left = []
        for path, field in NAMED.items() if self.unknown else ():
            listed = [f"GET {path}", "200", {"has": {field: ["{has}"]}, "keep": {"listed": f"/{field}"}}]
            miss = self.miss_of_last(listed)
            left += [f"{path} ({miss})"] if miss else []
            for it in [] if miss else self.values.kept["listed"]:
                if str(at_path(it, "/name")).startswith(self.name):
                    self.note_made(f"{path}/{at_path(it, '/id')}")
        return left + self.delete(self.made)

    def delete(self, paths):
        """Deletes the last one first. Returns what could not be deleted."""
        misses = {path: self.miss_of_last([f"DELETE {path}", "204", {"keep": {}}]) for path in paths[::-1]}
        return [f"{path} ({miss})" for path, miss in misses.items() if path in self.made]

    def miss_of_last(self, line):
        """Runs a step, also if the server has not responded before."""
        try:
            return self.miss([line])
        except Stop as error:
            return Miss(str(error))
