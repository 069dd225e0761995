"""Every command of the published command line, unmodified, against the built program: command_line.py PATH-TO-CUED"""

import json
import os
import re
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

from cueapi.cli import main as program
from person import sign_in, submit
from rows import Rows, commands_of, contains, options_of, place, same
from server import ALONE, Cued, Recorder, until

rows = Rows("cueapi")
CUEAPI = str(Path(sys.executable).with_name("cueapi"))
COMMANDS = commands_of(program)
# The options that stand before the command.
EVERY = "(every command)"
NEVER = "0 0 1 1 *"


class World:
    def __init__(self, server, plain, folder):
        self.server, self.plain, self.folder = server, plain, folder
        self.receiver = Recorder()
        self._browser = folder / "browser"
        self._browser.write_text(f'#!/bin/sh\necho "$1" >>{folder}/opened\n')
        self._browser.chmod(0o700)
        self.user = self.person()
        # It waits for its own cue for 15 seconds; the others run in that time.
        self.quickstart = self.person(plain).begin("quickstart")

    def person(self, server=None, **environment):
        """A person with an account and a separate home; the key is in the environment."""
        server = server or self.server
        key, email = server.account()
        return Person(self, server, email, {"CUEAPI_API_KEY": key, **environment})

    def stranger(self):
        """A person with neither account nor key."""
        return Person(self, self.server, None, {})

    def environment(self, server):
        kept = {name: os.environ[name] for name in ("PATH", "NO_PROXY", "no_proxy") if name in os.environ}
        home = tempfile.mkdtemp(dir=self.folder)
        return {**kept, "HOME": home, "BROWSER": f"{self._browser} %s", "CUEAPI_API_BASE": f"{server.url}/v1"}

    def opened(self):
        """All addresses that the browser was asked to open."""
        opened = self.folder / "opened"
        return opened.read_text().split() if opened.exists() else []


class Person:
    def __init__(self, world, server, email, environment):
        self.server, self.email, self._opened = server, email, world.opened
        self.environment = {**world.environment(server), **environment}
        self.key = environment.get("CUEAPI_API_KEY")
        self.credentials = Path(self.environment["HOME"]) / ".config/cueapi/credentials.json"

    def begin(self, *arguments):
        note(arguments)
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen([CUEAPI, *arguments], env=self.environment, text=True, **pipes)

    def run(self, *arguments, says="", code=0):
        """A command that must end with `code`: all that it wrote."""
        return end(self.begin(*arguments), says, code)

    def refused(self, *arguments, says=""):
        return self.run(*arguments, says=says, code=1)

    def call(self, method, path, body=None):
        return self.server.call(method, path, body, self.key)

    def log_in(self, email, profile="default"):
        """The command waits, the person goes through pages and mail: all that it wrote."""
        before = len(self._opened())
        waiting = self.begin("--profile", profile, "login")
        (page,) = until("the page is opened", lambda: self._opened()[before:])
        sign_in(self.server, page, email)
        return end(waiting)

    def create(self, *arguments):
        """A cue made by the command: its id."""
        text = self.run("create", *arguments)
        return re.search(r"Created: (cue_[a-z0-9]{12})$", text, re.MULTILINE)[1]

    def work(self, payload="{}"):
        """A cue for workers, and an execution of it."""
        cue = self.create("--name", "work", "--cron", NEVER, "--worker", "--payload", payload)
        return cue, self.fire(cue)

    def fire(self, cue, *arguments):
        text = self.run("fire", cue, *arguments)
        contains(text, f"Fired: {cue}", "Scheduled:")
        return re.search(r"^Execution: +(\S+)$", text, re.MULTILINE)[1]

    def execution(self, execution):
        return self.server.execution(self.key, execution)


def end(process, says="", code=0):
    out, complaints = process.communicate(says, timeout=90)
    text = out + complaints
    assert process.returncode == code, f"exit {process.returncode}: {text}"
    return text


def note(arguments):
    """Counts the options of a command line as given."""
    name = next((name for name in sorted(COMMANDS, key=len, reverse=True) if follows(name.split(), arguments)), EVERY)
    rows.give(name, arguments)
    rows.give(EVERY, arguments)


def follows(words, arguments):
    at = next((n for n, argument in enumerate(arguments) if argument == words[0]), None)
    return at is not None and list(arguments[at : at + len(words)]) == words


@rows.covers(EVERY)
def every(world):
    contains(world.user.run("--version"), "0.2.0")
    user, other = world.person(), world.stranger()
    contains(other.run("--api-key", user.key, "whoami"), user.email)
    contains(other.run("whoami"), "Not logged in")
    contains(other.run("--profile", "work", "whoami"), "Not logged in")
    contains(other.refused("--api-key", "cue_sk_" + "0" * 32, "list"), "HTTP 401")


@rows.covers("login", "whoami")
def login(world):
    """The device code, the page in the browser, the mail, its link, the key; then the key is used."""
    person, email = world.stranger(), "ann@example.com"
    text = person.log_in(email)
    contains(text, f"Authenticated as {email}", world.opened()[-1])
    kept = json.loads(person.credentials.read_text())["default"]
    contains(text, f"Your API key: {kept['api_key']}")
    same((kept["email"], kept["api_base"]), (email, f"{world.server.url}/v1"))
    same(stat.S_IMODE(person.credentials.stat().st_mode), 0o600)
    del person.environment["CUEAPI_API_BASE"]
    seen = person.run("whoami")
    contains(seen, email, "Plan:            Free", "0 / 1000000000", f"API base:        {world.server.url}/v1")
    contains(seen, f"{kept['api_key'][:7]}...{kept['api_key'][-4:]}")


@rows.covers("logout")
def logout(world):
    person = world.stranger()
    for profile, email in (("work", "bob@work.example"), ("home", "bob@home.example")):
        person.log_in(email, profile)
        contains(person.run("--profile", profile, "whoami"), email, profile)
    contains(person.run("--profile", "work", "logout"), "Removed credentials for bob@work.example")
    contains(person.run("--profile", "work", "whoami"), "Not logged in")
    contains(person.run("--profile", "home", "whoami"), "bob@home.example")
    contains(person.run("logout", "--all"), "Removed all credentials")
    contains(person.run("--profile", "home", "whoami"), "Not logged in")


@rows.covers("create")
def create(world):
    user, hook = world.user, world.receiver.url
    on_failure = {"email": False, "webhook": None, "pause": True}
    made = user.create(
        "--name", "report", "--cron", "0 9 * * 1-5", "--timezone", "Europe/Berlin", "--url", hook, "--method", "PUT",
        "--payload", '{"a": [1, "ü"]}', "--description", "Every morning", "--on-failure", json.dumps(on_failure),
    )
    cue = user.call("GET", f"/v1/cues/{made}")
    same((cue["name"], cue["description"], cue["payload"]), ("report", "Every morning", {"a": [1, "ü"]}))
    same((cue["schedule"]["cron"], cue["schedule"]["timezone"]), ("0 9 * * 1-5", "Europe/Berlin"))
    same((cue["callback"]["url"], cue["callback"]["method"]), (hook, "PUT"))
    same((cue["on_failure"], cue["warning"]), (on_failure, None))
    once = user.create("--name", "later", "--at", "2031-01-31T09:00:00Z", "--callback", hook)
    same(user.call("GET", f"/v1/cues/{once}")["next_run"], "2031-01-31T09:00:00+00:00")
    work = user.create("--name", "work", "--cron", "@daily", "--worker")
    same(user.call("GET", f"/v1/cues/{work}")["transport"], "worker")


@rows.shows("create: what the server refuses ends with exit code 1")
def create_refused(world):
    small = world.person(world.plain)
    for number in range(10):
        small.create("--name", f"cue {number}", "--cron", NEVER, "--worker")
    text = small.refused("create", "--name", "one more", "--cron", NEVER, "--worker")
    contains(text, "Cue limit exceeded", "cueapi upgrade")
    contains(world.user.refused("create", "--name", "x", "--cron", "61 * * * *", "--worker"), "HTTP 400")


@rows.faulty(
    "create and all others: the server's reason",
    place("cueapi/cli.py", 'resp.json().get("detail", {}).get("error", {})', 2),
    "looks for `detail.error.message`, but an error is `{error: {code, message, status}}`: the message is not shown",
)
def reason_is_lost(world):
    text = world.user.refused("create", "--name", "x", "--cron", "61 * * * *", "--worker")
    same(text.strip(), "Error: Failed (HTTP 400)")


@rows.faulty(
    "create and all others: what is answered with 422",
    place("cueapi/cli.py", 'resp.json().get("detail", {}).get("error", {})', 2),
    "takes `detail` for an object, but it is a list in a 422: ends with a traceback",
)
def crashes_at_422(world):
    text = world.user.refused("create", "--name", "x" * 300, "--cron", NEVER, "--worker")
    contains(text, "AttributeError: 'list' object has no attribute 'get'")


@rows.covers("list")
def list_cues(world):
    user = world.person()
    contains(user.run("list"), "No cues yet")
    made = [user.create("--name", f"cue {number}", "--cron", NEVER, "--worker") for number in range(3)]
    user.run("pause", made[0])
    text = user.run("list")
    contains(text, *made, "cue 2", "-01-01 00:00 UTC", "3 cues (2 active, 1 paused)")
    paused = user.run("list", "--status", "paused")
    same([cue for cue in made if cue in paused], made[:1])
    page = user.run("list", "--limit", "1", "--offset", "1")
    same([cue for cue in made if cue in page], made[1:2])


@rows.covers("get")
def get(world):
    user = world.user
    made = user.create("--name", "hook", "--cron", NEVER, "--url", world.receiver.url, "--description", "seen")
    user.fire(made)
    world.receiver.next()
    until("it is recorded", lambda: user.call("GET", f"/v1/cues/{made}")["executions"][0]["status"] == "success")
    text = user.run("get", made)
    contains(text, "Name:            hook", "active", f"{NEVER} (UTC)", f"POST {world.receiver.url}")
    contains(text, "Run count:       1", "Description:     seen", "Last run:", "success  (200, 1 attempt)")
    contains(user.refused("get", "cue_0123456789ab"), "Cue not found")


@rows.covers("pause", "resume")
def pause_and_resume(world):
    user = world.user
    made = user.create("--name", "rest", "--cron", NEVER, "--worker")
    contains(user.run("pause", made), f"Paused: {made} (rest)")
    same(user.call("GET", f"/v1/cues/{made}")["next_run"], None)
    contains(user.run("resume", made), f"Resumed: {made} (rest)", "Next run:")
    for command in ("pause", "resume"):
        contains(user.refused(command, "cue_0123456789ab"), "Cue not found")


@rows.covers("update")
def update(world):
    user = world.user
    made = user.create("--name", "old", "--cron", NEVER, "--url", "https://hooks.example.com/a")
    text = user.run(
        "update", made, "--name", "new", "--cron", "5 * * * *", "--url", world.receiver.url, "--payload", '{"b": 2}',
        "--description", "d", "--on-failure", '{"pause": true}',
    )
    contains(text, f"Updated: {made} (new)")
    cue = user.call("GET", f"/v1/cues/{made}")
    same((cue["name"], cue["description"], cue["payload"]), ("new", "d", {"b": 2}))
    same((cue["schedule"]["cron"], cue["callback"]["url"]), ("5 * * * *", world.receiver.url))
    same(cue["on_failure"], {"email": True, "webhook": None, "pause": True})
    user.run("update", made, "--callback", "https://hooks.example.com/b")
    same(user.call("GET", f"/v1/cues/{made}")["callback"]["url"], "https://hooks.example.com/b")
    contains(user.refused("update", "cue_0123456789ab", "--name", "x"), "Cue not found")


@rows.covers("delete")
def delete(world):
    user = world.user
    made = [user.create("--name", "short", "--cron", NEVER, "--worker") for _ in range(3)]
    contains(user.run("delete", made[0], says="n\n"), f"Delete {made[0]} (short)?", "Cancelled.")
    contains(user.run("delete", made[0], says="y\n"), "Deleted.")
    contains(user.run("delete", made[1], "--yes"), "Deleted.")
    contains(user.run("delete", made[2], "-y"), "Deleted.")
    for cue in made:
        contains(user.refused("get", cue), "Cue not found")


@rows.covers("fire")
def fire(world):
    user = world.user
    made = user.create("--name", "hook", "--cron", NEVER, "--url", world.receiver.url, "--payload", '{"a": 1, "b": 2}')
    for options, expected in (
        ([], {"a": 1, "b": 2}),
        (["--payload-override", '{"b": 3}'], {"a": 1, "b": 3}),
        (["--payload-override", '{"b": 3}', "--merge-strategy", "merge"], {"a": 1, "b": 3}),
        (["--payload-override", '{"b": 3}', "--merge-strategy", "replace"], {"b": 3}),
    ):
        execution = user.fire(made, *options)
        delivery = world.receiver.next()
        same((json.loads(delivery.body), delivery.headers["x-cueapi-execution-id"]), (expected, execution))
    contains(user.refused("fire", "cue_0123456789ab"), "Cue not found")


@rows.covers("upgrade", "manage")
def upgrade_and_manage(world):
    """The request is confirmed on its page and approved by the operator; the portal's page ends the plan."""
    user = world.person()
    contains(user.refused("manage"), "HTTP 400")
    text = user.run("upgrade", says="pro\nannual\n")
    checkout = re.search(r"visit: (\S+)", text)[1]
    contains(text, "Current plan: Free", "Opening checkout")
    same(world.opened()[-1], checkout)
    submit(checkout)
    (request,) = [line for line in world.server.administer("billing", "list").splitlines() if user.email in line]
    world.server.administer("billing", "approve", request.split()[0])
    contains(user.run("whoami"), "Plan:            Pro")
    portal = re.search(r"visit: (\S+)", user.run("manage"))[1]
    same(world.opened()[-1], portal)
    contains(submit(portal).text, "plan")


@rows.covers("usage")
def usage(world):
    user = world.person(world.plain)
    user.work()
    contains(user.run("usage"), "Free", "1 / 10", "1 / 300 (0.3%)", "60 req/min")
    contains(world.user.run("usage"), "/ 1,000,000,000 (0.0%)", "1000000000 req/min")


@rows.covers("executions list")
def executions_list(world):
    user = world.person()
    contains(user.run("executions", "list"), "No executions found")
    (cue, first), (other, third) = user.work(), user.work()
    second = user.fire(cue)
    user.run("executions", "claim", first, "--worker-id", "w")
    text = user.run("executions", "list")
    contains(text, first, second, third, cue, other, "delivering", "pending")
    for options, expected in (
        (["--cue-id", cue], [first, second]),
        (["--status", "delivering"], [first]),
        (["--limit", "1", "--offset", "2"], [first]),
    ):
        text = user.run("executions", "list", *options)
        same([it for it in (first, second, third) if it in text], expected)


@rows.covers("executions list-claimable")
def executions_list_claimable(world):
    user = world.person()
    contains(user.run("executions", "list-claimable", "--task", "a"), "No claimable executions (task=a)")
    _, first = user.work('{"task": "a", "agent": "x"}')
    _, second = user.work('{"task": "b", "agent": "x"}')
    for options, expected in (
        ([], [first, second]),
        (["--task", "a"], [first]),
        (["--agent", "x"], [first, second]),
        (["--task", "b", "--agent", "x"], [second]),
    ):
        text = user.run("executions", "list-claimable", *options)
        contains(text, "work")
        same([it for it in (first, second) if it in text], expected)


@rows.covers("executions get")
def executions_get(world):
    user = world.user
    cue, execution = user.work()
    contains(user.run("executions", "get", execution), execution, cue, "pending", "Scheduled:")
    user.run("executions", "claim", execution, "--worker-id", "worker-7")
    contains(user.run("executions", "get", execution), "delivering", "Claimed by:      worker-7", "Started:")
    contains(user.refused("executions", "get", "nothing"), "Execution not found")


@rows.covers("executions claim")
def executions_claim(world):
    user = world.user
    _, execution = user.work()
    text = user.run("executions", "claim", execution, "--worker-id", "worker-7")
    contains(text, f"Claimed: {execution}", "900s")
    same(user.execution(execution)["claimed_by_worker"], "worker-7")
    contains(user.refused("executions", "claim", execution, "--worker-id", "other"), "Not claimable")
    contains(user.refused("executions", "claim", "nothing", "--worker-id", "w"), "Execution not found")


@rows.covers("executions claim-next")
def executions_claim_next(world):
    user = world.person()
    claim = ("executions", "claim-next", "--worker-id", "w")
    contains(user.run(*claim), "No executions available")
    contains(user.run(*claim, "--task", "b"), "No claimable executions for task=b")
    (_, first), (_, second), (_, third) = (user.work(f'{{"task": "{task}"}}') for task in "aba")
    contains(user.run(*claim, "--task", "b"), f"Claimed: {second}", "900s")
    contains(user.run(*claim), f"Claimed: {first}", "900s")
    contains(user.run(*claim), f"Claimed: {third}")


@rows.covers("executions heartbeat")
def executions_heartbeat(world):
    user = world.user
    _, execution = user.work()
    beat = lambda worker: ("executions", "heartbeat", execution, "--worker-id", worker)
    contains(user.refused(*beat("w")), "no longer in 'delivering' state")
    user.run("executions", "claim", execution, "--worker-id", "w")
    contains(user.run(*beat("w")), f"Heartbeat acknowledged: {execution}", "Lease until:")
    contains(user.refused(*beat("other")), "does not match the worker")
    contains(user.refused("executions", "heartbeat", "nothing", "--worker-id", "w"), "Execution not found")


@rows.covers("executions report-outcome")
def executions_report_outcome(world):
    user, report = world.user, ("executions", "report-outcome")
    _, execution = user.work()
    user.run("executions", "claim", execution, "--worker-id", "w")
    evidence = {"external_id": "job-7", "result_url": "https://example.com/7", "summary": "all well"}
    text = user.run(
        *report, execution, "--success", "--external-id", "job-7", "--result-url", "https://example.com/7",
        "--summary", "all well",
    )
    contains(text, f"Outcome recorded: {execution}")
    seen = user.execution(execution)
    same((seen["status"], seen["outcome_state"], seen["evidence"]), ("success", "reported_success", evidence))
    contains(user.refused(*report, execution, "--failure"), "Outcome already recorded")
    _, other = user.work()
    contains(user.run(*report, other, "--failure"), "Marked:          failure")
    same(user.execution(other)["status"], "failed")
    contains(user.refused(*report, "nothing", "--success"), "Execution not found")


@rows.covers("key regenerate")
def key_regenerate(world):
    person, email = world.stranger(), "carol@example.com"
    person.log_in(email)
    contains(person.run("key", "regenerate", says="n\n"), "Cancelled.")
    keys = []
    for option in ("--yes", "-y"):
        text = person.run("key", "regenerate", option)
        keys.append(re.search(r"New API key: (cue_sk_[0-9a-f]{32})$", text, re.MULTILINE)[1])
    same(json.loads(person.credentials.read_text())["default"]["api_key"], keys[1])
    contains(person.run("whoami"), email)
    contains(world.stranger().refused("--api-key", keys[0], "list"), "HTTP 401")


@rows.covers("quickstart")
def quickstart(world):
    """With the safe defaults: the server reaches its own echo path although loopback is blocked."""
    text = end(world.quickstart)
    contains(text, "Created: cue_", "Callback delivered!", "Your first cue! CueAPI is working.", "Deleted.", "CueAPI is working!")


def main():
    wanted = {**COMMANDS, EVERY: options_of(program)}
    with tempfile.TemporaryDirectory(prefix="cued-command-line-") as folder:
        plain = ("--registration", "open")
        with Cued(sys.argv[1], base=ALONE) as server, Cued(sys.argv[1], base=plain) as safe:
            sys.exit(rows.run(World(server, safe, Path(folder)), wanted))


if __name__ == "__main__":
    main()
