"""The values of scenarios: what `{…}` stands for in a request, and whether a response is as it must be."""

import json
import re
import time
from decimal import Decimal

# The value of a field that is not there.
ABSENT = object()

INSTANT = re.compile(r"\d{4}-(0\d|1[0-2])-[0-3]\d[T ][0-2]\d:[0-5]\d:[0-5]\d(\.\d+)?(Z|[+-]\d\d:\d\d)")

# Words that stand for every value of a kind in what is expected; `{any}` is also any part of a text.
KINDS = {
    "{any}": lambda it: True,
    "{some}": lambda it: it is not None,
    "{integer}": lambda it: type(it) is int,
    "{string}": lambda it: isinstance(it, str),
    "{instant}": lambda it: isinstance(it, str) and INSTANT.fullmatch(it),
}
WORDS = {*KINDS, "{absent}", "{all}", "{has}", "{one_of}"}

# The name of a kept value, `255*x` for a text that repeats, and `now+60` for an instant. Other braces stay.
PLACE = re.compile(r"\{(\d+\*[^}]*|now[+-]\d+|[a-z_]+)\}")


class Miss(Exception):
    """Why a promise is not known to hold; `parts` for the report."""

    result = "not checked"

    def __init__(self, reason):
        self.parts = {"reason": reason}

    def __str__(self):
        return list(self.parts.values())[-1]


def read_json(text):
    """Reads JSON digit for digit: 0.1 is not 0.10. Returns None for other texts."""
    try:
        # `int` refuses NaN and Infinity, which are not JSON.
        return json.loads(text, parse_float=Decimal, parse_constant=int)
    except (ValueError, RecursionError):
        return None


def as_text(value):
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=float)


def at_path(value, path):
    """The part of a JSON value at a path such as `/executions/0/id`."""
    for part in path.split("/")[1:]:
        try:
            value = value[int(part) if isinstance(value, list) else part]
        except (LookupError, TypeError, ValueError):
            return ABSENT
    return value


def merge(base, value):
    """Puts the fields of an object on those of another one; `{absent}` removes a field."""
    if not isinstance(base, dict) or not isinstance(value, dict):
        return value
    merged = {**base, **{name: merge(base.get(name), field) for name, field in value.items()}}
    return {name: field for name, field in merged.items() if field != "{absent}"}


class Values:
    """The values that steps keep for later ones, by name, and the time of the server."""

    def __init__(self, **kept):
        self.kept, self.now = {**{word[1:-1]: word for word in WORDS}, **kept}, time.time()

    def fill(self, value):
        """Replaces `{name}` in all texts. The other fields of an object with `"..."` are merged into those of the kept
        objects that it names. Errors: Miss."""
        if isinstance(value, str):
            whole = PLACE.fullmatch(value)
            return self.find(whole[1]) if whole else PLACE.sub(lambda it: as_text(self.find(it[1])), value)
        if isinstance(value, list):
            return [self.fill(item) for item in value]
        if not isinstance(value, dict):
            return value
        filled = {}
        for name in value.get("...", "").split():
            filled = merge(filled, self.find(name))
        own = {self.fill(name): self.fill(field) for name, field in value.items() if name != "..."}
        return merge(filled, own) if "..." in value else own

    def find(self, name):
        count, star, repeated = name.partition("*")
        if star:
            return repeated * int(count)
        if name[3:4] in ("+", "-"):
            return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self.now + int(name[3:])))
        if name not in self.kept:
            raise Miss(f"an earlier request has failed, whose response has {name}")
        return self.kept[name]


def difference(expected, came, at=""):
    """Where a value is not as expected, what is expected there, and what came; None if it is as expected. Of an object
    only the expected fields are compared, of a list that begins with `{has}` only whether it has the others, with
    `{all}` in any order."""
    parts = []
    if isinstance(expected, dict) and "{one_of}" in expected:
        is_equal = any(difference(it, came) is None for it in expected["{one_of}"])
    elif isinstance(expected, dict) and isinstance(came, dict):
        is_equal, parts = True, [(field, came.get(name, ABSENT), name) for name, field in expected.items()]
    elif isinstance(expected, list) and isinstance(came, list) and expected[:1] in (["{has}"], ["{all}"]):
        is_equal = all(any(difference(it, item) is None for item in came) for it in expected[1:])
        is_equal &= expected[0] == "{has}" or len(expected) == len(came) + 1
    elif isinstance(expected, list) and isinstance(came, list) and len(expected) == len(came):
        is_equal, parts = True, list(zip(expected, came, range(len(came))))
    elif isinstance(expected, str):
        is_equal = is_of_kind(expected, came)
    else:
        # True is not 1, and 1 is not 1.0.
        is_equal = type(expected) is type(came) and str(expected) == str(came)
    if not is_equal:
        kinds = re.sub(r'"\{(\w+)\}"', r"<\1>", json.dumps(expected, ensure_ascii=False, default=float))
        return at, kinds, "nothing" if came is ABSENT else json.dumps(came, ensure_ascii=False, default=float)
    return next(filter(None, (difference(it, item, f"{at}/{name}") for it, item, name in parts)), None)


def is_of_kind(pattern, came):
    if came is ABSENT:
        return pattern == "{absent}"
    return KINDS[pattern](came) if pattern in KINDS else isinstance(came, str) and is_like(pattern, came)


def is_like(pattern, text):
    return re.fullmatch(".*".join(map(re.escape, pattern.split("{any}"))), text, re.DOTALL) is not None
