"""The list that a run prints: a row for everything that a client can do, with what became of it.

What there is, is found in the installed client; a thing without a test, a test without a thing, and a parameter that no
test gives are failures. `client's fault` is a call that cannot work against any server that keeps to the contract:
its test shows the fault, so that the row fails as soon as the client is mended.
"""

import importlib.util
import inspect
import sys
import traceback
from importlib.metadata import version
from pathlib import Path


class Rows:
    def __init__(self, package):
        self._package = package
        self._tests = []
        self._covered = set()
        self._given = {}
        self._counts = {"pass": 0, "FAIL": 0, "client's fault": 0}

    def covers(self, *names):
        """The test of one thing or more that the client can do."""

        def add(test):
            self._covered.update(names)
            self._tests += [(name, test if name == names[0] else None, None) for name in names]
            return test

        return add

    def shows(self, name):
        """The test of how the client behaves."""

        def add(test):
            self._tests.append((name, test, None))
            return test

        return add

    def faulty(self, name, place, reason):
        """The test that shows a fault of the client, at `place` in its source (see `place`)."""

        def add(test):
            self._tests.append((name, test, f"{place}: {reason}"))
            return test

        return add

    def give(self, name, parameters):
        """Notes that parameters of a thing are given by a test."""
        self._given.setdefault(name, set()).update(parameters)

    def run(self, world, wanted):
        """Prints all rows and answers the exit code. `wanted`: what there is, with the names of its parameters."""
        print(f"{self._package} {version(self._package)}", flush=True)
        fault = None
        for name, test, place in self._tests:
            # Further names of a test share what became of it.
            if test:
                fault = self._try(test, world)
            if fault:
                self._say("FAIL", name, fault)
            else:
                self._say("client's fault" if place else "pass", name, place)
        for name in sorted(wanted.keys() - self._covered):
            self._say("FAIL", name, "no test")
        for name in sorted(self._covered - wanted.keys()):
            self._say("FAIL", name, "there is no such thing in the client")
        for name, parameters in wanted.items():
            missing = sorted(set(parameters) - self._given.get(name, set()))
            if missing and name in self._covered:
                self._say("FAIL", name, f"no test gives {', '.join(missing)}")
        passed, failed, faults = self._counts.values()
        print(f"{passed} passed, {failed} failed, {faults} at the client's fault", flush=True)
        return 1 if failed else 0

    def _say(self, word, name, more=None):
        self._counts[word] += 1
        print(f"{word:<15} {name}" + (f": {more}" if more else ""), flush=True)

    @staticmethod
    def _try(test, world):
        try:
            test(world)
        except Exception as error:  # whatever it is belongs into the row
            # Frame 0 is this one; the next is the test itself.
            at = traceback.extract_tb(error.__traceback__)[1]
            return f"{type(error).__name__} at {Path(at.filename).name}:{at.lineno}: {str(error).strip()[:1500]}"
        return None


def place(file, text, occurrence=1):
    """`file:line` of a text in an installed package; `file` begins with the package."""
    package, _, below = file.partition("/")
    folder = importlib.util.find_spec(package).submodule_search_locations[0]
    lines = enumerate((Path(folder) / below).read_text().splitlines(), 1)
    found = [number for number, line in lines if text in line]
    if len(found) < occurrence:
        sys.exit(f"{file} no longer holds {text!r}: look whether its fault is mended")
    return f"{file}:{found[occurrence - 1]}"


def same(actual, expected):
    assert actual == expected, f"{actual!r} is not {expected!r}"


def contains(text, *parts):
    for part in parts:
        assert part in text, f"{part!r} is not in {text!r}"


def parameters_of(function):
    names = inspect.signature(function).parameters
    return [name for name in names if name != "self"]


def commands_of(group, prefix=()):
    """Every command below a group of click's, with the spellings of its options."""
    found = {}
    for name, command in group.commands.items():
        words = (*prefix, name)
        if hasattr(command, "commands"):
            found.update(commands_of(command, words))
        else:
            found[" ".join(words)] = options_of(command)
    return found


def options_of(command):
    options = [option for option in command.params if option.param_type_name == "option"]
    return [spelling for option in options for spelling in (*option.opts, *option.secondary_opts)]
