"""Compares the ledger with the server: through the API while the load runs, and with the file when it has ended."""

import asyncio
import sqlite3
import time

from ledger import ARRIVED, ENDED, NOTHING, instant, milliseconds

# A run with all its attempts takes less than this, also beside a busy machine.
SETTLED_AFTER_S = 45


class Audit:
    def __init__(self, load):
        self.load, self.ledger = load, load.ledger
        self.apis = [load.api(account) for account in range(len(load.keys))]
        self.compared = 0

    async def compare(self):
        """Every acknowledged write since the last call must be there."""
        for key, record in list(self.ledger.touched.items()):
            changes = record.changes
            is_run = hasattr(record, "run")
            path = f"/v1/executions/{record.run}" if is_run else f"/v1/cues/{record.cue}"
            status, reply = await self.apis[record.account].call("GET", path, None, {200, 404})
            # What was changed meanwhile is looked at again.
            if changes == record.changes:
                fault = wrong_run(record, status, reply) if is_run else wrong_cue(record, status, reply)
                if fault:
                    self.ledger.fault("lost write", fault)
                self.compared += 1
                self.ledger.touched.pop(key, None)

    async def settle(self, age=SETTLED_AFTER_S):
        """Every run that fell due so long ago must have arrived, or be recorded; returns how many are still under way.

        Runs of workers count at the end only: a claim that is lost takes 15 minutes.
        """
        before, open_runs = (time.time() - age) * 1000, 0
        for number, grid in enumerate(it for it in self.ledger.grids.values() if it.is_webhook or not age):
            for late in list(grid.unended(before)):
                at = grid.due(late)
                if await self._has_ended(grid, at, grid.runs[late], grid.is_webhook):
                    grid.runs[late] = ENDED
                else:
                    open_runs += 1
            if number % 100 == 0:
                await asyncio.sleep(0)
        for cue in list(self.ledger.cues.values()):
            if cue.due and cue.due < before and cue.state != ENDED and not cue.is_deletion_asked:
                if await self._has_ended(cue, cue.due, cue.state, True):
                    cue.state = ENDED
                else:
                    open_runs += 1
        return open_runs + await self._settle_fired(before / 1000)

    async def _has_ended(self, record, at, state, is_webhook):
        """Whether the server has a result for a run without an arrival that was answered 200. It must have the run."""
        path = f"/v1/executions?cue_id={record.cue}&limit=100"
        _, reply = await self.apis[record.account].call("GET", path, None, {200})
        if getattr(record, "is_deletion_asked", False):
            return True
        runs = [run for run in reply["executions"] if milliseconds(run["scheduled_for"]) == at]
        if not runs:
            self.ledger.fault("lost run", f"{record.cue} at {instant(at / 1000)}: neither delivered nor recorded")
            return True
        return self._is_result(runs[0], state, is_webhook)

    def _is_result(self, run, state, is_webhook):
        if run["status"] == "success" and is_webhook:
            what = "was refused by" if state == ARRIVED else "did not arrive at"
            self.ledger.fault("lost run", f"{run['id']} is recorded as a success, and {what} the receiver")
        elif run["status"] not in ("success", "failed"):
            return False
        self.ledger.counts["failed"] += run["status"] == "failed" and is_webhook
        return True

    async def _settle_fired(self, before):
        open_runs = 0
        for record in [run for run in self.ledger.runs.values() if run.is_webhook and run.noted_at < before]:
            state = self.ledger.arrivals_of_fired.get(record.run, (NOTHING, 0))[0]
            if state != ENDED:
                _, run = await self.apis[record.account].call("GET", f"/v1/executions/{record.run}", None, {200, 404})
                if "status" not in run:
                    self.ledger.fault("lost run", f"{record.run} was fired: neither delivered nor recorded")
                elif not self._is_result(run, state, True):
                    open_runs += 1
                    continue
            self._forget(record)
        # Of fires whose answer was lost.
        for run, (_, at) in list(self.ledger.arrivals_of_fired.items()):
            if at < before - 600 and run not in self.ledger.runs:
                del self.ledger.arrivals_of_fired[run]
        return open_runs

    def _forget(self, record):
        if id(record) not in self.ledger.touched:
            del self.ledger.runs[record.run]
            self.ledger.arrivals_of_fired.pop(record.run, None)

    def forget_old(self):
        """What has ended and was compared: the ledger of a long run stays small."""
        before = time.time() - 1200
        for record in list(self.ledger.runs.values()):
            if record.reported is not None and record.noted_at < before and id(record) not in self.ledger.touched:
                del self.ledger.runs[record.run]
        for record in list(self.ledger.cues.values()):
            if record.deleted_at and record.deleted_at < before and id(record) not in self.ledger.touched:
                del self.ledger.cues[record.cue]

    async def finish(self, patience, every=5):
        """After the load: claims what is left as workers do, and waits until nothing is under way."""
        deadline = time.time() + patience
        # After a kill their connections are those of an earlier life.
        for api in self.apis:
            api.close()
        await self._drain()
        while True:
            await self.compare()
            open_runs = await self.settle(0)
            if not open_runs:
                return
            if time.time() > deadline:
                self.ledger.fault("lost run", f"{open_runs} runs have not ended")
                return
            await asyncio.sleep(every)

    async def _drain(self):
        """Claims of workers that are lost end here; so do those whose answer was lost."""
        account, name = self.load.workers, "the-last"
        api, open_claims = self.apis[account], True
        while open_claims:
            asked_at = time.time()
            status, reply = await api.call("POST", "/v1/executions/claim", {"worker_id": name}, {200, 409})
            open_claims = status == 200
            if open_claims:
                await self._report(self.ledger.claimed(account, reply, name, asked_at))
        while True:
            path = "/v1/executions?status=delivering&limit=100"
            _, reply = await api.call("GET", path, None, {200})
            for run in reply["executions"]:
                record = self.ledger.runs.get(run["id"])
                if record:
                    await self._report(record)
                else:
                    body = {"success": True, "result": name}
                    await api.call("POST", f"/v1/executions/{run['id']}/outcome", body, {200})
                    if grid := self.ledger.grids.get(run["cue_id"]):
                        grid.note(milliseconds(run["scheduled_for"]), ENDED)
            if not reply["executions"]:
                return

    async def _report(self, record):
        body = {"success": True, "result": "the-last"}
        await self.apis[record.account].call("POST", f"/v1/executions/{record.run}/outcome", body, {200})
        record.asked = "the-last"
        self.ledger.reported(record, record.asked)

    def check_file(self, path):
        """The file, read by SQLite alone: all cues and kept runs of the ledger, and all due runs counted."""
        file = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
        cues = {row[0]: row[1:] for row in file.execute("SELECT id, description, run_count, missed_count FROM cues")}
        for record in self.ledger.cues.values():
            stored = cues.get(record.cue)
            if record.deleted_at:
                if stored:
                    self.ledger.fault("lost write", f"the deletion of {record.cue}")
            elif stored is None and not record.is_deletion_asked:
                self.ledger.fault("lost write", f"{record.cue} is not in the file")
            elif stored and stored[0] not in record.descriptions:
                self.ledger.fault("lost write", f"{record.cue} has the description {stored[0]}")
        for grid in self.ledger.grids.values():
            if cues.get(grid.cue, (0, 0, 0))[1:] != (len(grid.runs), 0):
                self.ledger.fault("lost run", f"{grid.cue} fell due {len(grid.runs)} times; the file: {cues.get(grid.cue)}")
        sql = "SELECT lower(hex(e.id)), o.result, e.claimed_by_worker FROM executions e LEFT JOIN outcomes o \
               ON o.execution_key = e.key WHERE transport = 'worker'"
        runs = {row[0]: row[1:] for row in file.execute(sql)}
        for record in (run for run in self.ledger.runs.values() if run.is_kept):
            stored = runs.get(record.run.replace("-", ""))
            # The answer to the last report may be lost, and that to the last claim.
            results = {record.reported} if record.reported else {record.asked, None}
            if not stored or stored[0] not in results or (record.was_held and stored[1] != record.worker):
                self.ledger.fault("lost write", f"{record.run}: {results} of {record.worker}; the file: {stored}")
        unended = "SELECT count(*) FROM executions WHERE status NOT IN ('success', 'failed')"
        if count := file.execute(unended).fetchone()[0]:
            self.ledger.fault("lost run", f"{count} runs of the file have not ended")
        file.close()


def wrong_cue(record, status, reply):
    if record.deleted_at:
        return None if status == 404 else f"the deletion of {record.cue}"
    if record.is_deletion_asked:
        return None
    if status == 404:
        return f"{record.cue} was created and does not exist"
    allowed = record.descriptions
    return None if reply["description"] in allowed else f"{record.cue} has {reply['description']}, not {allowed}"


def wrong_run(record, status, reply):
    if status == 404:
        if record.may_be_deleted():
            return None
        return f"{record.run} was acknowledged and does not exist"
    result = reply.get("outcome", {}).get("result")
    if record.reported is not None:
        if record.was_held and reply["claimed_by_worker"] != record.worker:
            return f"{record.run} was held by {reply['claimed_by_worker']}, not by {record.worker}"
        return None if result == record.reported else f"{record.run} has the result {result}, not {record.reported}"
    if result is not None and result != record.asked:
        return f"{record.run} has the result {result}, which nobody reported"
    if record.worker and time.time() < record.lease_until and reply["claimed_by_worker"] != record.worker:
        return f"{record.run} is held by {reply['claimed_by_worker']}, not by {record.worker}"
    return None
