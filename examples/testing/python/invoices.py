"""The application: sends the invoices of a month when it ends in Berlin, and makes reports on request."""

import json
from urllib.request import Request, urlopen


class Invoices:
    def __init__(self, cued_url, key, own_url):
        self.cued_url, self.key, self.own_url = cued_url, key, own_url
        self.sent, self.reports = [], []

    def install(self):
        """Runs once, when the application is deployed."""
        month_end = {"type": "recurring", "cron": "0 0 1 * *", "timezone": "Europe/Berlin"}
        self._call(
            "POST",
            "/v1/cues",
            {
                "name": "invoices",
                "schedule": month_end,
                "callback": {"url": f"{self.own_url}/invoices"},
                "payload": {"send": "invoices"},
                "retry": {"backoff_minutes": [1, 5]},
            },
        )
        report = {
            "name": "report",
            "schedule": month_end,
            "transport": "worker",
            "payload": {"task": "report"},
        }
        self._call("POST", "/v1/cues", report)

    def handle(self, payload):
        """The handler of POST /invoices."""
        self.sent.append(payload["send"])

    def work(self):
        """One turn of the worker: claims the runs that wait, and reports each."""
        for run in self._call("GET", "/v1/executions/claimable")["executions"]:
            claim = self._call("POST", f"/v1/executions/{run['id']}/claim", {"worker_id": "reports"})
            self.reports.append(claim["payload"]["task"])
            self._call("POST", f"/v1/executions/{run['id']}/outcome", {"success": True, "result": "1 page"})

    def _call(self, method, path, body=None):
        headers = {"Authorization": f"Bearer {self.key}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        with urlopen(Request(self.cued_url + path, data, headers, method=method)) as response:
            return json.load(response)
