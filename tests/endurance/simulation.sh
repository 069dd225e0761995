#!/usr/bin/env bash
# The simulation of tests/it/simulation with many seeds, on tests that are built optimised:
#
#   tests/endurance/simulation.sh [--hours 2] [--seeds 1000000] [--first 1000] [--batch 500] [--tests FILE]
#
# Ends after so many seeds, or at the first batch that ends after so many hours. `--tests` is a test binary that is built
# already. Exits with 1 at the first seed that fails; the output of its batch has the seed and its shortest list of steps.
set -euo pipefail
cd "$(dirname "$0")/../.."

hours=2 seeds=1000000 first=1000 batch=500 tests=
while [ $# -gt 0 ]; do
  case $1 in
  --hours) hours=$2 ;;
  --seeds) seeds=$2 ;;
  --first) first=$2 ;;
  --batch) batch=$2 ;;
  --tests) tests=$2 ;;
  *) sed -n '4p' "$0" >&2 && exit 2 ;;
  esac
  shift 2
done

if [ -z "$tests" ]; then
  # Optimising the whole program at once takes minutes more, and makes no difference here.
  tests=$(CARGO_PROFILE_RELEASE_LTO=off cargo test --locked --release --target-dir target/endurance --test it \
    --no-run 2>&1 | tee /dev/stderr | sed -n 's/^ *Executable .*(\(.*\))$/\1/p')
fi
log=$(mktemp)
trap 'rm -f "$log"' EXIT
# The test in the background, so that a signal ends the script at once, and the test with it.
trap 'kill $(jobs -p) 2>/dev/null; exit 130' INT TERM
began=$(date +%s)
seconds=$(awk "BEGIN { print int($hours * 3600) }")
count=0
while [ "$count" -lt "$seeds" ] && [ $(($(date +%s) - began)) -lt "$seconds" ]; do
  from=$((first + count))
  to=$((from + (batch < seeds - count ? batch : seeds - count)))
  TESTS_SEEDS=$from..$to "$tests" --exact simulation::no_rule_is_violated_in_any_order_of_steps >"$log" 2>&1 &
  if ! wait $!; then
    cat "$log"
    echo "a seed of $from..$to fails"
    exit 1
  fi
  grep -q '^test result: ok. 1 passed' "$log" || { cat "$log"; echo "the test did not run"; exit 1; }
  count=$((to - first))
  took=$(($(date +%s) - began))
  printf '%s seeds (%s..%s) in %s s: %s a second\n' "$count" "$first" "$to" "$took" \
    "$(awk "BEGIN { printf \"%.1f\", $count / ($took + ($took == 0)) }")"
done
echo "no rule is violated"
