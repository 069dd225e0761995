#!/usr/bin/env python3
"""Check that a server keeps the promises of the API (.github/CONTRACT.md), and print which sections differ.

    CUED_API_KEY=cue_sk_… tests/conformance/run.py https://cue.example.com

Makes about 150 requests, and deletes what it created. A free plan is enough, and takes a minute. Channels of the
account announce a failure of a cue. Deliveries go to a receiver on this machine; if the server cannot reach it, they are
not checked. Needs Python 3.9 and nothing else. Exits with 1 if the server differs, with 2 if not all could be checked or
deleted. A certificate of another authority: SSL_CERT_FILE.
"""

import argparse
import json
import os
import re
import signal
import sys
import uuid
from collections import Counter
from pathlib import Path

from runner import Runner, Stop
from server import Server
from values import read_json

SCENARIOS = Path(__file__).parent / "scenarios"


def arguments():
    about, _, details = __doc__.partition("\n")
    parser = argparse.ArgumentParser(
        description=about, epilog=details, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url", metavar="URL", help="base URL of the server")
    parser.add_argument("--key", choices=["-"], help="read the API key from standard input (default: CUED_API_KEY)")
    parser.add_argument("--only", metavar="SECTION|WORD", help="only a section, such as 7 or 4.6, or what has this word")
    parser.add_argument("--long", action="store_true", help="also long tables of bad input; use an account without limits")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.add_argument("--no-deliveries", action="store_true", help="leave out the deliveries")
    parser.add_argument("--receiver", metavar="ADDR:PORT", default="127.0.0.1:0", help="where deliveries are received")
    parser.add_argument("--receiver-url", metavar="URL", help="base URL of the receiver for the server")
    parser.add_argument("--test-clock", action="store_true", help="advance the clock of the server instead of waiting")
    given = parser.parse_args()
    if not re.match("https?://[^/]", given.url):
        parser.error("the URL begins with http:// or https://")
    key = (sys.stdin.readline() if given.key else os.environ.get("CUED_API_KEY", "")).strip()
    if not key:
        parser.error("there is no key: set CUED_API_KEY, or give it to --key - on standard input")
    return parser, given, key


def selects(only, group, promise):
    """A section, with the sections below it, or a word selects a promise."""
    wanted = only.lstrip("§")
    if wanted[:1].isdecimal():
        return f"{promise['section']}.".startswith(f"{wanted}.")
    return only.lower() in f"{group['group']} {promise['promise']}".lower()


def report(runner):
    """The promises by group, then those that are not kept, then how many are not checked."""
    lines, promises = [], runner.promises
    for group in dict.fromkeys(it["group"] for it in promises):
        members = [it for it in promises if it["group"] == group]
        holding = sum(it["result"] == "holds" for it in members)
        sections = sorted({it["section"] for it in members}, key=lambda it: [int(part) for part in it.split(".")])
        lines.append(f"{group:24}  {holding} of {len(members)} hold  {' '.join(sections)}")
    for it in promises:
        if it["result"] == "differs":
            lines += ["", f"§{it['section']} {it['promise']}"]
            lines += [f"  {name:8}  {it[name]}" for name in ("request", "expected", "came")]
    holding = sum(it["result"] == "holds" for it in promises)
    lines += ["", f"{holding} of {len(promises)} promises hold: {runner.requests} requests, {runner.waited} s of waiting "
              "for the rate limit."]
    unchecked = Counter((it["group"], it["reason"]) for it in promises if it["result"] == "not checked")
    return lines + [f"{number} not checked, {group}: {reason}" for (group, reason), number in unchecked.items()]


def main():
    sys.stdout.reconfigure(errors="backslashreplace")
    # A shell starts what it runs in the background with interrupts ignored.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    parser, given, key = arguments()
    groups = [read_json(path.read_text("utf-8")) for path in sorted(SCENARIOS.glob("*.json"))]
    for group in groups:
        group["promises"] = [it for it in group["promises"] if given.long or not it.get("long")]
        for promise in group["promises"] + group.get("always", []):
            promise["is_wanted"] = selects(given.only or "", group, promise)
    if not any(it["is_wanted"] for group in groups for it in group["promises"] + group.get("always", [])):
        parser.error(f"no promise has the section or the word {given.only!r}")
    server = Server(given.url, key, given.test_clock)
    runner, failures, code = Runner(server, given, f"cued-conformance-{uuid.uuid4().hex[:8]}"), [], 0
    try:
        runner.sign_in()
        runner.run(groups)
    except Stop as error:
        failures.append(str(error))
    except KeyboardInterrupt:
        code = 130
        print("interrupted: what was created is being deleted; a second interrupt ends at once", file=sys.stderr)
    failures += [f"not deleted: {it}" for it in runner.delete_all()]
    if runner.full:
        failures.append(f"the account is full: {runner.full}")
    result = {"promises": runner.promises, "requests": runner.requests, "waited": runner.waited}
    print(json.dumps(result, indent=2) if given.json else "\n".join(report(runner)), flush=True)
    for failure in failures:
        print(failure, file=sys.stderr)
    differs = any(it["result"] == "differs" for it in runner.promises)
    sys.exit(code or (1 if differs else 2 if failures else 0))


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
