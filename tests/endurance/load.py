"""The load: cues that are due all the time, and users, workers and pages beside them.

Every answer is noted in the ledger. Where the server ends before it answers, an activity waits for the next one and goes
on as its user would: a worker repeats its report, under the name of its claim.
"""

import asyncio
import itertools
import random
import time

from api import Api, Gone, Refused
from ledger import ENDED, EVERY_S, Cue, Grid, Run, instant, milliseconds

WORKER_CUES_EVERY = 40
FIRED_CUES = 300
RETRY = {"max_attempts": 3, "backoff_seconds": [3]}
SILENT = {"email": False}
# How long a worker works at a run, at most: kills come between its claim and its report.
WORK_S = 0.6
# Claims of workers that never come back.
LOST_SHARE = 0.003
NEVER = {"type": "once", "at": "2099-01-01T00:00:00Z"}


class Load:
    def __init__(self, server_port, keys, ledger, urls, rate, keeps=False):
        self.port, self.keys, self.ledger, self.urls, self.rate = server_port, keys, ledger, urls, rate
        # Whether cues of the activities stay, so that they are there for the last look.
        self.keeps = keeps
        self.is_up, self.is_stopping, self.life = asyncio.Event(), False, 0
        self.is_up.set()
        self.numbers, self.tasks = itertools.count(), []
        self.to_delete = {account: [] for account in range(len(keys))}
        # The account of the workers has no webhooks that fall due.
        self.users, self.workers = range(1, len(keys)), 0
        self.grids, self.gone = [], 0

    def api(self, account):
        return Api(self.port, self.keys[account])

    async def prepare(self, seconds):
        """Cues of which `rate` fall due in every second, from a few seconds on; returns the time of the first run."""
        count = self.rate * EVERY_S
        # Creating takes a while: the schedule begins after it.
        start = time.time() + 10 + count / 100
        todo = iter(range(count + count // WORKER_CUES_EVERY))

        async def create(account):
            api, api_of_workers = self.api(account), self.api(self.workers)
            for number in todo:
                # Those of workers are beside the rate of the webhooks.
                if number >= count:
                    await self._create_grid(api_of_workers, self.workers, number, start, seconds, None)
                else:
                    await self._create_grid(api, account, number, start, seconds, self.urls[number % len(self.urls)])

        await asyncio.gather(*(create(account) for account in self.users))
        for number in range(FIRED_CUES):
            account = self.users[number % len(self.users)]
            body = self._body(f"fired-{number}", NEVER, self.urls[number % len(self.urls)])
            _, reply = await self.api(account).call("POST", "/v1/cues", body, {201})
            self.ledger.fired_cues.add(reply["id"])
            self.ledger.cues[reply["id"]] = Cue(account, reply["id"])
        self.grids = list(self.ledger.grids.values())
        assert time.time() < start, "the machine is too slow to create the cues in time"
        return start

    def _body(self, name, schedule, url, **more):
        target = {"callback": {"url": url, "timeout_seconds": 2}} if url else {"transport": "worker"}
        payload = {"name": name, "text": "x" * 100}
        return {"name": name, "schedule": schedule, "payload": payload, "retry": RETRY, "on_failure": SILENT} | target | more

    async def _create_grid(self, api, account, number, start, seconds, url):
        # Spread evenly over the ten seconds, to the millisecond.
        first = start + number % (self.rate * EVERY_S) / self.rate
        schedule = {
            "type": "recurring",
            "every": f"{EVERY_S}s",
            "start": instant(first),
            "end": instant(start + seconds),
            "catch_up": "all",
        }
        _, reply = await api.call("POST", "/v1/cues", self._body(f"grid-{number}", schedule, url), {201})
        end = milliseconds(reply["schedule"]["end"])
        grid = Grid(account, reply["id"], milliseconds(reply["next_run"]), end, url is not None)
        self.ledger.grids[reply["id"]] = grid
        self.ledger.cues[reply["id"]] = Cue(account, reply["id"])

    def begin(self, pause, workers=8, streams=3):
        """Starts the activities, each with `pause` seconds between its steps."""
        steps = [(self.edit, account, 2 * pause) for account in self.users]
        steps += [(self.churn, account, pause) for account in self.users]
        steps += [(self.fire, account, pause) for account in self.users]
        steps += [(self.task, self.workers, 2 * pause)] if self.keeps else []
        for activity, account, between in steps:
            self.tasks.append(asyncio.create_task(self._repeat(activity, self.api(account), account, between)))
        for number in range(workers):
            worker = Worker(self, number)
            self.tasks.append(asyncio.create_task(self._repeat(worker.step, worker.api, self.workers, pause / 2)))
        for number in range(streams):
            account = number % len(self.keys)
            self.tasks.append(asyncio.create_task(self._repeat(self.follow, self.api(account), account, 1)))

    async def _repeat(self, activity, api, account, pause):
        while not self.is_stopping:
            try:
                await activity(api, account)
            except Gone:
                self.gone += 1
            except Refused as error:
                self.ledger.errors += 1
                print(f"error: {error}", flush=True)
            await self.is_up.wait()
            await asyncio.sleep(pause * random.uniform(0.5, 1.5))

    async def end(self):
        """Lets the steps that have begun end; an event stream has no end of its own."""
        self.is_stopping = True
        self.is_up.set()
        await asyncio.wait(self.tasks, timeout=20)
        for task in self.tasks:
            task.cancel()
        for result in await asyncio.gather(*self.tasks, return_exceptions=True):
            if isinstance(result, Exception) and not isinstance(result, asyncio.CancelledError):
                raise result

    async def churn(self, api, account):
        """A cue that runs once: created, changed, and deleted before it is due or when it has ended, or kept."""
        due = time.time() + random.uniform(3, 8)
        name = f"once-{next(self.numbers)}"
        body = self._body(name, {"type": "once", "at": instant(due)}, random.choice(self.urls))
        _, reply = await api.call("POST", "/v1/cues", body, {201})
        record = Cue(account, reply["id"], milliseconds(reply["next_run"]))
        self.ledger.cues[record.cue] = record
        self.ledger.writes["creates"] += 1
        self.ledger.touch(record)
        await self._describe(api, record)
        if random.random() < 0.25:
            await self._delete(api, record)
        elif not self.keeps or random.random() < 0.4:
            self.to_delete[account].append(record)
        before = (time.time() - 20) * 1000
        for record in [it for it in self.to_delete[account] if it.state == ENDED and it.due < before]:
            self.to_delete[account].remove(record)
            await self._delete(api, record)

    async def edit(self, api, account):
        """A change of a cue that is due every ten seconds, which moves none of its runs."""
        grids = [grid for grid in random.sample(self.grids, 10) if grid.account == account]
        if grids:
            await self._describe(api, self.ledger.cues[grids[0].cue])

    async def _describe(self, api, record):
        text = f"edit {next(self.numbers)}"
        record.descriptions.add(text)
        record.changes += 1
        await api.call("PATCH", f"/v1/cues/{record.cue}", {"description": text}, {200})
        record.descriptions = {text}
        self.ledger.writes["edits"] += 1
        self.ledger.touch(record)

    async def _delete(self, api, record):
        record.is_deletion_asked = True
        record.changes += 1
        await api.call("DELETE", f"/v1/cues/{record.cue}", None, {204})
        record.deleted_at = time.time()
        self.ledger.writes["deletes"] += 1
        self.ledger.touch(record)

    async def fire(self, api, account):
        cue = random.choice([cue for cue in self.ledger.fired_cues if self.ledger.cues[cue].account == account])
        await self._fire(api, account, cue, True)

    async def _fire(self, api, account, cue, is_webhook):
        _, reply = await api.call("POST", f"/v1/cues/{cue}/fire", {}, {200})
        run = reply["execution_id"]
        # A worker may have claimed it before this answer arrived.
        record = self.ledger.runs.setdefault(run, Run(account, cue, run))
        record.is_webhook, record.is_kept = is_webhook, not is_webhook
        self.ledger.writes["fires"] += 1
        self.ledger.touch(record)

    async def task(self, api, account):
        """A cue of the workers with a single run, so that its history is kept."""
        body = self._body(f"task-{next(self.numbers)}", NEVER, None)
        _, reply = await api.call("POST", "/v1/cues", body, {201})
        record = Cue(account, reply["id"])
        self.ledger.cues[record.cue] = record
        self.ledger.writes["creates"] += 1
        self.ledger.touch(record)
        await self._fire(api, account, record.cue, False)

    async def follow(self, api, account):
        """A page that is open."""

        def note(events):
            self.ledger.counts["events"] += events

        await api.follow("/v1/events", note)


class Worker:
    """Claims, extends the lease, reports. After a lost answer it repeats the report."""

    def __init__(self, load, number):
        self.load, self.ledger, self.number = load, load.ledger, number
        self.api = load.api(load.workers)
        self.held, self.name, self.seen_at = None, None, 0

    async def step(self, api, _):
        if self.held:
            # Long enough for others to claim, if the claim was lost.
            await asyncio.sleep(random.uniform(0, WORK_S))
            await self._report(api)
        name = f"worker-{self.number}-{self.load.life}"
        if self.name != name or time.time() > self.seen_at + 60:
            await api.call("POST", "/v1/worker/heartbeat", {"worker_id": name, "handlers": []}, {200})
            self.name, self.seen_at = name, time.time()
            self.ledger.writes["heartbeats"] += 1
        if random.random() < LOST_SHARE:
            await self._claim(api, f"lost-{self.number}-{next(self.load.numbers)}")
            return
        self.held = await self._claim(api, name)
        if self.held:
            asked_at = time.time()
            await api.call("POST", f"/v1/executions/{self.held.run}/heartbeat", None, {200})
            self.held.lease_until = asked_at + 900
            self.ledger.writes["heartbeats"] += 1
            await asyncio.sleep(random.uniform(0, WORK_S))
            await self._report(api)

    async def _claim(self, api, name):
        asked_at = time.time()
        status, reply = await api.call("POST", "/v1/executions/claim", {"worker_id": name}, {200, 409})
        return self.ledger.claimed(self.load.workers, reply, name, asked_at) if status == 200 else None

    async def _report(self, api):
        record = self.held
        was_asked = record.asked is not None
        record.asked = record.asked or f"{record.worker} {next(self.load.numbers)}"
        record.changes += 1
        success = random.random() > 0.05
        body = {"success": success, "result": record.asked}
        status, reply = await api.call("POST", f"/v1/executions/{record.run}/outcome", body, {200, 404, 409})
        self.held = None
        if status == 200 or (was_asked and (status == 409 or record.may_be_deleted())):
            self.ledger.reported(record, record.asked)
        else:
            self.ledger.fault("lost write", f"the claim of {record.run} by {record.worker}: {status} {reply}")
