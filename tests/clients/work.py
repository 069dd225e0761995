"""The handlers of the published worker's tests, run by `cued work`: what they get and what is reported of them.

work.py PATH-TO-CUED
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import worker
from rows import Rows, contains, same
from server import ALONE, Cued, clean_environment

# `cued work` puts nothing of a payload into a command.
TEMPLATES = worker.templates
# Handlers whose report reads otherwise.
OTHERWISE = {}


def otherwise(check):
    """The check in place of that of the same name."""

    def add(own):
        OTHERWISE[check] = own
        return own

    return add


def failed(execution, error):
    worker.failed(execution, error)
    return execution


@otherwise(worker.exit_zero)
def exit_zero(_, execution):
    worker.succeeded(execution, "done\n")
    same(execution["attempts"], 1)
    contains(execution["claimed_by_worker"], "worker-1/")


@otherwise(worker.silent)
def silent(_, execution):
    worker.succeeded(execution, None)


@otherwise(worker.exit_three)
def exit_three(_, execution):
    failed(execution, "bad\nexit code 3")


@otherwise(worker.times_out)
def times_out(_, execution):
    failed(execution, "timed out after 1 s")


@otherwise(worker.times_out_globally)
def times_out_globally(_, execution):
    failed(execution, f"timed out after {worker.LONGEST} s")


@otherwise(worker.code_says_failure)
def code_says_failure(_, execution):
    same(failed(execution, "output\nexit code 1")["evidence"], {"external_id": "x"})


@otherwise(worker.malformed_file)
def malformed_file(_, execution):
    worker.succeeded(execution, "output\n")
    contains(execution["outcome"]["metadata"]["_cued_worker"]["outcome_file"], "is no JSON")


@otherwise(worker.large_file)
def large_file(_, execution):
    """The file may be six times as large here; its content is none."""
    worker.succeeded(execution, None)
    contains(execution["outcome"]["metadata"]["_cued_worker"]["outcome_file"], "is no JSON")


@otherwise(worker.dropped_fields)
def dropped_fields(_, execution):
    metadata = execution["outcome"]["metadata"]
    dropped = metadata["_cued_worker"]["dropped_fields"]
    same((metadata["a"], dropped), (1, ["external_id", "other", "result_url"]))
    same(execution["evidence"], {"summary": "s"})


class World(worker.World):
    def __init__(self, program, server, folder):
        self.program, self.server, self.folder = program, server, folder
        self.key, _ = server.account()
        handlers = {name: it for name, it in worker.HANDLERS.items() if worker.CHECKS[name] is not TEMPLATES}
        self.runs = {name: self.work(self.key, name, worker.PAYLOADS[name]) for name in handlers}
        file = folder / "work.json"
        file.write_text(json.dumps({"tasks": {name: self.task(it) for name, it in handlers.items()}}))
        command = [program, "work", "--file", str(file), "--jobs", "8", "--id", "worker-1", "--pass-key"]
        environment = {**clean_environment(), "CUED_URL": server.url, "CUED_API_KEY": self.key}
        self._log = (folder / "log").open("w+")
        self.process = subprocess.Popen(command, env=environment, stderr=self._log)

    @staticmethod
    def task(handler):
        """The handler with a shell of its own, as the published worker runs it."""
        if isinstance(handler, str):
            handler = {"cmd": handler}
        timeout = min(handler.get("timeout", worker.LONGEST), worker.LONGEST)
        return {"run": ["sh", "-c", handler["cmd"]], "timeout": f"{timeout}s", "env": handler.get("env", {})}

    def stop(self):
        self.process.terminate()
        code = self.process.wait(timeout=60)
        self._log.seek(0)
        return code, self._log.read()


def rows_of(names):
    rows = Rows("cueapi-worker")
    for name in names:
        check = worker.CHECKS[name]
        check = OTHERWISE.get(check, check)
        rows.shows(f"work: {name}")(lambda world, name=name, check=check: check(world, world.result(name)))
    return rows


def main():
    with tempfile.TemporaryDirectory(prefix="cued-work-") as folder, Cued(sys.argv[1], base=ALONE) as server:
        world = World(str(Path(sys.argv[1]).resolve()), server, Path(folder))
        try:
            failed_rows = rows_of(world.runs).run(world, {})
        finally:
            code, log = world.stop()
    same(code, 0)
    contains(log, "worker stopped")
    sys.exit(failed_rows)


if __name__ == "__main__":
    main()
