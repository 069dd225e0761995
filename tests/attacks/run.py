#!/usr/bin/env python3
"""Attack one server with default limits in many ways at once, and measure it and an ordinary account beside.

    tests/attacks/run.py PROGRAM [SECONDS] [--only ATTACK]... [--tolerance FACTOR] [--list]

Each attack (`connections.py`, `messages.py`, `deliveries.py`, `storage.py`) runs in a process of its own for SECONDS
(120) after all have been set up. Its accounts are free or, where it says so, pro; the others have no account. It states
the least that must have happened, so that an attack that does nothing fails the run. `victim.py` is the account beside.

The bounds are in `Bounds`. Creates count by their slowest, deliveries and `/status` by the 99th percentile: one of a
hundred may meet a pause of this machine, which the attackers use too. `--tolerance 2` allows twice as much, for a
machine that is busy or slow. Run by `.ci/run`. Needs Linux and Python's
standard library. Exits with 1 if a bound is exceeded or an expectation is not met, and names it.
"""

import argparse
import multiprocessing
import os
import queue
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time

import attack
import connections, deliveries, messages, storage  # noqa: E401, F401: they register their attacks
from caller import MIB
from victim import Victim

SECONDS_TO_SET_UP = 90
SECONDS_TO_RECOVER = 60
# Each address of `idle_connections`, `unfinished_heads` and `h2_floods` reaches its 128 of 4,096.
MIN_CONNECTIONS = 1_024


class Bounds:
    """The largest allowed values."""

    PEAK_MIB = 160
    AFTERWARDS_MIB = 48
    CREATE_S = 1.0
    LATENESS_P99_S = 2.0
    # Attackers, victim and server share two cores; alone it is a few milliseconds.
    STATUS_P99_S = 0.2
    STATUS_MAX_S = 1.0
    LOG_LINES = 500
    # Rows, indexes and the journal, beside what the attackers were allowed to store.
    DATABASE_FACTOR = 1.25
    DATABASE_PER_REQUEST = 2_048
    DATABASE_MIB = 32


def quantile(values, share):
    return sorted(values)[min(len(values) - 1, int(len(values) * share))] if values else float("inf")


class Server:
    def __init__(self, program, folder):
        self.program, self.folder = program, folder
        self.database, self.log = os.path.join(folder, "cued.db"), os.path.join(folder, "cued.log")
        command = [program, "serve", "--registration", "open", "--allow-callbacks-to", "loopback"]
        command += ["--listen", "127.0.0.1:0", "--db", self.database]
        with open(self.log, "w") as log:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        self.address = ("127.0.0.1", int(self.process.stdout.readline().rsplit(":", 1)[1]))
        self.most_files = 0

    def memory_mib(self, field):
        with open(f"/proc/{self.process.pid}/status") as status:
            line = next(line for line in status if line.startswith(field))
        return int(line.split()[1]) / 1024

    def processor_seconds(self):
        with open(f"/proc/{self.process.pid}/stat") as stat:
            fields = stat.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def watch_files(self):
        try:
            while True:
                self.most_files = max(self.most_files, len(os.listdir(f"/proc/{self.process.pid}/fd")))
                time.sleep(0.2)
        except OSError:
            pass  # The server has ended.

    def database_bytes(self):
        names = [name for name in os.listdir(self.folder) if name.startswith("cued.db")]
        return sum(os.path.getsize(os.path.join(self.folder, name)) for name in names)

    def log_lines(self):
        with open(self.log) as log:
            return sum(1 for _ in log)


class Attackers:
    """The processes of the attacks."""

    def __init__(self, chosen, server):
        context = multiprocessing.get_context("fork")
        self.go, self.stop, self.results = attack.Signal(), attack.Signal(), context.Queue()
        self.chosen, self.failures, self.outcomes = chosen, [], {}
        common = (server.address, server.program, server.database, self.go, self.stop, self.results)
        for number, name in enumerate(chosen, 1):
            arguments = (attack.ATTACKS[name], number, *common)
            context.Process(target=attack.run, args=arguments, daemon=True, name=name).start()

    def collect(self, seconds, finished):
        """Waits until each process has reported once."""
        waiting, end = set(self.chosen), time.monotonic() + seconds
        while waiting and time.monotonic() < end:
            try:
                name, outcome = self.results.get(timeout=1)
            except queue.Empty:
                continue
            if finished and outcome:
                self.outcomes[name] = outcome
                self.failures += outcome.errors
            if bool(outcome) == finished:
                waiting.discard(name)
        self.failures += [f"{name}: {'no report' if finished else 'not set up in time'}" for name in sorted(waiting)]

    def report(self, seconds):
        """Prints what happened and returns what should have."""
        for name, outcome in self.outcomes.items():
            counts = {**outcome.tally.counts, **{f"most {it}": n for it, n in outcome.tally.peaks.items()}}
            print(f"{name}: " + ", ".join(f"{count} x {it}" for it, count in sorted(counts.items())))
            self.failures += attack.ATTACKS[name].unmet(outcome.tally, seconds)
        return self.failures

    def stored(self):
        tallies = [outcome.tally for outcome in self.outcomes.values()]
        return sum(it.stored for it in tallies), sum(it.requests for it in tallies)


def measure(server, attackers, seconds):
    """Runs the attacks beside the victim. Returns rows of a name, a value and its bound, and further failures."""
    victim = Victim(server.address)
    victim.caller.add_account(server.program, server.database, "victim@example.com")
    attackers.collect(SECONDS_TO_SET_UP, finished=False)
    print(f"set up; {server.memory_mib('VmRSS'):.0f} MiB, {server.processor_seconds():.0f} s of processor time")
    began = server.processor_seconds()
    attackers.go.send()
    victim.run(seconds)
    time.sleep(seconds)
    late, missing = victim.lateness()
    creates, statuses = victim.creates.all(), victim.statuses.all()
    print(f"{server.processor_seconds() - began:.0f} s of processor time under attack, {server.most_files} open files")
    pauses = quantile(victim.pauses, 0.99), quantile(victim.pauses, 1)
    print("pauses of this machine: p99 {:.3f} s, longest {:.3f} s".format(*pauses))
    attackers.stop.send()
    attackers.collect(20, finished=True)
    peak = server.memory_mib("VmHWM")
    ended = time.monotonic()
    latest = ended + SECONDS_TO_RECOVER
    while (rest := server.memory_mib("VmRSS")) > Bounds.AFTERWARDS_MIB and time.monotonic() < latest:
        time.sleep(0.5)
    stored, requests = attackers.stored()
    allowed = stored * Bounds.DATABASE_FACTOR + requests * Bounds.DATABASE_PER_REQUEST
    rows = [
        ("peak memory, MiB", peak, Bounds.PEAK_MIB),
        (f"memory {time.monotonic() - ended:.0f} s afterwards, MiB", rest, Bounds.AFTERWARDS_MIB),
        (f"create, slowest of {len(creates)}, s", quantile(creates, 1), Bounds.CREATE_S),
        (f"lateness, p99 of {len(late)}, s", quantile(late, 0.99), Bounds.LATENESS_P99_S),
        ("deliveries missing 5 s later", missing, 0),
        (f"GET /status, p99 of {len(statuses)}, s", quantile(statuses, 0.99), Bounds.STATUS_P99_S),
        ("GET /status, slowest, s", quantile(statuses, 1), Bounds.STATUS_MAX_S),
        ("lines of the log", server.log_lines(), Bounds.LOG_LINES),
        ("database, MiB", server.database_bytes() / MIB, allowed / MIB + Bounds.DATABASE_MIB),
    ]
    errors = victim.creates.errors + victim.statuses.errors
    failures = [f"victim: {len(errors)} errors, such as {errors[0]}"] if errors else []
    if len(attackers.chosen) == len(attack.ATTACKS) and server.most_files < MIN_CONNECTIONS:
        failures.append(f"only {server.most_files} open files, at least {MIN_CONNECTIONS} expected")
    return rows, failures


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", help="the release build of cued")
    parser.add_argument("seconds", nargs="?", type=float, default=120)
    parser.add_argument("--only", action="append", choices=sorted(attack.ATTACKS), metavar="ATTACK")
    parser.add_argument("--tolerance", type=float, default=1, metavar="FACTOR", help="of the bounds")
    parser.add_argument("--list", action="store_true", help="print the names of the attacks")
    return parser.parse_args()


def main():
    options = arguments()
    if options.list:
        sys.exit(print("\n".join(sorted(attack.ATTACKS))))
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with tempfile.TemporaryDirectory(prefix="cued-attacks-") as folder:
        server = Server(options.program, folder)
        attackers = Attackers(options.only or list(attack.ATTACKS), server)
        threading.Thread(target=server.watch_files, daemon=True).start()
        try:
            rows, failures = measure(server, attackers, options.seconds)
        finally:
            server.process.send_signal(signal.SIGTERM)
            status = server.process.wait(60)
        failures += attackers.report(options.seconds)
    rows = [(name, value, bound * options.tolerance) for name, value, bound in rows]
    for name, value, bound in rows:
        verdict = "ok" if value <= bound else "TOO MUCH"
        print(f"{name:44} {value:9.3f}   at most {bound:9.3f}   {verdict}")
    failures += [name for name, value, bound in rows if value > bound]
    failures += [f"the server ended with {status}"] if status else []
    print("\n".join(f"FAILED: {failure}" for failure in failures) or "all bounds hold")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
