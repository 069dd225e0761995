#!/usr/bin/env python3
"""Rewrites a docker-archive without what differs from build to build: reproducible.py ARCHIVE RESULT

buildah writes the random name of its build container into the configuration of the image.
"""

import hashlib
import io
import json
import sys
import tarfile


def main():
    source, result = sys.argv[1:]
    with tarfile.open(source) as archive:
        (entry,) = json.load(archive.extractfile("manifest.json"))
        config = json.load(archive.extractfile(entry["Config"]))
        layers = {name: archive.extractfile(name).read() for name in entry["Layers"]}
    config.pop("container", None)
    config.pop("container_config", None)
    config["config"].pop("Hostname", None)
    text = json.dumps(config, sort_keys=True).encode()
    entry["Config"] = hashlib.sha256(text).hexdigest() + ".json"
    files = {**layers, entry["Config"]: text, "manifest.json": json.dumps([entry], sort_keys=True).encode()}
    with tarfile.open(result, "w", format=tarfile.USTAR_FORMAT) as archive:
        for name, content in sorted(files.items()):
            header = tarfile.TarInfo(name)
            header.size = len(content)
            archive.addfile(header, io.BytesIO(content))


if __name__ == "__main__":
    main()
