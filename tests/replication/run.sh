#!/usr/bin/env bash
# Replicates a server under load with Litestream, kills both, removes the database, and restores it from the replica:
# tests/replication/run.sh [PATH-TO-CUED]
# Litestream is installed from the package index into an environment under target/; without it the run is skipped. Takes
# about a minute. Exits with 1 when something acknowledged is missing or something fires twice.
set -euo pipefail
cd "$(dirname "$0")/../.."
. tests/programs.sh

cued=$(built_cued "${1:-}")
installed=target/replication
if ! environment "$installed" tests/replication/requirements.txt; then
  echo "skipped: $(cat tests/replication/requirements.txt) cannot be installed"
  exit 0
fi
if ! "$installed/bin/litestream" version >/dev/null; then
  echo "skipped: the litestream that was installed does not run on this machine"
  exit 0
fi
# A proxy of the machine is not for servers on the machine.
export NO_PROXY=127.0.0.1,localhost no_proxy=127.0.0.1,localhost PYTHONDONTWRITEBYTECODE=1
exec timeout 240 python3 tests/replication/replicate.py "$cued" "$installed/bin/litestream"
