#!/usr/bin/env bash
# Runs the example projects of examples/testing, each with its test runner, against the built program:
# tests/kit/run.sh [PATH-TO-CUED]
# pytest and vitest are installed from their package indexes into target/kit. Prints how long each takes: a hundred
# tests of each fire ten cues.
set -euo pipefail
cd "$(dirname "$0")/../.."
. tests/programs.sh

CUED_BIN=$(realpath "$(built_cued "${1:-}")")
export CUED_BIN PYTHONDONTWRITEBYTECODE=1
kits=$PWD/examples/testing
work=$PWD/target/kit
environment "$work/python" tests/kit/requirements.txt

failed=0
# part NAME PROGRAM COMMAND…: runs a command that needs this program.
part() {
  local name=$1 program=$2 begun=$SECONDS
  shift 2
  printf '\n== %s\n' "$name"
  command -v "$program" >/dev/null || { echo "skipped: there is no $program"; [ -z "${CI:-}" ] || failed=1; return; }
  # Not as a condition, in which bash ignores `set -e`.
  set +e
  (set -e; "$@")
  local status=$?
  set -e
  [ "$status" = 0 ] || { echo "$name failed"; failed=1; }
  printf 'took %s s\n' $((SECONDS - begun))
}

in_pytest() (
  cd "$kits/python"
  "$work/python/bin/pytest" -q -p no:cacheprovider "$@"
)

in_node() (
  cd "$kits/node"
  node --test --test-reporter=spec
)

# The project in a folder of its own, as node_modules has no place in the repository. Only that stays from run to run.
in_vitest() (
  mkdir -p "$work/node"
  cd "$work/node"
  rm -f package.json ./*.mjs
  cp "$kits"/node/{package.json,*.mjs} .
  if ! cmp -s package.json installed; then
    npm install --silent --no-audit --no-fund --no-package-lock
    cp package.json installed
  fi
  node_modules/.bin/vitest run
)

in_go() (
  cd "$kits/go"
  # The build cache of the other tests in Go.
  GOCACHE=$(dirname "$work")/tmp/go go test -count=1 ./...
)

# With the versions of Cargo.lock, which are there since the program was built.
in_cargo() (
  rm -rf "$work/rust"
  cp -r "$kits/rust" "$work/rust"
  cp Cargo.lock "$work/rust"
  cd "$work/rust"
  RUST_BACKTRACE=0 CARGO_TARGET_DIR=$work/rust-target cargo test --quiet --offline
)

part "pytest" python3 in_pytest
part "pytest with two workers" python3 in_pytest -n 2
part "Node's test runner" node in_node
part "vitest" npm in_vitest
part "Go" go in_go
part "Rust" cargo in_cargo
exit "$failed"
