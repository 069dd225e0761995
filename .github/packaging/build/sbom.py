#!/usr/bin/env python3
"""Prints the list of components of a release as CycloneDX 1.5: the crates that are linked into the program or run in its
build, with versions, licences, hashes and dependencies.

Nothing in it depends on the machine or on the time: two runs of one commit print the same. It reads
`cargo metadata --locked --offline` for Linux: run `cargo fetch --locked` first. SOURCE_DATE_EPOCH is its time.
"""

import json
import os
import subprocess
import sys
import tomllib
import uuid
from datetime import datetime, timezone
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / ".github/packaging"))

from licences import READ  # noqa: E402

TARGETS = ["x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu", "armv7-unknown-linux-gnueabihf"]


def metadata():
    command = ["cargo", "metadata", "--locked", "--offline", "--format-version", "1"]
    for target in TARGETS:
        command += ["--filter-platform", target]
    return json.loads(subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout)


def shipped(resolve):
    """The dependencies of each package that the program or its build uses; those of tests only are left out."""
    nodes = {node["id"]: node for node in resolve["nodes"]}
    found, pending = {}, [resolve["root"]]
    while pending:
        package = pending.pop()
        if package in found:
            continue
        uses = [dep["pkg"] for dep in nodes[package]["deps"] if any(kind["kind"] != "dev" for kind in dep["dep_kinds"])]
        found[package] = sorted(set(uses))
        pending += uses
    return found


def purl(package):
    return f"pkg:cargo/{package['name']}@{package['version']}"


def component(package, checksums):
    entry = {
        "type": "library",
        "bom-ref": purl(package),
        "name": package["name"],
        "version": package["version"],
        "purl": purl(package),
    }
    # Cargo's older form of OR is a slash.
    licence = package["license"] or READ[package["name"]]
    entry["licenses"] = [{"expression": " OR ".join(part.strip() for part in licence.split("/"))}]
    checksum = checksums.get((package["name"], package["version"]))
    if checksum:
        entry["hashes"] = [{"alg": "SHA-256", "content": checksum}]
    if package["repository"]:
        entry["externalReferences"] = [{"type": "vcs", "url": package["repository"]}]
    return entry


def main():
    data = metadata()
    packages = {package["id"]: package for package in data["packages"]}
    uses = shipped(data["resolve"])
    lock = (ROOT / "Cargo.lock").read_text()
    checksums = {(p["name"], p["version"]): p.get("checksum") for p in tomllib.loads(lock)["package"]}
    root = packages[data["resolve"]["root"]]
    program = component(root, {}) | {"type": "application"}
    libraries = [component(packages[package], checksums) for package in uses if package != root["id"]]
    dependencies = [
        {"ref": purl(packages[package]), "dependsOn": sorted(purl(packages[used]) for used in used_by)}
        for package, used_by in uses.items()
    ]
    moment = datetime.fromtimestamp(int(os.environ.get("SOURCE_DATE_EPOCH", "0")), timezone.utc)
    bom = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, purl(root) + lock)}",
        "version": 1,
        "metadata": {"timestamp": moment.strftime("%Y-%m-%dT%H:%M:%SZ"), "component": program},
        "components": sorted(libraries, key=lambda entry: entry["bom-ref"]),
        "dependencies": sorted(dependencies, key=lambda entry: entry["ref"]),
    }
    print(json.dumps(bom, indent=1))


main()
