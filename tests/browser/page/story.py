"""One day of an account, always the same: what the pictures show and what the readers of the page look for."""

import json

from rig import Server

DAY = "2026-03-03T08:05:00Z"
OUTAGE = json.dumps({"error": "storage is full", "bucket": "backups", "free_bytes": 0, "request_id": "9f31c0de"})


class Story:
    """Cues that go well, one that fails each night, one that is retried, one for workers, one that is paused."""

    def __init__(self, server: Server, receiver):
        self.server = server
        answers = receiver.answers
        answers["/backup"] = (503, OUTAGE)
        answers["/invoices"] = (200, '{"synced": 12}')
        answers["/newsletter"] = (200, "")
        answers["/thumbnails"] = (200, "ok")
        flaky = self._flaky = {"count": 0}

        def sometimes(_request):
            flaky["count"] += 1
            return (429, "slow down") if flaky["count"] % 5 == 0 else (200, "ok")

        answers["/rates"] = sometimes
        hook = receiver.url
        berlin = "Europe/Berlin"
        retry = {"max_attempts": 3, "backoff_minutes": [1, 5]}
        self.backup = self._cue("nightly-backup", "0 2-5 * * *", berlin, hook + "/backup", retry=retry,
                                description="Copies the database to the storage box.", payload={"bucket": "backups", "keep": 14},
                                overlap="skip", tags=["prod", "nas"])
        self.invoices = self._cue("sync-invoices", "*/15 * * * *", "UTC", hook + "/invoices")
        self.rates = self._cue("exchange-rates", "*/30 * * * *", "UTC", hook + "/rates", retry=retry)
        late = {"max_attempts": 2, "backoff_minutes": [600]}
        self.newsletter = self._cue("newsletter", "0 9 * * 1-5", "America/New_York", hook + "/newsletter", retry=late)
        self.thumbnails = self._cue("thumbnails", "5 * * * *", "UTC", hook + "/thumbnails")
        self.old = self._cue("old-import", "0 6 * * *", "UTC", hook + "/invoices")
        server.patch(f"/v1/cues/{self.old['id']}", {"status": "paused"})
        once = {"type": "once", "at": "2026-03-04T17:00:00+01:00", "timezone": berlin}
        self.reminder = server.cue("renew-certificate", hook + "/newsletter", schedule=once)
        server.call("POST", "/v1/test/clock", {"to": DAY})
        # Waiting runs: a task that no worker took, and a run that is sent again.
        schedule = {"type": "recurring", "cron": "0 * * * *", "timezone": "UTC"}
        self.report = server.cue("monthly-report", transport="worker", schedule=schedule, payload={"task": "report"})
        server.post("/v1/worker/heartbeat", {"worker_id": "nas-1", "handlers": ["report", "mail"]})
        answers["/newsletter"] = (500, "<h1>Internal Server Error</h1>")
        server.post(f"/v1/cues/{self.newsletter['id']}/fire")
        server.post(f"/v1/cues/{self.report['id']}/fire")
        server.call("POST", "/v1/test/clock", {"advance": "PT0S"})
        quiet = {"from": "22:00", "to": "07:00", "timezone": berlin}
        told = {"type": "ntfy", "url": hook + "/backups", "token": "tk_AgQdq7mVBoFD37zQVN29RhuMzNIz2"}
        self.channel = server.post("/v1/channels", {**told, "tags": ["prod"], "quiet": quiet})
        self.failed = server.get(f"/v1/executions?cue_id={self.backup['id']}&status=failed&limit=1")["executions"][0]
        self.done = server.get(f"/v1/executions?cue_id={self.invoices['id']}&status=success&limit=1")["executions"][0]

    def rest(self):
        """Lets a minute pass, so that the requests of another test do not count: a session has 240 in a minute."""
        self.server.call("POST", "/v1/test/clock", {"advance": "PT61S"})
        self.server.post("/v1/worker/heartbeat", {"worker_id": "nas-1", "handlers": ["report", "mail"]})

    def _cue(self, name, cron, zone, url, **more):
        return self.server.cue(name, url, schedule={"type": "recurring", "cron": cron, "timezone": zone}, **more)

    def screens(self):
        """Every screen, (name, hash)."""
        return [
            ("overview", "#/"),
            ("cues", "#/cues"),
            ("cue", f"#/cues/{self.backup['id']}"),
            ("editor", f"#/cues/{self.backup['id']}/edit"),
            ("editor", "#/cues/new"),
            ("runs", "#/runs"),
            ("run", f"#/runs/{self.failed['id']}"),
            ("day", "#/day"),
            ("day", "#/day?span=7d"),
            ("workers", "#/workers"),
            ("alerts", "#/alerts"),
            ("notifications", "#/notifications"),
            ("notifications", "#/notifications/new"),
            ("notifications", "#/notifications/new/telegram"),
            ("notifications", f"#/notifications/{self.channel['id']}"),
            ("plan", "#/account/plan"),
            ("keys", "#/account/keys"),
            ("settings", "#/settings"),
            ("admin", "#/admin"),
            ("admin", "#/admin/backups"),
            ("admin", "#/admin/health"),
            ("missing", "#/nowhere"),
        ]
