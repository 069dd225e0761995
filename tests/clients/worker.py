"""The published worker, unmodified, against the built program: its commands, and what its daemon does with work.

worker.py PATH-TO-CUED
"""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import yaml
from cueapi_worker.cli import main as program
from person import confirm_mail
from rows import Rows, commands_of, contains, options_of, same
from server import ALONE, Cued, until

rows = Rows("cueapi-worker")
WORKER = str(Path(sys.executable).with_name("cueapi-worker"))
COMMANDS = commands_of(program)
# The options that stand before the command.
EVERY = "(every command)"
NEVER = "0 0 1 1 *"
# The daemon's default for all handlers of one configuration, in seconds.
LONGEST = 4

HANDLERS = {}
PAYLOADS = {}
CHECKS = {}


class World:
    def __init__(self, program, server, folder):
        self.program, self.server, self.folder = program, server, folder
        self.key, self.email = server.account()
        for name, handler in HANDLERS.items():
            if isinstance(handler, dict) and "cwd" in handler:
                handler["cwd"] = str(folder)
        self.runs = {name: self.work(self.key, name, PAYLOADS[name]) for name in HANDLERS}
        self.daemon = self.start("worker-1", self.key, HANDLERS, "-v", handler_timeout=LONGEST, max_concurrent=8)

    def work(self, key, task, payload=None, server=None, **cue):
        """An execution for workers."""
        server = server or self.server
        schedule = {"type": "recurring", "cron": NEVER}
        payload = {"task": task, **(payload or {})}
        cue = {"name": f"cue of {task}", "transport": "worker", "schedule": schedule, "payload": payload, **cue}
        return server.fire(key, server.call("POST", "/v1/cues", cue, key)["id"])

    def result(self, name):
        """What became of the execution of one of HANDLERS."""
        return done(self.server, self.key, self.runs[name])

    def config(self, worker_id, key, handlers, server=None, **settings):
        """The file of a configuration; `key` may be None."""
        settings = {"poll_interval": 0.1, "heartbeat_interval": 0.2, **settings}
        server = server or self.server
        config = {"api_base": server.url, "worker_id": worker_id, "handlers": handlers, **settings}
        if key:
            config["api_key"] = key
        file = self.folder / f"{worker_id}.yaml"
        file.write_text(yaml.safe_dump(config, sort_keys=False))
        return file

    def start(self, worker_id, key, handlers, *options, **settings):
        file = self.config(worker_id, key, handlers, **settings)
        return Daemon(self, file, options)

    def environment(self, **more):
        kept = {name: os.environ[name] for name in ("NO_PROXY", "no_proxy") if name in os.environ}
        path = f"{self.folder / 'bin'}:{Path(WORKER).parent}:{os.environ['PATH']}"
        return {**kept, "HOME": str(self.folder), "PATH": path, "PYTHONUNBUFFERED": "1", **more}

    def begin(self, *arguments, **environment):
        note(arguments)
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        return subprocess.Popen([WORKER, *arguments], env=self.environment(**environment), text=True, **pipes)

    def run(self, *arguments, code=0, **environment):
        """A command that must end with `code`: all that it wrote."""
        return end(self.begin(*arguments, **environment), code)

    def accounts_key(self):
        return self.server.account()[0]


class Daemon:
    """`cueapi-worker start` in a process of its own."""

    def __init__(self, world, file, options):
        arguments = ["start", "-c", str(file), *options]
        note(arguments)
        self.file, self._log = file, file.with_suffix(".log")
        with self._log.open("w") as log:
            self.process = subprocess.Popen([WORKER, *arguments], env=world.environment(), stdout=log, stderr=log)

    def log(self):
        return self._log.read_text()

    def says(self, text):
        until(f"the daemon says {text!r}", lambda: text in self.log())

    def ended(self):
        return self.process.wait(timeout=60)

    def stop(self):
        self.process.terminate()
        return self.ended()

    def kill9(self):
        self.process.kill()
        self.process.wait()


def end(process, code=0):
    text, _ = process.communicate(timeout=90)
    assert process.returncode == code, f"exit {process.returncode}: {text}"
    return text


def done(server, key, execution):
    """An execution that has been reported on, once it is."""

    def look():
        seen = server.execution(key, execution)
        return seen if "outcome" in seen else None

    return until(f"{execution} is reported on", look)


def note(arguments):
    """Counts the options of a command line as given."""
    name = next((argument for argument in arguments if argument in COMMANDS), EVERY)
    rows.give(name, arguments)
    rows.give(EVERY, arguments)


def handled(name, handler, payload=None):
    """The test of what is reported of the execution that a handler ran for."""

    def add(check):
        HANDLERS[name], PAYLOADS[name], CHECKS[name] = handler, payload, check
        rows.shows(f"start: {name}")(lambda world: check(world, world.result(name)))
        return check

    return add


def writing(outcome, then=""):
    """A handler that writes this outcome file."""
    text = outcome if isinstance(outcome, str) else json.dumps(outcome)
    return {"cmd": f"""printf '%s' "$TEXT" >"$CUEAPI_OUTCOME_FILE"; echo "output"; {then}""", "env": {"TEXT": text}}


def succeeded(execution, result):
    same((execution["status"], execution["outcome_state"]), ("success", "reported_success"))
    same(execution["outcome"]["result"], result)


def failed(execution, error):
    same((execution["status"], execution["outcome_state"]), ("failed", "reported_failure"))
    same(execution["outcome"].get("error"), error)


@handled("a handler that ends with 0 succeeded, what it wrote is the result", "echo done; echo more >&2")
def exit_zero(_, execution):
    succeeded(execution, "done\n\n--- stderr ---\nmore\n")
    same((execution["attempts"], execution["claimed_by_worker"]), (1, "worker-1"))


@handled("a handler that writes nothing has a result too", {"cmd": "true"})
def silent(_, execution):
    succeeded(execution, "completed")


@handled("a handler that ends with another code failed, what it wrote is the error", "echo half; echo bad >&2; exit 3")
def exit_three(_, execution):
    failed(execution, "half\n\n--- stderr ---\nbad\n")


@handled("a handler that takes longer than its timeout is ended and failed", {"cmd": "sleep 60", "timeout": 1})
def times_out(_, execution):
    failed(execution, "Handler timeout exceeded (1s)")


@handled("a handler's timeout is at most the one for all handlers", {"cmd": "sleep 60", "timeout": 60})
def times_out_globally(_, execution):
    failed(execution, f"Handler timeout exceeded ({LONGEST}s)")


@handled("a handler that does not exist failed", "/no/such/handler")
def no_such_program(_, execution):
    same(execution["status"], "failed")
    contains(execution["outcome"]["error"], "not found")


@handled("4 KB of a handler's output are kept", "head -c 10000 /dev/zero | tr '\\0' x")
def long_output(_, execution):
    same(execution["status"], "success")
    same(len(execution["outcome"]["result"]), 4096)


@handled(
    "a handler knows its execution, cue, worker, payload, key and server",
    'echo "$CUEAPI_EXECUTION_ID|$CUEAPI_CUE_ID|$CUEAPI_CUE_NAME|$CUEAPI_WORKER_ID|$CUEAPI_API_KEY|$CUEAPI_BASE_URL|'
    '$CUEAPI_PAYLOAD"',
    {"text": "grüße", "n": 1.5},
)
def variables(world, execution):
    *known, payload = execution["outcome"]["result"].strip().split("|")
    name = world.server.call("GET", f"/v1/cues/{execution['cue_id']}", key=world.key)["name"]
    same(known, [execution["id"], execution["cue_id"], name, "worker-1", world.key, world.server.url])
    same({**json.loads(payload), "task": None}, {"task": None, "text": "grüße", "n": 1.5})


@handled(
    "a handler's command, variables and folder are its configuration's",
    {"cmd": "echo {{ payload.n }} $WHO; pwd", "env": {"WHO": "{{ payload.person.name }} {{ payload.no }}."}, "cwd": ""},
    {"n": 7, "person": {"name": "Ann"}},
)
def templates(world, execution):
    succeeded(execution, f"7 Ann .\n{world.folder.resolve()}\n")


EVIDENCE = {
    "external_id": "job-7", "result_url": "https://example.com/7", "result_ref": "r-7", "result_type": "report",
    "summary": "all well", "artifacts": [{"name": "a.csv"}],
}


@handled(
    "an outcome file gives result, evidence and metadata",
    writing({"success": True, "result": "42 rows", "metadata": {"rows": 42}, **EVIDENCE}),
)
def outcome_file(_, execution):
    succeeded(execution, "42 rows")
    same((execution["evidence"], execution["outcome"]["metadata"]), (EVIDENCE, {"rows": 42}))


@handled("an outcome file may be without success", writing({"summary": "fine"}))
def outcome_file_without_success(_, execution):
    succeeded(execution, "output\n")
    same(execution["evidence"], {"summary": "fine"})


@handled("an outcome file that says failure wins over exit code 0", writing({"success": False, "error": "no disk"}))
def file_says_failure(_, execution):
    failed(execution, "no disk")


@handled(
    "an exit code that says failure wins over the outcome file, whose evidence is kept",
    writing({"success": True, "result": "well", "external_id": "x"}, "exit 1"),
)
def code_says_failure(_, execution):
    failed(execution, "output\n")
    same(execution["evidence"], {"external_id": "x"})


@handled("an outcome file that is no JSON is reported in the metadata", writing('{"success": fal'))
def malformed_file(_, execution):
    succeeded(execution, "output\n")
    recorded = execution["outcome"]["metadata"]["_cueapi_worker"]["outcome_file_parse_error"]
    contains(recorded, "outcome_file_malformed_json")


@handled("an outcome file that is too large is reported in the metadata", 'head -c 11000 /dev/zero >"$CUEAPI_OUTCOME_FILE"')
def large_file(_, execution):
    succeeded(execution, "completed")
    recorded = execution["outcome"]["metadata"]["_cueapi_worker"]["outcome_file_parse_error"]
    contains(recorded, "outcome_file_too_large")


@handled(
    "fields of an outcome file that cannot be sent are dropped and named in the metadata",
    writing({"success": True, "external_id": 7, "result_url": "ftp://x", "other": 1, "summary": "s", "metadata": {"a": 1}}),
)
def dropped_fields(_, execution):
    metadata = execution["outcome"]["metadata"]
    dropped = metadata["_cueapi_worker"]["outcome_file_dropped_fields"]
    same((metadata["a"], sorted(dropped)), (1, ["external_id", "other", "result_url"]))
    same(execution["evidence"], {"summary": "s"})


@handled("an outcome file is removed", 'echo "$CUEAPI_OUTCOME_FILE"')
def file_is_removed(_, execution):
    path = Path(execution["outcome"]["result"].strip())
    assert path.parent.is_dir() and not path.exists(), path


@handled(
    "a handler makes a cue that follows with the key that it is given",
    f"""{sys.executable} -c '
import json, os, urllib.request
cue = {{"name": "follow-up", "transport": "worker", "schedule": {{"type": "once", "at": "2031-01-01T00:00:00Z"}}}}
head = {{"Authorization": "Bearer " + os.environ["CUEAPI_API_KEY"]}}
url = os.environ["CUEAPI_BASE_URL"] + "/v1/cues"
print(urllib.request.urlopen(urllib.request.Request(url, json.dumps(cue).encode(), head)).status)
'""",
)
def chain(_, execution):
    succeeded(execution, "201\n")


@rows.shows("start: work without a handler is left to others")
def not_mine(world):
    execution = world.work(world.key, "not-mine")
    world.daemon.says(f"No handler for task=not-mine, skipping execution={execution}")
    same(world.server.execution(world.key, execution)["status"], "pending")


@rows.shows("start: the daemon is listed with its handlers and is active")
def listed(world):
    (worker,) = world.server.call("GET", "/v1/workers", key=world.key)["workers"]
    same((worker["worker_id"], worker["heartbeat_status"]), ("worker-1", "active"))
    same(worker["handlers"], list(HANDLERS))


@rows.shows("start: evidence in an outcome file verifies the outcome of a cue that requires it")
def verified(world):
    key = world.accounts_key()
    mode = {"verification": {"mode": "require_external_id"}}
    proven, bare = (world.work(key, task, **mode) for task in ("proven", "bare"))
    daemon = world.start("verified", key, {"proven": writing({"external_id": "x"}), "bare": "true"})
    states = [done(world.server, key, execution)["outcome_state"] for execution in (proven, bare)]
    daemon.stop()
    same(states, ["verified_success", "verification_failed"])


@rows.shows("start: no more handlers run at a time than max_concurrent")
def bounded(world):
    key, journal = world.accounts_key(), world.folder / "journal"
    executions = [world.work(key, "slow") for _ in range(6)]
    handlers = {"slow": f"echo + >>{journal}; sleep 0.3; echo - >>{journal}"}
    daemon = world.start("bounded", key, handlers, max_concurrent=2)
    for execution in executions:
        same(done(world.server, key, execution)["status"], "success")
    daemon.stop()
    running = most = 0
    for sign in journal.read_text().split():
        running += 1 if sign == "+" else -1
        most = max(most, running)
    same((running, most), (0, 2))


@rows.shows("start: SIGTERM and SIGINT end the daemon after what it has begun was reported")
def graceful(world):
    for number in (signal.SIGTERM, signal.SIGINT):
        key, begun = world.accounts_key(), world.folder / f"begun-{number}"
        execution = world.work(key, "slow")
        daemon = world.start(f"graceful-{number}", key, {"slow": f"touch {begun}; sleep 1; echo done"})
        until("the handler has begun", begun.exists)
        daemon.process.send_signal(number)
        same(daemon.ended(), 0)
        succeeded(world.server.execution(key, execution), "done\n")


@rows.shows("start: a revoked key ends a daemon without an e-mail address")
def revoked(world):
    key = world.accounts_key()
    daemon = world.start("revoked", key, {"t": "true"})
    until("it is known", lambda: world.server.call("GET", "/v1/workers", key=key)["workers"])
    world.server.call("POST", "/v1/auth/key/regenerate", key=key)
    same(daemon.ended(), 1)
    contains(daemon.log(), "API key invalid and no email configured")


@rows.shows("start: a revoked key is replaced by mail where there is an e-mail address, and the daemon goes on")
def recovers(world):
    with Cued(world.program) as server:
        key, email = server.account()
        settings = {"server": server, "email": email}
        daemon = world.start("recovers", key, {"t": "echo $CUEAPI_API_KEY"}, **settings)
        until("it is known", lambda: server.call("GET", "/v1/workers", key=key)["workers"])
        own = server.call("POST", "/v1/auth/key/regenerate", key=key)["api_key"]
        execution = world.work(own, "t", server=server)
        confirm_mail(server, email)
        seen = done(server, own, execution)
        new = yaml.safe_load(daemon.file.read_text())["api_key"]
        same(daemon.stop(), 0)
        succeeded(seen, f"{new}\n")
        assert new not in (key, own), "a key of its own"


@rows.shows("start: a daemon that gets a 429 waits as long as it asks and goes on")
def told_to_wait(world):
    plans = world.folder / "plans.json"
    free = {"cues": 10, "executions": 300, "requests_per_minute": 20}
    plans.write_text(json.dumps({"free": free}))
    with Cued(world.program, "--plans", str(plans), "--test-clock", base=("--dev",)) as server:
        key, _ = server.account()
        execution = world.work(key, "t", server=server)
        for _ in range(18):
            server.call("GET", "/v1/usage", key=key)
        server.advance("PT58S")
        handled = world.folder / "waited"
        daemon = world.start("waits", key, {"t": f"touch {handled}"}, server=server, heartbeat_interval=30)
        daemon.says("Rate limited (get_claimable). Waiting 2s")
        server.advance("PT2S")
        until("the handler has run", handled.exists)
        daemon.says("Rate limited (get_claimable). Waiting 60s")
        daemon.kill9()
        server.advance("PT2M")
        same(server.execution(key, execution)["status"], "success")


@rows.shows("start: a daemon whose server was away goes on when it is back")
def server_away(world):
    with Cued(world.program) as server:
        key, _ = server.account()
        daemon = world.start("patient", key, {"t": "true"}, server=server)
        until("it is known", lambda: server.call("GET", "/v1/workers", key=key)["workers"])
        listen = server.url.removeprefix("http://")
        server.stop()
        daemon.says("Request error getting claimable")
        server.start(listen)
        succeeded(done(server, key, world.work(key, "t", server=server)), "completed")
        same(daemon.stop(), 0)


@rows.shows("start: two daemons handle 200 executions, each exactly once")
def exactly_once(world):
    key, journal = world.accounts_key(), world.folder / "handled"
    executions = [world.work(key, "t")]
    cue = world.server.execution(key, executions[0])["cue_id"]
    executions += [world.server.fire(key, cue) for _ in range(199)]
    handlers = {"t": f"echo $CUEAPI_EXECUTION_ID $CUEAPI_WORKER_ID >>{journal}"}
    names = ("one", "other")
    daemons = [world.start(name, key, handlers, max_concurrent=16) for name in names]
    seen = {execution: done(world.server, key, execution) for execution in executions}
    for daemon in daemons:
        same(daemon.stop(), 0)
    lines = [tuple(line.split()) for line in journal.read_text().splitlines()]
    same(len(lines), 200)
    same(dict(lines), {execution: it["claimed_by_worker"] for execution, it in seen.items()})
    same({(it["status"], it["attempts"]) for it in seen.values()}, {("success", 1)})
    shares = [sum(worker == name for _, worker in lines) for name in names]
    assert min(shares) > 0, f"one of them did all: {shares}"


@rows.shows("start: what a daemon held when it was killed (-9) is handled by another after the lease")
def killed(world):
    with Cued(world.program, "--test-clock") as server:
        key, _ = server.account()
        execution, pid = world.work(key, "t", server=server), world.folder / "pid"
        first = world.start("first", key, {"t": f"echo $$ >{pid}.new; mv {pid}.new {pid}; exec sleep 600"}, server=server)
        until("the handler has begun", pid.exists)
        first.kill9()
        os.kill(int(pid.read_text()), signal.SIGKILL)
        second = world.start("second", key, {"t": "echo done"}, "--verbose", server=server)
        workers = lambda: server.call("GET", "/v1/workers", key=key)["workers"]
        until("the second is known", lambda: len(workers()) == 2)
        server.advance("PT14M59S")
        same(server.execution(key, execution)["claimed_by_worker"], "first")
        server.advance("PT1S")
        seen = done(server, key, execution)
        same(second.stop(), 0)
        succeeded(seen, "done\n")
        same((seen["claimed_by_worker"], seen["attempts"]), ("second", 2))


@rows.shows("start: a daemon that lives keeps its claim however long its handler takes")
def keeps_claim(world):
    with Cued(world.program, "--test-clock") as server:
        key, _ = server.account()
        execution = world.work(key, "t", server=server)
        begun, go = world.folder / "begun", world.folder / "go"
        handler = {"cmd": f"touch {begun}; until [ -e {go} ]; do sleep 0.05; done; echo done", "timeout": 120}
        first = world.start("first", key, {"t": handler}, server=server)
        until("the handler has begun", begun.exists)
        second = world.start("second", key, {"t": "echo mine"}, server=server)

        def beats():
            workers = server.call("GET", "/v1/workers", key=key)["workers"]
            return [worker["seconds_since_heartbeat"] for worker in workers]

        for _ in range(10):
            until("both have sent a sign of life", lambda: beats() == [0, 0])
            server.advance("PT2M")
        go.touch()
        seen = done(server, key, execution)
        same([first.stop(), second.stop()], [0, 0])
        succeeded(seen, "done\n")
        same((seen["claimed_by_worker"], seen["attempts"]), ("first", 1))


@rows.covers(EVERY)
def every(world):
    contains(world.run("--version"), "0.3.0")


@rows.covers("start")
def start(world):
    file = world.config("started", world.accounts_key(), {"t": "true"})
    contains(world.run("start", "--config", str(file.with_suffix(".none")), code=2), "does not exist")
    same(world.daemon.stop(), 0)
    contains(world.daemon.log(), "Worker ID:    worker-1", f"API Base:     {world.server.url}", "Worker daemon stopped")


@rows.covers("status")
def status(world):
    handlers, key = {"a": "true", "b": "true"}, world.accounts_key()
    file = world.config("asks", key, handlers)
    for option in ("--config", "-c"):
        contains(world.run("status", option, str(file)), "Worker 'asks' is connected and authenticated.", "a, b")
    same([it["worker_id"] for it in world.server.call("GET", "/v1/workers", key=key)["workers"]], ["asks"])


@rows.shows("status: the key may be in the environment or in the command line's credentials")
def other_keys(world):
    file, key = world.config("keyless", None, {"a": "true"}), world.accounts_key()
    contains(world.run("status", "-c", str(file), code=1), "No API key found")
    contains(world.run("status", "-c", str(file), CUEAPI_API_KEY=key), "is connected")
    credentials = world.folder / ".config/cueapi/credentials.json"
    credentials.parent.mkdir(parents=True)
    credentials.write_text(json.dumps({"default": {"api_key": key}}))
    contains(world.run("status", "-c", str(file)), "is connected")
    credentials.unlink()


@rows.covers("regenerate-key")
def regenerate_key(world):
    keys = [world.accounts_key()]
    file = world.config("renewed", keys[0], {"a": "true"})
    for option in ("--config", "-c"):
        contains(world.run("regenerate-key", option, str(file)), "Key regenerated.")
        keys.append(yaml.safe_load(file.read_text())["api_key"])
    contains(world.run("status", "-c", str(file)), "is connected")
    old = world.config("old", keys[1], {"a": "true"})
    contains(world.run("regenerate-key", "-c", str(old), code=1), "Current key is invalid.")
    same(len(set(keys)), 3)


@rows.covers("login")
def login(world):
    """The first time the address is new, the second time it has an account."""
    email = "dora@example.com"
    for option in ("--config", "-c"):
        file = world.config(f"login{option}", None, {"a": "true"})
        waiting = world.begin("login", "--email", email, option, str(file))
        confirm_mail(world.server, email)
        contains(end(waiting), f"Magic link sent to {email}", "Key saved to config")
        contains(world.run("status", "-c", str(file)), "is connected")
        me = world.server.call("GET", "/v1/auth/me", key=yaml.safe_load(file.read_text())["api_key"])
        same(me["email"], email)


@rows.covers("install-service", "uninstall-service")
def service(world):
    """They write and remove a unit of systemd; the systemctl here only records its arguments."""
    recorded, tools = world.folder / "systemctl", world.folder / "bin"
    tools.mkdir()
    (tools / "systemctl").write_text(f'#!/bin/sh\necho "$@" >>{recorded}\n')
    (tools / "systemctl").chmod(0o700)
    file = world.config("service", world.accounts_key(), {"a": "true"})
    unit = world.folder / ".config/systemd/user/cueapi-worker.service"
    for option in ("--config", "-c"):
        contains(world.run("install-service", option, str(file)), "Installed systemd service")
        command = re.search(r"^ExecStart=(.*)$", unit.read_text(), re.MULTILINE)[1]
        same(command, f"{WORKER} start --config {file}")
        contains(recorded.read_text(), "--user start cueapi-worker")
        contains(world.run("uninstall-service"), "Service uninstalled")
        assert not unit.exists()
    contains(world.run("uninstall-service"), "Nothing to uninstall")


def main():
    wanted = {**COMMANDS, EVERY: options_of(program)}
    with tempfile.TemporaryDirectory(prefix="cued-worker-") as folder, Cued(sys.argv[1], base=ALONE) as server:
        world = World(sys.argv[1], server, Path(folder))
        try:
            code = rows.run(world, wanted)
        finally:
            world.daemon.kill9()
    sys.exit(code)


if __name__ == "__main__":
    main()
