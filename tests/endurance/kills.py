#!/usr/bin/env python3
"""Kill one server again and again under load, and see whether anything that it acknowledged is lost.

    tests/endurance/kills.py PROGRAM --kills 2000 [--hours 2] [--rate 200] [--folder DIR] [--report FILE]

The load is that of `soak.py`, with more writes. The server is killed (SIGKILL) 0.1 to 1.5 seconds after it accepts
connections, and started again on the same file. After each start the acknowledged writes of the lives before are read
back, and while the load runs every run that fell due must arrive or be recorded; at the end all of it once more, through
the API and in the file. A delivery may be repeated. A claim that is answered while another one of the same run lasts is a
double claim.

Exits with 1 and names what was lost. Ends after so many hours even if fewer kills were made. Needs Linux and Python's
standard library.
"""

import argparse
import asyncio
import json
import os
import random
import signal
import socket
import statistics
import subprocess
import sys
import time

sys.path.insert(1, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "clients"))

from api import Gone  # noqa: E402
from audit import Audit  # noqa: E402
from ledger import Ledger  # noqa: E402
from load import Load  # noqa: E402
from receiver import listen  # noqa: E402
from server import Cued, clean_environment  # noqa: E402

ACCOUNTS = 5
LIFE_S = (0.1, 1.5)
SETTLE_EVERY_S = 20
# For the last retries and claims, after the last kill.
PATIENCE_S = 300


class Kills:
    def __init__(self, server, load, audit):
        self.server, self.load, self.audit, self.ledger = server, load, audit, load.ledger
        self.count, self.start_ms, self.began = 0, [], time.monotonic()

    async def one(self):
        await asyncio.sleep(random.uniform(*LIFE_S))
        self.load.is_up.clear()
        self.server.kill()
        began = time.monotonic()
        await asyncio.to_thread(self.server.start, f"127.0.0.1:{self.load.port}")
        self.start_ms.append((time.monotonic() - began) * 1000)
        self.count += 1
        self.load.life += 1
        self.load.is_up.set()

    async def look(self):
        """Compares all the time: what a kill interrupts goes on in the next life."""
        settled_at = time.monotonic()
        while not self.load.is_stopping:
            await self.load.is_up.wait()
            try:
                await self.audit.compare()
                if time.monotonic() > settled_at + SETTLE_EVERY_S:
                    await self.audit.settle()
                    settled_at = time.monotonic()
            except Gone:
                pass
            await asyncio.sleep(0.02)

    def line(self):
        ledger = self.ledger
        print(
            f"{self.count} kills in {time.monotonic() - self.began:.0f} s  start {statistics.median(self.start_ms[-100:]):.0f} ms"
            f"  file {os.path.getsize(self.server.db) >> 20} MiB  delivered {ledger.counts['delivered']}"
            f"  repeated {ledger.counts['repeated']}  acknowledged {sum(ledger.writes.values())}"
            f"  read back {self.audit.compared}  to read {len(ledger.touched)}  cut off {self.load.gone}"
            f"  errors {ledger.errors}  faults {len(ledger.faults)}",
            flush=True,
        )


async def kill_again_and_again(server, options):
    ledger = Ledger()
    sockets, urls = await listen(ledger)
    keys = [server.account()[0] for _ in range(ACCOUNTS)]
    load = Load(int(server.url.rsplit(":", 1)[1]), keys, ledger, urls, options.rate, keeps=True)
    # Falling due ends with the time; after the last kill the rest of the schedule is cut off.
    start = await load.prepare(options.hours * 3600)
    await asyncio.sleep(start - time.time())
    audit = Audit(load)
    kills = Kills(server, load, audit)
    load.begin(0.15)
    looking = asyncio.create_task(kills.look())
    while kills.count < options.kills and time.time() < start + options.hours * 3600:
        await kills.one()
        if looking.done():
            break
        if kills.count % 20 == 0:
            kills.line()
    await load.end()
    await looking
    await cut_off(load)
    await audit.finish(PATIENCE_S)
    kills.line()
    for it in sockets:
        it.close()
    return ledger, load, audit, kills


async def cut_off(load):
    """Pauses the cues that are due all the time. What was due before has fired; the ledger ends there too."""
    for grid in load.ledger.grids.values():
        api = load.api(grid.account)
        _, reply = await api.call("PATCH", f"/v1/cues/{grid.cue}", {"status": "paused"}, {200, 409})
        api.close()
        if "run_count" in reply:
            end = time.time() * 1000
            _, reply = await api.call("GET", f"/v1/cues/{grid.cue}", None, {200})
            api.close()
            last = sum(1 for number in range(len(grid.runs)) if grid.due(number) <= end)
            # The one that fell due while the request was under way is either in or out.
            grid.runs = grid.runs[: max(min(last, reply["run_count"]), last - 1)]


def results(options, ledger, load, audit, kills):
    return {
        "kills": kills.count,
        "seconds": round(time.monotonic() - kills.began),
        "rate": options.rate,
        "start_ms": {
            "median": round(statistics.median(kills.start_ms)),
            "max": round(max(kills.start_ms)),
        },
        "due_runs": sum(len(grid.runs) for grid in ledger.grids.values()),
        "counts": ledger.counts,
        "acknowledged": ledger.writes,
        "compared_writes": audit.compared,
        "cut_off_requests": load.gone,
        "lost_writes": ledger.of_kind("lost write"),
        "lost_runs": ledger.of_kind("lost run"),
        "double_claims": ledger.of_kind("double claim"),
        "other_faults": len(ledger.faults) - sum(map(ledger.of_kind, ("lost run", "lost write", "double claim"))),
        "errors": ledger.errors,
    }


def free_port():
    """A port below those that outgoing connections get, which could take it between a kill and a start."""
    while True:
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", random.randrange(20_000, 30_000)))
                return probe.getsockname()[1]
            except OSError:
                continue


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("program")
    parser.add_argument("--kills", type=int, default=2000)
    parser.add_argument("--hours", type=float, default=2)
    parser.add_argument("--rate", type=int, default=200)
    parser.add_argument("--folder")
    parser.add_argument("--report")
    options = parser.parse_args()
    # Also where a shell has started it in the background, without SIGINT.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    listen_at = f"127.0.0.1:{free_port()}"
    flags = ("--retain", "20")
    with Cued(os.path.abspath(options.program), *flags, folder=options.folder, listen=listen_at) as server:
        ledger, load, audit, kills = asyncio.run(kill_again_and_again(server, options))
        server.stop()
        audit.check_file(server.db)
        checked = subprocess.run([server.program, "check", server.db], env=clean_environment(), check=False).returncode
        with open(server.log) as log:
            print("the end of the log:", *log.readlines()[-10:], sep="\n", flush=True)
    found = results(options, ledger, load, audit, kills)
    for name, value in found.items():
        print(f"{name:16} {value}")
    if options.report:
        with open(options.report, "w") as file:
            json.dump(found, file, indent=1)
    broken = [f"{kind}: {text}" for kind, text in ledger.faults[:10]]
    broken += ["`cued check` found a problem"] if checked else []
    broken += [f"the time was over after {kills.count} kills"] if kills.count < options.kills else []
    broken += [f"{ledger.errors} requests were refused"] if ledger.errors else []
    print("nothing was lost" if not broken else "does not hold: " + "; ".join(broken))
    sys.exit(1 if broken else 0)


if __name__ == "__main__":
    main()
