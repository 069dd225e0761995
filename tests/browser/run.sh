#!/usr/bin/env bash
# The device login in a real browser, against the built program: tests/browser/run.sh [PATH-TO-CUED [SCREENSHOTS]]
# Needs chromium and chromedriver (Debian: chromium chromium-driver); the server for mail comes from the package index.
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

venv=target/browser
wanted=$(cat tests/browser/requirements.txt)
if [ ! -x "$venv/bin/python" ] || [ "$(cat "$venv/installed" 2>/dev/null)" != "$wanted" ]; then
  rm -rf "$venv"
  python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet --disable-pip-version-check --requirement tests/browser/requirements.txt
  printf '%s' "$wanted" >"$venv/installed"
fi

"$venv/bin/python" tests/browser/login.py "$cued" "${2:-}"
