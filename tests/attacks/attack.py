"""Runs one attack in a process of its own.

An attack is a generator. What it does before its first `yield` is the set-up; after that, each `yield` is the pause in
seconds before its next step. One generator runs for each account (or address), in a thread of its own.
"""

import os
import random
import subprocess
import threading
import traceback

from caller import Caller, HangingReceiver, Tally

ATTACKS = {}


class Attack:
    def __init__(self, steps, accounts, addresses, plan, expect, expect_after_75_s, receiver):
        self.steps, self.name, self.plan, self.receiver = steps, steps.__name__, plan, receiver
        self.accounts, self.addresses = accounts, addresses
        self.expect, self.expect_later = expect, expect_after_75_s or {}

    def unmet(self, tally, seconds):
        wanted = self.expect if seconds >= 60 else dict.fromkeys(self.expect, 1)
        wanted = {**wanted, **(self.expect_later if seconds >= 75 else {})}
        return [
            f"{self.name}: {tally.value(outcome)} x {outcome!r}, at least {least} expected"
            for outcome, least in wanted.items()
            if tally.value(outcome) < least
        ]


def attack(expect, accounts=0, addresses=0, plan=None, expect_after_75_s=None, receiver=False):
    """Registers an attack by some accounts, or by some addresses without a key.

    `expect` has the least counts in a minute without which the attack did not take place. Those of `expect_after_75_s`
    need the rate window to pass once.
    """

    def register(steps):
        ATTACKS[steps.__name__] = Attack(steps, accounts, addresses, plan, expect, expect_after_75_s, receiver)
        return steps

    return register


class Signal:
    """Signals all processes at once. Unlike an event of `multiprocessing`, it has no lock that a process could hold when
    it ends."""

    def __init__(self):
        self.receiver, self.sender = os.pipe()

    def send(self):
        os.close(self.sender)

    def wait(self):
        os.read(self.receiver, 1)


class Outcome:
    """What a process reports at its end."""

    def __init__(self, name, tally, errors):
        self.name, self.tally, self.errors = name, tally, errors


def run(it, number, server, program, database, go, stop, results):
    """The main function of an attacker's process. Attackers give way to the server and the victim on this machine,
    because they would be on others."""
    os.nice(10)
    # This process only receives: the signal is given once no process can send.
    go.send()
    stop.send()
    started, ended = threading.Event(), threading.Event()
    tally, errors, ready = Tally(), [], []
    receiver = HangingReceiver(tally) if it.receiver else None

    def drive(member):
        caller = Caller(server, f"127.1.{number}.{member + 1}", tally, number * 20 + member)
        try:
            if it.accounts:
                email = f"{it.name}{member}@example.com"
                caller.add_account(program, database, email)
                if it.plan:
                    set_plan = [program, "user", "set-plan", "--db", database, email, it.plan]
                    subprocess.run(set_plan, check=True, stdout=subprocess.DEVNULL)
            steps = it.steps(caller, receiver) if receiver else it.steps(caller)
            next(steps)
            ready.append(member)
            if len(ready) == count:
                results.put((it.name, None))
            started.wait()
            for pause in steps:
                if ended.wait(pause * random.uniform(0.8, 1.2)):
                    break
        except Exception:  # noqa: BLE001: the run reports it, whatever it is
            errors.append(f"{it.name}: {traceback.format_exc(limit=-3)}")
            results.put((it.name, None))

    count = it.accounts or it.addresses
    for member in range(count):
        threading.Thread(target=drive, args=(member,), daemon=True).start()
    go.wait()
    started.set()
    stop.wait()
    ended.set()
    results.put((it.name, Outcome(it.name, tally, errors[:])))
    results.close()
    results.join_thread()
    os._exit(0)
