#!/usr/bin/env python3
"""Run one server for hours under a steady load, and see whether anything grows or gets lost.

    tests/endurance/soak.py PROGRAM --hours 2 [--rate 200] [--folder DIR] [--report FILE] [--sample 60]

`rate` webhooks fall due in every second, spread to the millisecond, on 20 destinations that refuse 3 % at first and 0.2 %
for good. Beside them cues are created, changed, fired and deleted, workers claim, extend leases and report, three pages
are open, and a backup is made and checked every ten minutes. The history is kept by number (`--retain 30`), because it is
deleted by age only after a day. What is acknowledged and what arrives is in a ledger outside of the server (`ledger.py`),
and is compared with the server every minute and at the end (`audit.py`).

Exits with 1 and names what does not hold: the median of the last quarter against that of the second one, the rate, and 0
lost. Needs Linux and Python's standard library. Other work on the machine shows up in the lateness.
"""

import argparse
import asyncio
import json
import os
import signal
import statistics
import subprocess
import sys
import time

sys.path.insert(1, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "clients"))

from audit import Audit  # noqa: E402
from ledger import Ledger  # noqa: E402
from load import Load  # noqa: E402
from receiver import listen  # noqa: E402
from server import Cued, clean_environment  # noqa: E402

ACCOUNTS = 5
BACKUP_EVERY_S = 600
# What may grow by how much from the second quarter to the last one. Below the least value a change is noise.
FLAT = {"memory_mib": (1.1, 8), "threads": (1.1, 64), "files": (1.1, 128), "file_mib": (1.1, 8), "wal_mib": (1.1, 16),
        "late_p50_ms": (1.5, 10), "late_p99_ms": (1.5, 50)}  # fmt: skip
SHOWN = ("per_second", "log_bytes", "pause_p99_ms", "processor_percent")
LOG_BYTES_PER_HOUR = 65_536
LEAST_SHARE_OF_RATE = 0.98


def quantile(values, share):
    return round(sorted(values)[min(len(values) - 1, int(len(values) * share))], 1) if values else None


def size_mib(path):
    return round(os.path.getsize(path) / (1 << 20), 1) if os.path.exists(path) else 0


class Samples:
    def __init__(self, server, ledger, load):
        self.server, self.ledger, self.load = server, ledger, load
        self.rows, self.began, self.counts = [], time.monotonic(), dict(ledger.counts)
        self.first, self.processor, self.pauses = self.began, self.processor_seconds(), []

    def processor_seconds(self):
        with open(f"/proc/{self.server.pid}/stat") as stat:
            fields = stat.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    async def watch_pauses(self):
        """By how much this machine prolongs a sleep of 10 ms: the lateness contains such pauses."""
        while True:
            began = time.monotonic()
            await asyncio.sleep(0.01)
            self.pauses.append((time.monotonic() - began - 0.01) * 1000)

    def take(self):
        """What the server takes, and what arrived since the last sample."""
        now, counts, processor = time.monotonic(), dict(self.ledger.counts), self.processor_seconds()
        lateness, pauses, self.ledger.lateness, self.pauses = self.ledger.lateness, self.pauses, [], []
        came = sum(counts[name] - self.counts[name] for name in ("delivered", "refused"))
        with open(f"/proc/{self.server.pid}/status") as lines:
            status = dict(line.split(":", 1) for line in lines if ":" in line)
        row = {
            "minutes": round((now - self.first) / 60, 1),
            "memory_mib": round(int(status["VmRSS"].split()[0]) / 1024, 1),
            "threads": int(status["Threads"]),
            "files": len(os.listdir(f"/proc/{self.server.pid}/fd")),
            "file_mib": size_mib(self.server.db),
            "wal_mib": size_mib(self.server.db + "-wal"),
            "log_bytes": os.path.getsize(self.server.log),
            "per_second": round(came / (now - self.began), 1),
            "late_p50_ms": quantile(lateness, 0.5),
            "late_p99_ms": quantile(lateness, 0.99),
            "late_max_ms": quantile(lateness, 1),
            "pause_p99_ms": quantile(pauses, 0.99),
            "processor_percent": round((processor - self.processor) / (now - self.began) * 100, 1),
            "errors": self.ledger.errors + self.load.gone,
            "faults": len(self.ledger.faults),
            "load": os.getloadavg()[0],
        }
        self.rows.append(row)
        self.began, self.counts, self.processor = now, counts, processor
        print("  ".join(f"{name} {value}" for name, value in row.items()), flush=True)

    def quarter(self, number, name):
        size = max(1, len(self.rows) // 4)
        rows = self.rows[(number - 1) * size :] if number == 4 else self.rows[(number - 1) * size : number * size]
        values = [row[name] for row in rows if row[name] is not None]
        return round(statistics.median(values), 1) if values else 0


async def soak(server, options):
    ledger = Ledger()
    sockets, urls = await listen(ledger)
    keys = [server.account()[0] for _ in range(ACCOUNTS)]
    load = Load(int(server.url.rsplit(":", 1)[1]), keys, ledger, urls, options.rate)
    seconds = options.hours * 3600
    start = await load.prepare(seconds)
    print(f"{len(ledger.grids)} cues created; the load begins in {start - time.time():.1f} s", flush=True)
    await asyncio.sleep(start - time.time())
    ledger.lateness = []
    load.begin(0.5)
    audit, samples, backups = Audit(load), Samples(server, ledger, load), []
    backing_up = asyncio.create_task(back_up(server, seconds, backups))
    watching = asyncio.create_task(samples.watch_pauses())
    number = 0
    while (number := number + 1) * options.sample <= seconds:
        await asyncio.sleep(start + number * options.sample - time.time())
        samples.take()
        await audit.compare()
        await audit.settle()
        audit.forget_old()
    watching.cancel()
    await load.end()
    await backing_up
    print("the load has ended; waiting for the last runs", flush=True)
    await audit.finish(300)
    for it in sockets:
        it.close()
    return ledger, load, audit, samples, backups


async def back_up(server, seconds, backups):
    """A backup every ten minutes, checked. Each replaces the one before."""
    end = time.monotonic() + seconds
    while time.monotonic() + min(BACKUP_EVERY_S, seconds / 3) < end:
        await asyncio.sleep(min(BACKUP_EVERY_S, seconds / 3))
        copy, began = os.path.join(server.folder, "copy.db"), time.monotonic()
        codes = [await run(server, "backup", "--db", server.db, copy), await run(server, "check", copy)]
        backups.append({"codes": codes, "seconds": round(time.monotonic() - began, 1), "mib": size_mib(copy)})
        print(f"backup {backups[-1]}", flush=True)
        if os.path.exists(copy):
            os.remove(copy)


async def run(server, *arguments):
    process = await asyncio.create_subprocess_exec(
        server.program, *arguments, env=clean_environment(), stdout=subprocess.DEVNULL
    )
    return await process.wait()


def judge(options, ledger, load, samples, backups):
    """What does not hold."""
    broken = []
    for name, (factor, least) in FLAT.items():
        before, after = samples.quarter(2, name), samples.quarter(4, name)
        if after > factor * max(before, least):
            broken.append(f"{name} grew from {before} to {after}")
    rows = samples.rows
    log = (rows[-1]["log_bytes"] - rows[0]["log_bytes"]) / max(1, len(rows) - 1) * 3600 / options.sample
    if log > LOG_BYTES_PER_HOUR:
        broken.append(f"the log grows by {log:.0f} bytes an hour")
    for number in (1, 2, 3, 4):
        if (rate := samples.quarter(number, "per_second")) < LEAST_SHARE_OF_RATE * options.rate:
            broken.append(f"{rate} deliveries a second in quarter {number}")
    if ledger.errors + load.gone:
        broken.append(f"{ledger.errors} requests were refused, {load.gone} had no answer")
    broken += [f"a backup ended with {backup['codes']}" for backup in backups if backup["codes"] != [0, 0]]
    for kind in dict.fromkeys(kind for kind, _ in ledger.faults):
        broken.append(f"{kind}: {ledger.of_kind(kind)}, such as {next(text for it, text in ledger.faults if it == kind)}")
    return broken


def results(options, ledger, audit, samples, backups, broken):
    return {
        "hours": options.hours,
        "rate": options.rate,
        "due_runs": sum(len(grid.runs) for grid in ledger.grids.values()),
        "counts": ledger.counts,
        "acknowledged": ledger.writes,
        "compared_writes": audit.compared,
        "lost_runs": ledger.of_kind("lost run"),
        "lost_writes": ledger.of_kind("lost write"),
        "double_claims": ledger.of_kind("double claim"),
        "other_faults": len(ledger.faults) - sum(map(ledger.of_kind, ("lost run", "lost write", "double claim"))),
        "quarters": {name: [samples.quarter(it, name) for it in (1, 2, 3, 4)] for name in [*FLAT, *SHOWN]},
        "peaks": {name: max(row[name] or 0 for row in samples.rows) for name in [*FLAT, "late_max_ms"]},
        "backups": backups,
        "broken": broken,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("program")
    parser.add_argument("--hours", type=float, default=2)
    parser.add_argument("--rate", type=int, default=200)
    parser.add_argument("--folder")
    parser.add_argument("--report")
    parser.add_argument("--sample", type=float, default=60, help="seconds between samples")
    options = parser.parse_args()
    if options.hours * 3600 < 4 * options.sample:
        parser.error("--hours must be long enough for four samples")
    # Also where a shell has started it in the background, without SIGINT.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with Cued(os.path.abspath(options.program), "--retain", "30", folder=options.folder) as server:
        ledger, load, audit, samples, backups = asyncio.run(soak(server, options))
        server.stop()
        audit.check_file(server.db)
        checked = subprocess.run([server.program, "check", server.db], env=clean_environment(), check=False).returncode
        broken = judge(options, ledger, load, samples, backups)
        broken += ["`cued check` found a problem"] if checked else []
        with open(server.log) as log:
            print("the end of the log:", *log.readlines()[-20:], sep="\n", flush=True)
    found = results(options, ledger, audit, samples, backups, broken)
    for name, value in found.items():
        print(f"{name:16} {value}")
    if options.report:
        with open(options.report, "w") as file:
            json.dump(found | {"samples": samples.rows}, file, indent=1)
    print("all bounds hold" if not broken else "does not hold: " + "; ".join(broken))
    sys.exit(1 if broken else 0)


if __name__ == "__main__":
    main()
