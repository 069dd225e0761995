#!/usr/bin/env bash
# Compares a tag with the version of the manifest, and prints that version's section of the changelog for the release.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=common.sh
. "$(dirname "$0")/common.sh"

usage() {
  echo "usage: release-notes.sh TAG     such as v1.2.0, for version 1.2.0"
}

counted 1 "$@"
[ "$1" = "v$(version)" ] ||
  die "the tag is $1 and the manifest has version $(version): set the version in Cargo.toml, or tag v$(version)"
notes=$(awk -v heading="## $(version)" 'index($0, "## ") == 1 { inside = index($0 " ", heading " ") == 1; next } inside' \
  "$repository/src/docs/changelog.md")
[ -n "${notes//[[:space:]]/}" ] ||
  die "src/docs/changelog.md has no section '## $(version)' with text: write what changed"
echo "$notes"
