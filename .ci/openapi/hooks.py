"""What random requests need to reach the code: an address of their own, and ids that exist."""

import itertools
import json
import os
import urllib.request

import requests
import schemathesis

URL, KEY = os.environ["CUED_URL"], os.environ["CUED_API_KEY"]
WORKER_CUE = {
    "name": "schemathesis",
    "schedule": {"type": "recurring", "cron": "0 0 1 1 *"},
    "transport": "worker",
    "payload": {"task": "schemathesis"},
}
numbers = itertools.count()


def call(method, path, body=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(URL + path, data, {"Authorization": f"Bearer {KEY}"}, method=method)
    with urllib.request.urlopen(request) as response:
        return json.loads(response.read() or b"null")


def cue():
    return call("POST", "/v1/cues", WORKER_CUE)["id"]


def execution():
    return call("POST", f"/v1/cues/{cue()}/fire", {})["id"]


def worker():
    name = f"worker-{next(numbers)}"
    call("POST", "/v1/worker/heartbeat", {"worker_id": name, "handlers": []})
    return name


MAKERS = {"cue_id": cue, "execution_id": execution, "worker_id": worker}


class Adapter(requests.adapters.HTTPAdapter):
    """Sends each request from another client address: those without a key share a rate window of 60 per address."""

    def send(self, request, *arguments, **options):
        number = next(numbers)
        request.headers["X-Forwarded-For"] = f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"
        return super().send(request, *arguments, **options)


# A header that a hook adds to a request makes schemathesis count it as another one, and some of its requests pass no
# hook.
requests.sessions.HTTPAdapter = Adapter


@schemathesis.hook
def before_call(context, case, kwargs):
    """Every second request that fits the description is about an object of its own, which exists."""
    is_valid = case.meta is None or case.meta.generation.mode.value == "positive"
    if is_valid and next(numbers) % 2:
        for name in set(case.path_parameters or {}) & set(MAKERS):
            case.path_parameters[name] = MAKERS[name]()
