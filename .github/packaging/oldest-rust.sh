#!/usr/bin/env bash
# Builds the program with the oldest Rust that the manifest promises (rust-version), which rustup installs if it can.
#
# Where there is no such Rust and no network for it, it prints "skipped: …" and ends well; with CUED_RELEASE=1 it fails.
# What it installs and builds is in a scratch folder.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=common.sh
. "$(dirname "$0")/common.sh"

skip() {
  [ "${CUED_RELEASE:-}" != 1 ] || die "$*"
  echo "skipped: $*"
  exit 0
}

usage() {
  echo "usage: oldest-rust.sh     checks the program with the rust-version of Cargo.toml"
}

case "${1:-}" in
  -h | --help) usage; exit ;;
esac
cd "$repository"
oldest=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
[ -n "$oldest" ] || die "Cargo.toml has no rust-version"
command -v rustup >/dev/null || skip "there is no rustup, which installs Rust $oldest"
scratch=$(mktemp -d "${TMPDIR:-/var/tmp}/cued-oldest-rust.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
export RUSTUP_HOME="$scratch/rustup" RUSTUP_TOOLCHAIN="$oldest"
rustup toolchain install "$oldest" --profile minimal --no-self-update >"$scratch/log" 2>&1 ||
  skip "Rust $oldest cannot be installed: $(tail -n 1 "$scratch/log")"
rustup run "$oldest" rustc --version
CARGO_TARGET_DIR="$scratch/target" rustup run "$oldest" cargo check --locked --bin cued
