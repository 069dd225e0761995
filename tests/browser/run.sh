#!/usr/bin/env bash
# The device login in a real browser, against the built program: tests/browser/run.sh [PATH-TO-CUED [SCREENSHOTS]]
# Needs chromium and chromedriver (Debian: chromium chromium-driver); the server for mail comes from the package index.
set -euo pipefail
cd "$(dirname "$0")/../.."

. tests/programs.sh

cued=$(built_cued "${1:-}")
environment target/browser tests/browser/requirements.txt
target/browser/bin/python tests/browser/login.py "$cued" "${2:-}"
