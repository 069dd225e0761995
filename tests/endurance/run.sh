#!/usr/bin/env bash
# All three runs of this folder, one after the other, each bounded by HOURS:
#
#   tests/endurance/run.sh PROGRAM [HOURS]
#
# Each prints its figures; the first one in which a bound does not hold ends this with 1.
set -euo pipefail
folder=$(dirname "$0")
hours=${2:-2}

python3 -B "$folder/soak.py" "$1" --hours "$hours"
python3 -B "$folder/kills.py" "$1" --hours "$hours"
"$folder/simulation.sh" --hours "$hours"
