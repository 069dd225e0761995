#!/usr/bin/env bash
# Runs published clients of this API, unmodified, against the built program: tests/clients/run.sh [PATH-TO-CUED]
# They are installed from the package index into a directory of their own under target/.
set -euo pipefail
cd "$(dirname "$0")/../.."

cued=${1:-}
if [ -z "$cued" ]; then
  for built in target/release/cued target/debug/cued; do
    if [ -x "$built" ]; then
      cued=$built
      break
    fi
  done
fi
if [ -z "$cued" ]; then
  echo "no built cued under target/: run cargo build first, or name one" >&2
  exit 2
fi

venv=target/clients
wanted=$(cat tests/clients/requirements.txt)
if [ ! -x "$venv/bin/python" ] || [ "$(cat "$venv/installed" 2>/dev/null)" != "$wanted" ]; then
  rm -rf "$venv"
  python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet --disable-pip-version-check --requirement tests/clients/requirements.txt
  printf '%s' "$wanted" >"$venv/installed"
fi

# Once with a receiver that checks the raw bytes, once with one that parses and writes the JSON again first.
for mode in raw reserialised; do
  echo "== deliveries, $mode"
  "$venv/bin/python" tests/clients/deliveries.py "$cued" "$mode"
done
