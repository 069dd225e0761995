#!/usr/bin/env bash
# The device login and the page in a real browser, against the built program:
# tests/browser/run.sh [PATH-TO-CUED [WORD…]] runs the tests of the page whose names have one of the words, by default all,
# and then the login. PICTURES=1 rebuilds the pictures of the README.
# Needs chromium and chromedriver (Debian: chromium chromium-driver); the rest comes from the package index.
set -euo pipefail
cd "$(dirname "$0")/../.."

. tests/programs.sh

# axe-core 4.12.1, as this package contains it: neither npm nor Playwright is needed.
AXE=axe-playwright-python==0.1.8
AXE_SHA256=84494fec757e4710dc751c8d7a636e457f4532f08f85c86dc9070133fbff53bc

# Fetches axe-core, unless it is there with this hash.
axe_core() {
  local file=target/browser/axe.min.js folder
  if ! echo "$AXE_SHA256  $file" | sha256sum --check --status 2>/dev/null; then
    folder=$(mktemp -d)
    target/browser/bin/pip download --quiet --disable-pip-version-check --no-deps --dest "$folder" "$AXE"
    python3 -c 'import sys, zipfile; sys.stdout.buffer.write(zipfile.ZipFile(sys.argv[1]).read("axe_playwright_python/axe.min.js"))' \
      "$folder"/*.whl >"$file"
    rm -r "$folder"
    echo "$AXE_SHA256  $file" | sha256sum --check --quiet
  fi
}

cued=$(realpath "$(built_cued "${1:-}")")
environment target/browser tests/browser/requirements.txt
axe_core
target/browser/bin/python tests/browser/page/main.py "$cued" "${@:2}"
if [ $# -lt 2 ]; then
  target/browser/bin/python tests/browser/login.py "$cued"
fi
