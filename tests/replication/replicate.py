"""Replicate a server under load with Litestream, kill both, restore the replica, and look for what is missing.

    tests/replication/replicate.py CUED LITESTREAM

1. Load without a replica, then beside Litestream: writes go on, none fails, and the write-ahead log stays bounded.
2. SIGKILL for both, and the database is removed.
3. `litestream restore`, `cued check`.
4. `cued restore --replace` and `cued serve`; and `cued serve --held` on the restored file itself: both hold, nothing that
   was due is delivered, and everything acknowledged more than LAG before the kill is there.
5. `cued promote`: what fell due is delivered once.
"""

import datetime
import os
import shutil
import sys
import tempfile
import time

from load import Caller, Load, summary
from processes import PATIENCE, Litestream, Receiver, Server, run

ALONE_S = 3
REPLICATED_S = 10
# Litestream copies the log every second. What is older than this is in the replica, also on a busy machine.
LAG_S = 5
# Litestream itself empties the log at 121,359 pages of 1 KiB; then one batch of writes more.
MAX_LOG_BYTES = 160 << 20
# The busy time-out of the server, after which a write fails with 503, is 5 s.
MAX_WAIT_S = 5


def until(what, ask):
    deadline = time.monotonic() + PATIENCE
    while not (answer := ask()):
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {PATIENCE} s in vain: {what}")
        time.sleep(0.05)
    return answer


def size(path):
    return os.stat(path).st_size if os.path.exists(path) else 0


def measure(load, db, seconds):
    """The largest write-ahead log in this time, and the waits of the callers."""
    begin, largest = time.monotonic(), 0
    while time.monotonic() < begin + seconds and not load.error:
        largest = max(largest, size(f"{db}-wal"))
        time.sleep(0.05)
    return largest, [wait for wait in load.waits if wait[0] >= begin]


def register(server):
    answer = Caller(server.url).call("POST", "/v1/auth/register", {"email": "ann@example.com"})
    return Caller(server.url, answer["api_key"]), answer["api_key"]


def hook(caller, url, at):
    """A cue that calls the receiver once."""
    at = at.strftime("%Y-%m-%dT%H:%M:%SZ")
    body = {"name": f"once {at}", "schedule": {"type": "once", "at": at}, "callback": {"url": url}}
    return caller.call("POST", "/v1/cues", body)["id"]


def replicated_until_killed(cued, litestream, folder, receiver):
    """Steps 1 and 2: the key, what was acknowledged, the time of the kill, and what was due after it."""
    db = os.path.join(folder, "data", "cued.db")
    with Server(cued, db) as server:
        caller, key = register(server)
        load = Load(server.url, key)
        log, waits = measure(load, db, ALONE_S)
        print(f"alone:       {summary(waits, ALONE_S)}; log {log >> 20} MiB")
        with Litestream(litestream, db, os.path.join(folder, "replica"), os.path.join(folder, "litestream.log")) as tool:
            now = datetime.datetime.now(datetime.timezone.utc)
            hook(caller, receiver.url, now + datetime.timedelta(seconds=2))
            # They fall due after the kill.
            offsets = [REPLICATED_S + 6, REPLICATED_S + 7, REPLICATED_S + 8]
            due = [hook(caller, receiver.url, now + datetime.timedelta(seconds=offset)) for offset in offsets]
            log, waits = measure(load, db, REPLICATED_S)
            print(f"replicated:  {summary(waits, REPLICATED_S)}; log {log >> 20} MiB")
            if load.error:
                raise load.error
            longest = max(wait for _, wait in waits)
            assert log <= MAX_LOG_BYTES, f"the write-ahead log grew to {log} bytes"
            assert longest < MAX_WAIT_S, f"a write waited {longest} s"
            assert len(receiver.executions) == 1, "the first delivery arrived while all was well"
            load.expect_end()
            killed = time.monotonic()
            server.kill()
            tool.kill()
    load.stop()
    shutil.rmtree(os.path.dirname(db))
    return key, load, killed, due


def missing(server, key, load, killed):
    """How long before the kill the earliest write was acknowledged that the restored file has not; 0 if it has all."""
    caller, ages = Caller(server.url, key), [0.0]
    for cue, at in load.cues.items():
        if caller.answer("GET", f"/v1/cues/{cue}")[0] != 200:
            ages.append(killed - at)
    for execution, at in load.outcomes.items():
        status, found = caller.answer("GET", f"/v1/executions/{execution}")
        if status != 200 or found["status"] != "success":
            ages.append(killed - at)
    print(f"restored:    {len(load.cues)} cues and {len(load.outcomes)} outcomes were acknowledged; {len(ages) - 1} are "
          f"missing, the oldest acknowledged {max(ages):.1f} s before the kill")
    return max(ages)


def assert_held(cued, server, key, receiver, due):
    """The server holds: it says so, and does not deliver what is due since the kill."""
    caller = Caller(server.url, key)
    health = caller.call("GET", "/health")
    assert health["services"]["poller"] == "held" and health["status"] == "degraded", health
    listen = server.url.removeprefix("http://")
    said = run(cued, "health", "--local", "--listen", listen, code=1)
    assert "held" in said and "cued promote" in said, said
    last = lambda: caller.call("GET", f"/v1/cues/{due[-1]}")["next_run"]  # noqa: E731
    due_at = datetime.datetime.fromisoformat(last())
    until("the last cue is due", lambda: datetime.datetime.now(datetime.timezone.utc) > due_at)
    # Time for what must not happen: a scheduler that is not held fires within milliseconds.
    time.sleep(1)
    assert len(receiver.executions) == 1, f"a held server delivered: {receiver.executions}"
    assert caller.answer("POST", "/v1/executions/claim", {"worker_id": "w"})[0] == 503, "a claim on a held server"


def restored(litestream, folder):
    """Step 3: the restored file."""
    db = os.path.join(folder, "restored", "cued.db")
    os.makedirs(os.path.dirname(db))
    begin = time.monotonic()
    run(litestream, "restore", "-o", db, f"file://{os.path.join(folder, 'replica')}")
    print(f"litestream restore: {size(db) / 1e6:.1f} MB in {time.monotonic() - begin:.1f} s")
    return db


def main(cued, litestream):
    receiver = Receiver()
    with tempfile.TemporaryDirectory(prefix="cued-replication-") as folder:
        os.makedirs(os.path.join(folder, "data"))
        key, load, killed, due = replicated_until_killed(cued, litestream, folder, receiver)
        db = restored(litestream, folder)
        assert "result      ok" in run(cued, "check", db)

        other = os.path.join(folder, "other", "cued.db")
        os.makedirs(os.path.dirname(other))
        run(cued, "user", "add", "old@example.com", "--db", other)
        begin = time.monotonic()
        said = run(cued, "restore", db, "--replace", "--db", other)
        print(f"cued restore: {time.monotonic() - begin:.1f} s")
        assert "cued.db.replaced" in said, said
        with Server(cued, other) as server:
            assert_held(cued, server, key, receiver, due)
            assert server.terminate() == 0

        with Server(cued, db, "--held") as server:
            assert_held(cued, server, key, receiver, due)
            lag = missing(server, key, load, killed)
            assert lag < LAG_S, f"a write acknowledged {lag:.1f} s before the kill is missing"
            run(cued, "promote", "--db", db)
            until("what fell due is delivered", lambda: len(receiver.executions) >= 1 + len(due))
            # Time for what must not happen: a second delivery.
            time.sleep(1)
            assert len(set(receiver.executions)) == len(receiver.executions) == 1 + len(due), receiver.executions
            assert server.terminate() == 0
        assert "result      ok" in run(cued, "check", db)
    print("nothing older than the lag is missing, nothing fired before it was released, nothing was sent twice")


if __name__ == "__main__":
    main(*sys.argv[1:])
