#!/usr/bin/env bash
# Runs the unit tests as a 32-bit program for Arm, under qemu: they find what 64-bit numbers hide.
#
# Where the tools cannot be downloaded, it prints "skipped: …" and ends well. A test that
# fails, or does not compile, ends it with an error.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=common.sh
. "$(dirname "$0")/common.sh"
# shellcheck source=build/toolchain.sh
. "$packaging/build/toolchain.sh"

readonly TARGET=armv7-unknown-linux-gnueabihf
usage() {
  cat <<'TEXT'
usage: arm-tests.sh [FILTER...]     FILTER as for cargo test: all unit tests without it

CUED_TOOLCHAIN=DIR       keeps compilers and builds in DIR for the next run (3 GB); otherwise they are removed
CUED_DEBIAN_MIRROR=URL   the mirror of the compilers

It needs cargo, python3 with pip, a Debian or Ubuntu, and rustup or root.
TEXT
}

skip() {
  echo "skipped: $*"
  exit 0
}

# Each step returns an error instead of ending the script.
prepare_tools() {
  cargo fetch --locked && install_zig && install_std "$TARGET" && install_runner "$TARGET"
}

# Debug information would double the time of the link.
run_tests() {
  settings=(CARGO_PROFILE_DEV_DEBUG=0 CARGO_INCREMENTAL=0
    "CARGO_TARGET_ARMV7_UNKNOWN_LINUX_GNUEABIHF_RUNNER=${runner[*]}")
  zig_cargo arm-tests test --locked --lib --target "$TARGET.2.28" -- "$@"
}

case "${1:-}" in
  -h | --help) usage; exit ;;
esac
needs cargo "cargo, or rustup"
cd "$repository"
open_toolchain
if ! prepare_tools 2>"$TOOLCHAIN/log"; then
  tail -n 20 "$TOOLCHAIN/log" >&2
  skip "the tools for $TARGET cannot be had, as it says above"
fi
stage "unit tests of $TARGET"
run_tests "$@"
