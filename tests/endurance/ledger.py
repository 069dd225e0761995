"""The outside ledger: what the server acknowledged to the driver, and what arrived at the receiver.

It is written only from answers of the server and from arrivals, never from the database. A change whose answer was lost
may have been made or not; the ledger then allows both.
"""

import datetime
import math
import time
import zlib

EVERY_S = 10
# What is known of a run that fell due.
NOTHING, ARRIVED, ENDED = 0, 1, 2
# The history of a cue in `--retain` is longer than this. A run that ends later may be deleted at once.
HISTORY_S = 150
# A delivery that began before its cue was deleted may arrive later by this.
AFTER_DELETION_S = 2


def milliseconds(instant):
    return round(datetime.datetime.fromisoformat(instant).timestamp() * 1000)


def instant(seconds):
    moment = datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Grid:
    """A cue that runs every ten seconds, and what is known of each of its runs."""

    def __init__(self, account, cue, first, end, is_webhook):
        self.account, self.cue, self.first, self.is_webhook = account, cue, first, is_webhook
        self.runs = bytearray(math.ceil((end - first) / (EVERY_S * 1000)))
        self.seen, self.open = 0, []

    def note(self, at, state):
        """What was known of the run before, or `None` if the schedule has no such run. A run that has ended stays so."""
        number, rest = divmod(at - self.first, EVERY_S * 1000)
        if rest or not 0 <= number < len(self.runs):
            return None
        before = self.runs[number]
        self.runs[number] = max(before, state)
        return before

    def due(self, number):
        return self.first + number * EVERY_S * 1000

    def unended(self, before):
        """The numbers of the runs due before this, in milliseconds, of which no end is known."""
        while self.seen < len(self.runs) and self.due(self.seen) < before:
            self.open.append(self.seen)
            self.seen += 1
        self.open = [number for number in self.open if self.runs[number] != ENDED]
        return self.open


class Cue:
    """A cue that the server acknowledged."""

    def __init__(self, account, cue, due=None):
        self.account, self.cue, self.due = account, cue, due
        # The values that its description may have.
        self.descriptions = {None}
        self.state = NOTHING
        self.is_deletion_asked, self.deleted_at, self.changes = False, None, 0


class Run:
    """A run that the server acknowledged: it was fired, claimed or reported."""

    def __init__(self, account, cue, run):
        self.account, self.cue, self.run = account, cue, run
        self.worker, self.lease_until, self.scheduled = None, 0, None
        self.asked, self.reported, self.changes = None, None, 0
        self.is_webhook, self.is_kept, self.noted_at = False, False, time.time()
        self.was_held = False

    def may_be_deleted(self):
        """Its id begins with the time of its creation. A cue with a single run keeps it."""
        return not self.is_kept and time.time() - int(self.run.replace("-", "")[:12], 16) / 1000 > HISTORY_S


class Ledger:
    def __init__(self):
        self.grids, self.cues, self.runs = {}, {}, {}
        self.fired_cues, self.arrivals_of_fired = set(), {}
        self.timed_out = set()
        # What changed since it was last compared with the server.
        self.touched = {}
        self.faults, self.lateness = [], []
        self.counts = dict.fromkeys(("delivered", "refused", "repeated", "failed", "events"), 0)
        self.writes = dict.fromkeys(("creates", "edits", "deletes", "fires", "claims", "heartbeats", "outcomes"), 0)
        self.errors = 0

    def fault(self, kind, text):
        """Something that must never happen; `kind` is what is counted."""
        self.faults.append((kind, text))
        print(f"FAULT {kind}: {text}", flush=True)

    def of_kind(self, kind):
        return sum(1 for it, _ in self.faults if it == kind)

    def touch(self, record):
        record.changes += 1
        self.touched[id(record)] = record

    def arrived(self, cue, run, scheduled_for, attempt, now):
        """Notes a delivery; returns the status of the answer, or `None` for no answer at all."""
        answer = self._answer(run, attempt)
        state = ENDED if answer == 200 else ARRIVED
        self.counts["delivered" if answer == 200 else "refused"] += 1
        at = milliseconds(scheduled_for)
        if attempt == 1:
            self.lateness.append(now * 1000 - at)
        if grid := self.grids.get(cue):
            before = grid.note(at, state)
            if before is None:
                self.fault("unexpected run", f"{cue} ran at {scheduled_for}")
            self.counts["repeated"] += before == ENDED
        elif cue in self.fired_cues:
            earlier = self.arrivals_of_fired.get(run, (NOTHING, 0))[0]
            self.counts["repeated"] += earlier == ENDED
            self.arrivals_of_fired[run] = (max(earlier, state), now)
        elif record := self.cues.get(cue):
            if record.deleted_at and now > record.deleted_at + AFTER_DELETION_S:
                self.fault("run of a deleted cue", f"{cue} was deleted at {instant(record.deleted_at)} and ran at {scheduled_for}")
            self.counts["repeated"] += record.state == ENDED
            record.state = max(record.state, state)
        return answer

    def _answer(self, run, attempt):
        """Of a thousand runs two fail for good, 28 at first with a 500, and three at first with a timeout."""
        number = zlib.crc32(run.encode()) % 1000
        if number < 2 or (attempt == 1 and number < 30):
            return 500
        if attempt == 1 and number < 33 and run not in self.timed_out:
            # Once: an attempt that a kill cuts off does not count, and would never end where a life is shorter.
            self.timed_out.add(run)
            return None
        return 200

    def claimed(self, account, reply, worker, asked_at):
        """Notes an acknowledged claim; returns its record."""
        run = reply["execution_id"]
        record = self.runs.get(run) or Run(account, reply["cue_id"], run)
        if record.reported is not None:
            self.fault("double claim", f"{run} was reported and then claimed by {worker}")
        elif record.worker and time.time() < record.lease_until:
            self.fault("double claim", f"{run} is held by {record.worker} and was claimed by {worker}")
        record.worker, record.lease_until = worker, asked_at + reply["lease_seconds"]
        record.scheduled = milliseconds(reply["scheduled_for"])
        self.runs[run] = record
        self.writes["claims"] += 1
        grid = self.grids.get(record.cue)
        if grid and grid.note(record.scheduled, ARRIVED) is None:
            self.fault("unexpected run", f"{record.cue} ran at {reply['scheduled_for']}")
        self.touch(record)
        return record

    def reported(self, record, result):
        record.reported = result
        # Else another claim, whose answer was lost, may have followed.
        record.was_held = time.time() < record.lease_until
        self.writes["outcomes"] += 1
        if grid := self.grids.get(record.cue):
            grid.note(record.scheduled, ENDED)
        self.touch(record)
