"""The page in a real browser: main.py CUED [WORD…] runs the tests whose names have one of the words."""

import os
import sys
import time

sys.path.insert(0, os.path.dirname(__file__))
import importlib  # noqa: E402

import rig  # noqa: E402
from driver import Page  # noqa: E402
from story import Story  # noqa: E402

PARTS = (
    *(
        "journeys." + name
        for name in (
            "ways_in", "home", "cues", "editor", "runs", "day", "account", "channels", "operator", "keyboard"
        )
    ),
    *("trials." + name for name in ("hard_cases", "outages", "accessibility", "docs", "speed", "pictures")),
)
FOLDER = os.path.join("target", "browser", "page")


def main():
    os.makedirs(FOLDER, exist_ok=True)
    for part in PARTS:
        if os.path.exists(os.path.join(os.path.dirname(__file__), *part.split(".")) + ".py"):
            importlib.import_module(part)
    began = time.monotonic()
    with Page() as page:
        failed = rig.run(sys.argv[1], page, FOLDER, sys.argv[2:], Story)
    for name in failed:
        print(f"failed twice: {name}")
    print(f"page: {time.monotonic() - began:.0f} s, {len(failed)} failed", flush=True)
    sys.exit(1 if failed else 0)


main()
