#!/usr/bin/env bash
# Runs the published clients of this API, unmodified, against the built program: tests/clients/run.sh [PATH-TO-CUED]
# Each is installed from the package index into an environment of its own under target/: the command line's package has
# the same name as the SDK's. Prints a row for everything that they can do; exits with 1 when one fails.
set -euo pipefail
cd "$(dirname "$0")/../.."
. tests/programs.sh

cued=$(built_cued "${1:-}")
for client in sdk command_line worker agent; do
  environment "target/clients/$client" "tests/clients/requirements/$client.txt"
done
# A proxy of the machine is not for servers on the machine.
export NO_PROXY=127.0.0.1,localhost no_proxy=127.0.0.1,localhost PYTHONDONTWRITEBYTECODE=1

failed=0
part() {
  local title=$1 client=$2
  shift 2
  printf '\n== %s (after %s s)\n' "$title" "$SECONDS"
  "target/clients/$client/bin/python" "$@" || failed=1
}

# Once with a receiver that checks the raw bytes, once with one that parses and writes the JSON again first.
part "deliveries, raw" sdk tests/clients/deliveries.py "$cued" raw
part "deliveries, reserialised" sdk tests/clients/deliveries.py "$cued" reserialised
part "the SDK" sdk tests/clients/sdk.py "$cued"
part "the command line" command_line tests/clients/command_line.py "$cued"
part "the worker" worker tests/clients/worker.py "$cued"
part "the worker's handlers under cued work" worker tests/clients/work.py "$cued"
part "a client of cued mcp" agent tests/clients/agent.py "$cued"
printf '\n== ended after %s s\n' "$SECONDS"
exit "$failed"
