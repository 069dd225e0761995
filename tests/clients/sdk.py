"""Every method of the published SDK, unmodified, against the built program: sdk.py PATH-TO-CUED"""

import inspect
import json
import socket
import sys
import time
from datetime import datetime, timedelta, timezone

import cueapi
from cueapi import exceptions
from pydantic import ValidationError
from rows import Rows, parameters_of, place, same
from server import Cued, Recorder, until

rows = Rows("cueapi-sdk")
RESOURCES = ("cues", "executions")
NEVER = "0 0 1 1 *"
PAYLOAD = {"text": "grüße 😀", "number": 1.5, "list": [1, None, {}]}


class Watched:
    """A resource of the real client that notes which parameters its methods are given."""

    def __init__(self, name, resource):
        self._name, self._resource = name, resource

    def __getattr__(self, method):
        return watched(f"{self._name}.{method}", getattr(self._resource, method))


def watched(name, function):
    def call(*positional, **named):
        rows.give(name, inspect.signature(function).bind(*positional, **named).arguments)
        return function(*positional, **named)

    return call


class World:
    def __init__(self, server):
        self.server = server
        self.receiver = Recorder()
        self.key, self.email = server.account()
        self.secret = server.call("GET", "/v1/auth/webhook-secret", key=self.key)["webhook_secret"]
        client = watched("CueAPI", cueapi.CueAPI)(self.key, base_url=server.url + "/", timeout=60.0)
        same(client.cues.__class__.__name__, "CuesResource")
        self.cues, self.executions = (Watched(name, getattr(client, name)) for name in RESOURCES)

    def claimed(self, cue_id=None, **cue):
        """A worker's execution that is claimed."""
        if cue_id is None:
            cue_id = self.cues.create("work", cron=NEVER, transport="worker", **cue).id
        execution = self.server.fire(self.key, cue_id)
        claim = {"worker_id": "worker-1"}
        self.server.call("POST", f"/v1/executions/{execution}/claim", claim, self.key)
        return execution

    def delivered(self, **cue):
        """A cue that was delivered once, and the delivery."""
        cue = self.cues.create("hook", cron=NEVER, callback=self.receiver.url, **cue)
        self.server.fire(self.key, cue.id)
        self.server.settle()
        return cue, self.receiver.next()


def everything():
    """What there is in the SDK, with its parameters."""
    client = cueapi.CueAPI("cue_sk_")
    resources = {name for name, value in vars(client).items() if not name.startswith("_")}
    same(resources, set(RESOURCES))
    found = {"CueAPI": parameters_of(cueapi.CueAPI), "verify_webhook": parameters_of(cueapi.verify_webhook)}
    owners = {"CueAPI": cueapi.CueAPI, "CuePayload": cueapi.CuePayload}
    owners |= {name: type(getattr(client, name)) for name in RESOURCES}
    for owner, kind in owners.items():
        for name, function in inspect.getmembers(kind, callable):
            if not name.startswith("_"):
                given_elsewhere = owner in ("CueAPI", "CuePayload")
                found[f"{owner}.{name}"] = [] if given_elsewhere else parameters_of(function)
    exported = {name for name in cueapi.__all__ if not inspect.isclass(getattr(cueapi, name))}
    same(exported, {"verify_webhook"})
    for name, kind in inspect.getmembers(exceptions, inspect.isclass):
        if issubclass(kind, exceptions.CueAPIError):
            found[f"raises {name}"] = []
    return found


def refused(kind, status, code, call, *positional, **named):
    try:
        call(*positional, **named)
    except exceptions.CueAPIError as error:
        assert type(error) is kind, repr(error)
        same((error.status_code, error.code), (status, code))
        assert error.message and error.message != "Unknown error", repr(error)
        return error
    raise AssertionError("it was not refused")


@rows.covers("CueAPI", "CueAPI.close")
def opens_and_closes(world):
    with cueapi.CueAPI(world.key, base_url=world.server.url) as client:
        client.cues.list()
    assert client._http.is_closed
    client = cueapi.CueAPI(world.key, base_url=world.server.url)
    client.close()
    assert client._http.is_closed


@rows.covers("cues.create")
def create(world):
    hook, retry = world.receiver.url, {"max_attempts": 2, "backoff_minutes": [1, 7]}
    on_failure = {"email": False, "webhook": hook, "pause": True}
    cue = world.cues.create(
        "report", cron="30 9 * * 1-5", timezone="Europe/Berlin", callback=hook, callback_method="PUT",
        callback_headers={"X-Own": "1"}, transport="webhook", payload=PAYLOAD, description="Every morning",
        retry=retry, on_failure=on_failure,
    )
    same((cue.name, cue.status, cue.transport), ("report", "active", "webhook"))
    same((cue.description, cue.payload, cue.warning), ("Every morning", PAYLOAD, None))
    same((cue.schedule.type, cue.schedule.cron), ("recurring", "30 9 * * 1-5"))
    same((cue.schedule.timezone, cue.schedule.at), ("Europe/Berlin", None))
    same(cue.callback.model_dump(), {"url": hook, "method": "PUT", "headers": {"X-Own": "1"}})
    same((cue.retry.model_dump(), cue.on_failure.model_dump()), (retry, on_failure))
    same((cue.run_count, cue.fired_count, cue.last_run), (0, 0, None))
    assert cue.next_run > cue.created_at == cue.updated_at, cue
    world.cues.create("plain", cron="@daily", callback=hook)


@rows.shows("cues.create: once, at a text or a datetime, with and without a zone")
def create_once(world):
    nine = datetime(2031, 1, 31, 9, tzinfo=timezone.utc)
    for at, zone, expected in (
        (nine, "UTC", nine),
        ("2031-01-31T10:00:00+01:00", "UTC", nine),
        (nine.astimezone(timezone(timedelta(hours=-5))), "Europe/Berlin", nine),
        (datetime(2031, 1, 31, 9), "America/New_York", nine + timedelta(hours=5)),
    ):
        cue = world.cues.create("once", at=at, timezone=zone, callback=world.receiver.url)
        same((cue.schedule.type, cue.schedule.at, cue.next_run), ("once", expected, expected))


@rows.shows("cues.create: for workers")
def create_for_workers(world):
    cue = world.cues.create("work", cron=NEVER, transport="worker", payload={"task": "t"})
    same((cue.transport, cue.callback.url, cue.payload), ("worker", None, {"task": "t"}))


@rows.covers("cues.list")
def list_cues(world):
    key, _ = world.server.account()
    cues = Watched("cues", cueapi.CueAPI(key, base_url=world.server.url).cues)
    made = [cues.create(f"cue {n}", cron=NEVER, callback=world.receiver.url).id for n in range(3)]
    cues.pause(made[0])
    page = cues.list(limit=2, offset=2)
    same((page.total, page.limit, page.offset, [cue.id for cue in page.cues]), (3, 2, 2, made[:1]))
    same([cue.id for cue in cues.list(status="paused").cues], made[:1])
    same({cue.id for cue in cues.list().cues}, set(made))


@rows.covers("cues.get")
def get(world):
    cue, delivery = world.delivered(payload=PAYLOAD, description="d")
    seen = world.cues.get(cue.id)
    same((seen.id, seen.payload, seen.description), (cue.id, PAYLOAD, "d"))
    same((seen.run_count, seen.fired_count), (1, 1))
    assert seen.last_run >= cue.created_at, seen
    same(json.loads(delivery.body), PAYLOAD)


@rows.faulty(
    "cues.get: of a cue that was made without a payload",
    place("cueapi/models/cue.py", "payload: Dict[str, Any]"),
    "takes an object only, but `payload` is null when none was given (the command line's `create` gives none)",
)
def get_without_payload(world):
    cue = {"name": "bare", "schedule": {"type": "recurring", "cron": NEVER}, "transport": "worker"}
    made = world.server.call("POST", "/v1/cues", cue, world.key)
    same(made["payload"], None)
    try:
        world.cues.get(made["id"])
    except ValidationError as error:
        same([problem["loc"] for problem in error.errors()], [("payload",)])
        return
    raise AssertionError("it was read")


@rows.covers("cues.update")
def update(world):
    cue = world.cues.create("old", cron=NEVER, timezone="Asia/Tokyo", callback="https://hooks.example.com/a")
    hook = world.receiver.url
    retry, on_failure = {"max_attempts": 1, "backoff_minutes": [3]}, {"email": False, "webhook": None, "pause": True}
    seen = world.cues.update(
        cue.id, name="new", description="d", status="paused", cron="5 * * * *", timezone="Europe/Berlin",
        callback=hook, payload=PAYLOAD, retry=retry, on_failure=on_failure,
    )
    same((seen.name, seen.description, seen.status, seen.next_run), ("new", "d", "paused", None))
    same((seen.schedule.cron, seen.schedule.timezone), ("5 * * * *", "Europe/Berlin"))
    same((seen.callback.url, seen.callback.method, seen.payload), (hook, "POST", PAYLOAD))
    same((seen.retry.model_dump(), seen.on_failure.model_dump()), (retry, on_failure))
    at = datetime(2031, 5, 1, 12, tzinfo=timezone.utc)
    seen = world.cues.update(cue.id, at=at, status="active")
    same((seen.schedule.type, seen.schedule.at, seen.next_run), ("once", at, at))
    seen = world.cues.update(cue.id, at="2031-05-01T12:00:00", timezone="America/New_York")
    same(seen.next_run, at + timedelta(hours=4))
    same((seen.name, seen.payload), ("new", PAYLOAD))
    same(world.cues.get(cue.id), seen)


@rows.shows("cues.get, cues.update: a cue with policies that the client does not know keeps them")
def keeps_policies(world):
    policies = {
        "tags": ["nas"], "overlap": "skip", "max_age_seconds": 600, "outcome_deadline_seconds": 60,
        "schedule": {"type": "recurring", "every": "5m", "jitter_seconds": 30},
        "retry": {"max_attempts": 2, "backoff_seconds": [10]},
    }
    flow = {"key": "nas", "parallelism": 1, "per_minute": 10}
    callback = {"url": world.receiver.url, "timeout_seconds": 60, "flow": flow}
    body = {"name": "p", "callback": callback, "payload": PAYLOAD, **policies}
    before = world.server.call("POST", "/v1/cues", body, world.key)
    seen = world.cues.get(before["id"])
    same((seen.name, seen.schedule.type, seen.schedule.cron), ("p", "recurring", None))
    world.cues.update(seen.id, name="new", retry=seen.retry.model_dump(), callback=seen.callback.url)
    after = world.server.call("GET", f"/v1/cues/{seen.id}", key=world.key)
    for name in (*policies, "callback"):
        same((name, after[name]), (name, before[name]))


@rows.faulty(
    "cues.update: timezone alone",
    place("cueapi/resources/cues.py", "if cron is not None or at is not None:"),
    "sends a zone only together with cron or at, and drops it silently otherwise",
)
def update_zone(world):
    same(sent_by(world, lambda client: client.cues.update("cue_0123456789ab", timezone="Asia/Tokyo")), {})


@rows.covers("cues.delete")
def delete(world):
    cue = world.cues.create("short", cron=NEVER, callback=world.receiver.url)
    same(world.cues.delete(cue.id), None)
    refused(exceptions.CueNotFoundError, 404, "cue_not_found", world.cues.get, cue.id)


@rows.covers("cues.pause", "cues.resume")
def pause_and_resume(world):
    cue = world.cues.create("rest", cron=NEVER, callback=world.receiver.url)
    paused = world.cues.pause(cue.id)
    same((paused.status, paused.next_run), ("paused", None))
    resumed = world.cues.resume(cue.id)
    same((resumed.status, resumed.next_run), ("active", cue.next_run))


@rows.covers("executions.list")
def list_executions(world):
    cue, _ = world.delivered()
    work = world.cues.create("work", cron=NEVER, transport="worker")
    done = [world.claimed(work.id) for _ in range(3)]
    world.executions.report_outcome(done[0], success=True)
    ids = lambda **filters: [it["id"] for it in world.executions.list(**filters)["executions"]]
    newest = done[::-1]
    same(ids(cue_id=work.id), newest)
    same(ids(cue_id=work.id, limit=2, offset=1), newest[1:])
    same(ids(cue_id=work.id, status="success"), done[:1])
    same(ids(cue_id=work.id, outcome_state="reported_success"), done[:1])
    same(ids(cue_id=work.id, triggered_by="manual_fire"), newest)
    same(ids(cue_id=work.id, triggered_by="schedule"), [])
    page = world.executions.list(cue_id=cue.id)
    same((page["total"], page["limit"], page["offset"], page["has_more"]), (1, 20, 0, False))


@rows.covers("executions.get")
def get_execution(world):
    execution = world.claimed(payload={"task": "t"})
    seen = world.executions.get(execution)
    same((seen["id"], seen["status"], seen["attempts"]), (execution, "delivering", 1))
    same((seen["claimed_by_worker"], seen["triggered_by"]), ("worker-1", "manual_fire"))


@rows.covers("executions.heartbeat")
def heartbeat(world):
    execution = world.claimed()
    before = world.executions.get(execution)["lease_expires_at"]
    world.server.advance("PT1M")
    seen = world.executions.heartbeat(execution)
    same((seen["acknowledged"], seen["execution_id"]), (True, execution))
    assert seen["lease_extended_until"] > before, (seen, before)


@rows.covers("executions.report_outcome")
def report_outcome(world):
    evidence = {
        "external_id": "job-7", "result_url": "https://example.com/7", "result_type": "report",
        "summary": "all well", "artifacts": [{"name": "a.csv", "size": 3}, "b"],
    }
    execution = world.claimed()
    answer = world.executions.report_outcome(
        execution, success=True, result="42 rows", error=None, metadata={"rows": 42}, **evidence
    )
    same((answer["execution_id"], answer["outcome"]["success"]), (execution, True))
    same((answer["outcome"]["result"], answer["outcome"]["metadata"]), ("42 rows", {"rows": 42}))
    seen = world.executions.get(execution)
    same((seen["status"], seen["outcome_state"], seen["evidence"]), ("success", "reported_success", evidence))
    failed = world.claimed()
    world.executions.report_outcome(failed, success=False, error="no disk")
    seen = world.executions.get(failed)
    same((seen["status"], seen["outcome"]["error"]), ("failed", "no disk"))
    refused(
        exceptions.CueAPIError, 409, "outcome_already_reported", world.executions.report_outcome, failed, success=True
    )


@rows.covers("executions.handle")
def handle(world):
    good = world.claimed(payload={"n": 2})
    with world.executions.handle(good, payload={"n": 2}) as context:
        context.result = f"twice {context.payload['n']}"
        context.evidence = {"external_id": "x-1", "summary": "s"}
    seen = world.executions.get(good)
    same((seen["status"], seen["outcome"]["result"]), ("success", "twice 2"))
    same(seen["evidence"], {"external_id": "x-1", "summary": "s"})
    bad = world.claimed()
    try:
        with world.executions.handle(bad):
            raise ValueError("broken" * 1_000)
    except ValueError:
        pass
    seen = world.executions.get(bad)
    same((seen["status"], seen["outcome"]["error"]), ("failed", ("broken" * 1_000)[:2000]))


@rows.covers("executions.mark_verification_pending", "executions.mark_verified")
def verify(world):
    execution = world.claimed()
    world.executions.report_outcome(execution, success=True)
    world.executions.mark_verification_pending(execution)
    same(world.executions.get(execution)["outcome_state"], "verification_pending")
    world.executions.mark_verified(execution, valid=True, reason="looked at it")
    same(world.executions.get(execution)["outcome_state"], "verified_success")
    refused(exceptions.CueAPIError, 409, "invalid_state", world.executions.mark_verified, execution)


@rows.faulty(
    "executions.mark_verified: valid=False, reason",
    place("cueapi/resources/executions.py", '/verify", json={})'),
    "sends {} whatever it is given, which verifies the outcome",
)
def verify_false(world):
    call = lambda client: client.executions.mark_verified("id", valid=False, reason="wrong")
    same(sent_by(world, call), {})


@rows.shows("verification: an outcome is verified by the evidence that its cue requires")
def verified_by_evidence(world):
    for mode, evidence in (
        ("require_external_id", {"external_id": "x"}),
        ("require_result_url", {"result_url": "https://example.com/"}),
        ("require_artifacts", {"artifacts": ["a"]}),
    ):
        cue = world.cues.create("proof", cron=NEVER, transport="worker").id
        world.server.call("PATCH", f"/v1/cues/{cue}", {"verification": {"mode": mode}}, world.key)
        proven, bare = world.claimed(cue), world.claimed(cue)
        world.executions.report_outcome(proven, success=True, **evidence)
        world.executions.report_outcome(bare, success=True, result="trust me")
        states = [world.executions.get(execution)["outcome_state"] for execution in (proven, bare)]
        same((mode, states), (mode, ["verified_success", "verification_failed"]))


@rows.shows("on_failure: the webhook receives the last failure and the cue is paused")
def on_failure(world):
    alerts, broken = Recorder(), Recorder()
    broken.status = 500
    cue = world.cues.create(
        "fragile", cron=NEVER, callback=broken.url, retry={"max_attempts": 1, "backoff_minutes": [1]},
        on_failure={"email": False, "webhook": alerts.url, "pause": True},
    )
    execution = world.server.fire(world.key, cue.id)
    world.server.settle()
    same(world.executions.get(execution)["status"], "failed")
    sent = json.loads(alerts.next(patience=10).body)
    same((sent["event"], sent["cue_id"], sent["execution_id"]), ("cue.failed", cue.id, execution))
    same((sent["attempts"], sent["last_http_status"]), (1, 500))
    same(world.cues.get(cue.id).status, "paused")


@rows.covers(*(f"CuePayload.{name}" for name in "task kind instruction context_ref context_mode agent extra build".split()))
def payload_builder(world):
    built = cueapi.CuePayload().task("t").kind("k").instruction("do").context_ref("r").context_mode("full")
    built = built.agent("a").extra("more", [1]).build()
    cue = world.cues.create("built", cron=NEVER, transport="worker", payload=built)
    expected = {
        "task": "t", "kind": "k", "instruction": "do", "context_ref": "r", "context_mode": "full", "agent": "a",
        "more": [1],
    }
    same((built, cue.payload), (expected, expected))
    execution = world.server.fire(world.key, cue.id)
    found = world.server.call("GET", "/v1/executions/claimable?task=t&agent=a", key=world.key)["executions"]
    same([(it["id"], it["payload"]) for it in found], [(execution, expected)])


@rows.covers("verify_webhook")
def verifies_webhooks(world):
    _, delivery = world.delivered(payload=PAYLOAD)
    signature, timestamp = delivery.headers["x-cueapi-signature"], delivery.headers["x-cueapi-timestamp"]
    verify = watched("verify_webhook", cueapi.verify_webhook)
    for body in (delivery.body, delivery.body.decode(), json.loads(delivery.body), PAYLOAD):
        assert verify(payload=body, signature=signature, secret=world.secret, timestamp=timestamp, tolerance=600)
    assert not verify(delivery.body + b" 1", signature, world.secret, timestamp)
    assert not verify(delivery.body, signature, world.secret[:-1], timestamp)
    assert not verify(delivery.body, signature, world.secret, str(int(timestamp) + 1))
    old = str(int(time.time()) - 3_600)
    assert not verify(delivery.body, signature, world.secret, old)


@rows.covers("raises AuthenticationError")
def unknown_key(world):
    client = cueapi.CueAPI("cue_sk_" + "0" * 32, base_url=world.server.url)
    refused(exceptions.AuthenticationError, 401, "invalid_api_key", client.cues.list)


@rows.covers("raises CueNotFoundError")
def unknown_cue(world):
    for call in (world.cues.get, world.cues.pause, world.cues.delete):
        refused(exceptions.CueNotFoundError, 404, "cue_not_found", call, "cue_0123456789ab")


@rows.covers("raises InvalidScheduleError")
def bad_schedule(world):
    create, hook = world.cues.create, world.receiver.url
    kind = exceptions.InvalidScheduleError
    refused(kind, 400, "invalid_schedule", create, "bad", cron="60 * * * *", callback=hook)
    refused(kind, 400, "invalid_timezone", create, "bad", cron=NEVER, timezone="Mars/Base", callback=hook)
    error = refused(kind, 422, "validation_error", create, "", cron=NEVER, callback=hook)
    same(error.body["detail"][0]["loc"], ["body", "name"])


@rows.covers("raises CueAPIError")
def conflict(world):
    execution = world.claimed()
    world.executions.report_outcome(execution, success=True)
    refused(exceptions.CueAPIError, 409, "execution_not_claiming", world.executions.heartbeat, execution)


@rows.covers("raises CueLimitExceededError", "raises RateLimitError")
def limits(world):
    with Cued(world.server.program, base=("--dev",)) as server:
        client = cueapi.CueAPI(server.account()[0], base_url=server.url)
        create = lambda: client.cues.create("one more", cron=NEVER, callback=world.receiver.url)
        for _ in range(10):
            create()
        refused(exceptions.CueLimitExceededError, 403, "cue_limit_exceeded", create)
        for _ in range(60 - 11):
            client.cues.list(limit=1)
        error = refused(exceptions.RateLimitError, 429, "rate_limit_exceeded", client.cues.list)
        assert 1 <= error.retry_after <= 60, error.retry_after


@rows.covers("raises CueAPIServerError")
def server_error(world):
    """A server that holds as many unfinished bodies as it may asks for patience."""
    host, port = world.server.url.removeprefix("http://").split(":")
    head = f"POST /v1/cues HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {world.key}\r\nContent-Length: 2000000\r\n\r\n"
    create = lambda: world.cues.create("more", cron=NEVER, transport="worker", payload={"a": "x" * 2_000_000})
    held = []

    def is_busy():
        held.append(socket.create_connection((host, int(port)), timeout=5))
        try:
            held[-1].sendall(head.encode() + b" " * 1_900_000)
        except OSError:
            pass  # refused already
        # With room for all of it, it is refused as too large for a payload. The room changes from one call to the next.
        try:
            create()
        except exceptions.CueAPIServerError as error:
            same((error.status_code, error.code), (503, "server_busy"))
            return True
        except exceptions.InvalidScheduleError:
            return False
        raise AssertionError("it was created")

    try:
        until("the server is busy", is_busy)
    finally:
        for connection in held:
            connection.close()


def sent_by(world, call):
    """The JSON that a call sends, whatever it makes of the answer."""
    receiver = Recorder()
    try:
        call(cueapi.CueAPI(world.key, base_url=receiver.url))
    except (ValidationError, exceptions.CueAPIError):
        pass
    return json.loads(receiver.next().body)


def main():
    with Cued(sys.argv[1], "--test-clock") as server:
        sys.exit(rows.run(World(server), everything()))


if __name__ == "__main__":
    main()
