"""Attacks on the disk (contract §11.6).

Two bounds take longer than a run at 60 requests a minute and are left to the Rust tests: 1,000 workers of an account
(17 minutes), and claims that outlive their lease of 900 s.
"""

import json

from attack import attack
from caller import MIB, SMALL_OBJECTS, Caller, cue, text

STORAGE_FULL = "fire 403 storage_limit_exceeded"


@attack(accounts=3, expect={"fire 200": 10}, expect_after_75_s={STORAGE_FULL: 3})
def full_storage(caller):
    """Stores 1 MiB with each request, in cues and in executions, until the 64 MB are used. Most of it is stored in the
    set-up, because the rate window allows only 60 a minute."""
    ids = [caller.create("full", payload=text(MIB)) for _ in range(10)]
    run = json.dumps({"send_at": "2099-01-01T00:00:00Z", "merge_strategy": "replace"})
    run = f'{run[:-1]}, "payload_override": {text(MIB)}}}'
    for _ in range(45):
        caller.must("POST", f"/v1/cues/{ids[0]}/fire", run)
    yield
    while True:
        caller.fire(ids[0], run)
        yield 1


@attack(accounts=2, expect={"create 201": 15})
def kept_responses(caller):
    """Creates and deletes cues with an `Idempotency-Key`, whose responses are kept."""
    yield
    headers = {f"H{number}": "x" * 4_096 for number in range(32)}
    for number in range(10_000):
        body = cue("kept", url="http://127.0.0.1:1/", headers=headers)
        status, reply = caller.attempt("create", "POST", "/v1/cues", body, {"Idempotency-Key": f"{number}"})
        if status == 201:
            caller.attempt("delete", "DELETE", f"/v1/cues/{reply['id']}")
        yield 2


@attack(accounts=2, expect={"fire 200": 20})
def long_tasks(caller):
    """Fires a cue whose `task` and `agent` take a megabyte."""
    task = json.dumps({"task": "t" * (MIB // 2), "agent": "a" * (MIB // 2 - 100)})
    id = caller.create("task", payload=task)
    yield
    while True:
        caller.fire(id)
        yield 1


@attack(accounts=2, expect={"outcome 200": 2, "evidence 200": 2, "list 200": 2})
def overrides_and_results(caller):
    """Merges large payloads, reports the largest results and evidence, and lists them."""
    id = caller.create("results", payload='{"kept": "x"}')
    override = f'{{"payload_override": {{"items": {SMALL_OBJECTS}}}}}'
    evidence = {"artifacts": ["x" * 600] * 100, "summary": "é" * 30_000}
    outcome = {"success": True, "result": "é" * 30_000, "metadata": {"x": "y" * 10_000}, **evidence}
    outcome = json.dumps(outcome, ensure_ascii=False)
    evidence = json.dumps(evidence, ensure_ascii=False)
    yield
    while True:
        caller.fire(id, override)
        status, reply = caller.attempt("claim", "POST", "/v1/executions/claim", '{"worker_id": "w"}')
        if status == 200:
            execution = f"/v1/executions/{reply['execution_id']}"
            caller.attempt("outcome", "POST", execution + "/outcome", outcome)
            caller.attempt("evidence", "PATCH", execution + "/evidence", evidence)
            caller.attempt("list", "GET", "/v1/executions?limit=100")
        yield 5


@attack(accounts=1, expect={"key 201": 10}, expect_after_75_s={"key 409 key_limit_exceeded": 3})
def many_keys(caller):
    """Makes API keys, as many as there may be."""
    for _ in range(45):
        caller.must("POST", "/v1/auth/keys", '{"name": "k"}')
    yield
    while True:
        status, _ = caller.attempt("key", "POST", "/v1/auth/keys", '{"name": "k"}')
        yield 0.05 if status == 201 else 3


@attack(accounts=2, expect={"heartbeat 200": 20, "workers 200": 1})
def many_workers(caller):
    """Announces workers with as many handlers as there may be, and lists them."""
    handlers = json.dumps(["h" * 255] * 60)
    yield
    for number in range(10_000):
        body = f'{{"worker_id": "worker {number}", "handlers": {handlers}}}'
        caller.attempt("heartbeat", "POST", "/v1/worker/heartbeat", body)
        if number % 10 == 9:
            caller.attempt("workers", "GET", "/v1/workers")
        yield 0.5


@attack(accounts=2, expect={"fire 200": 8, "claim 200": 8})
def abandoned_claims(caller):
    """Claims executions and never reports them."""
    id = caller.create("abandoned", payload=text(MIB))
    yield
    while True:
        caller.fire(id)
        caller.attempt("claim", "POST", "/v1/executions/claim", '{"worker_id": "w"}')
        yield 2


@attack(
    addresses=3,
    expect={"register 201": 15, "register 429": 10, "create 201": 10, "create 403 storage_limit_exceeded": 10},
)
def unconfirmed_accounts(caller):
    """Registers accounts, as many as one address may, and stores in each what it may."""
    yield
    for number in range(10_000):
        email = json.dumps({"email": f"unconfirmed{caller.number}-{number}@example.com"})
        status, reply = caller.attempt("register", "POST", "/v1/auth/register", email)
        if status == 201:
            account = Caller(caller.server, caller.address, caller.tally, caller.number, reply["api_key"])
            for _ in range(2):
                account.attempt("create", "POST", "/v1/cues", cue("stored", payload=text(MIB * 3 // 4)))
        yield 2
