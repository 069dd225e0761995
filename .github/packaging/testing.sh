# shellcheck shell=bash
# Sourced after common.sh by the tests of packages: their steps and what they expect.

# step NAME…: begins a step, for the messages of failures.
step() {
  what=$*
  printf '%4s s  %s\n' "$SECONDS" "$what"
}

failed() {
  die "failed at: $what: $*"
}

# has TEXT PATTERN: the text has it.
has() {
  case "$1" in
    *"$2"*) ;;
    *) failed "expected \"$2\" in: ${1:0:2000}" ;;
  esac
}

equal() {
  [ "$1" = "$2" ] || failed "expected \"$2\", found \"$1\""
}
