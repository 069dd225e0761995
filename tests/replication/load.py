"""The load of a replicated server: callers that create cues, fire them and report outcomes, and what was acknowledged."""

import http.client
import json
import threading
import time
import urllib.parse

THREADS = 4


class Caller:
    """One connection with a key. Every answer must be a success."""

    def __init__(self, url, key=None):
        self._address = urllib.parse.urlsplit(url).netloc
        self._connection = http.client.HTTPConnection(self._address, timeout=30)
        self._headers = {"Content-Type": "application/json"}
        if key:
            self._headers["Authorization"] = f"Bearer {key}"

    def call(self, method, path, body=None):
        status, answer = self.answer(method, path, body)
        if status >= 300:
            raise AssertionError(f"{method} {path}: {status} {answer}")
        return answer

    def answer(self, method, path, body=None):
        data = None if body is None else json.dumps(body)
        self._connection.request(method, path, data, self._headers)
        response = self._connection.getresponse()
        return response.status, json.loads(response.read() or b"null")


class Load:
    """Callers that write until they are stopped, or until the server is gone."""

    def __init__(self, url, key):
        self._url, self._key = url, key
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        # Of each acknowledged write: when, by the monotonic clock, and how long the caller waited.
        self.waits = []
        # Ids of cues and executions with an acknowledged outcome, with the time of the answer.
        self.cues, self.outcomes = {}, {}
        self.error = None
        self._threads = [threading.Thread(target=self._run, args=(number,)) for number in range(THREADS)]
        for thread in self._threads:
            thread.start()

    def stop(self):
        self._stopping.set()
        for thread in self._threads:
            thread.join()
        if self.error:
            raise self.error

    def expect_end(self):
        """The server is about to be killed: an unanswered request is no error."""
        self._stopping.set()

    def _run(self, number):
        caller = Caller(self._url, self._key)
        try:
            while not self._stopping.is_set():
                self._round(caller, number)
        except (OSError, http.client.HTTPException) as error:
            self._keep(error)
        except AssertionError as error:
            self.error = error

    def _keep(self, error):
        if not self._stopping.is_set():
            self.error = error

    def _round(self, caller, number):
        schedule = {"type": "recurring", "cron": "0 0 1 1 *"}
        cue = self._timed(caller, "/v1/cues", {
            "name": f"load {number}", "transport": "worker", "schedule": schedule, "payload": {"text": "x" * 200},
        })["id"]
        self.cues[cue] = time.monotonic()
        execution = self._timed(caller, f"/v1/cues/{cue}/fire", {})["execution_id"]
        self._timed(caller, f"/v1/executions/{execution}/claim", {"worker_id": f"w{number}"})
        self._timed(caller, f"/v1/executions/{execution}/outcome", {"success": True, "result": "done"})
        self.outcomes[execution] = time.monotonic()

    def _timed(self, caller, path, body):
        begin = time.monotonic()
        answer = caller.call("POST", path, body)
        end = time.monotonic()
        with self._lock:
            self.waits.append((end, end - begin))
        return answer


def summary(waits, seconds):
    """A line about the waits of callers."""
    ordered = sorted(wait for _, wait in waits)
    at = lambda share: ordered[min(len(ordered) - 1, int(len(ordered) * share))] * 1e3  # noqa: E731
    return (f"{len(ordered) / seconds:6.0f} writes/s, {at(0.5):5.1f} ms median, {at(0.99):6.1f} ms 99th percentile, "
            f"{ordered[-1] * 1e3:6.1f} ms longest")
