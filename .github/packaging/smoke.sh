#!/usr/bin/env bash
# Runs a built cued through one journey: sign in, a cue, a delivery, kill -9, check, restart, backup, restore.
# Needs bash, coreutils, grep and sed only. Takes seconds, and leaves nothing behind, also when it is interrupted.
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: smoke.sh BINARY [RUNNER...]

  BINARY  the program to try
  RUNNER  the command that runs it, such as: qemu-arm-static -L /usr/arm-linux-gnueabihf
          It must become the program (exec), so that a signal to it reaches the program.

CUED_SMOKE_ROOT=FOLDER   the folder that RUNNER makes the root, such as a chroot: BINARY is a path in it

  smoke.sh target/release/cued
  CUED_SMOKE_ROOT=/srv/root smoke.sh /usr/bin/cued chroot /srv/root setpriv --reuid cued --regid cued --clear-groups
TEXT
}

die() {
  echo "smoke.sh: $*" >&2
  exit 1
}

# The CPU that the header of an ELF file names.
cpu_of() {
  case "$(od -An -tx1 -j18 -N2 "$1" | tr -d ' ')" in
    3e00) echo x86_64 ;;
    b700) echo aarch64 ;;
    2800) echo armv7l ;;
    *) echo "another CPU" ;;
  esac
}

# A program that does not start at all: the reason is its CPU, its loader, or a C library that is too old.
explain_start() {
  local said=$1 file=$2 built
  [ "$(head -c 4 "$file" | tr -d '\177\0')" = ELF ] || die "$file is not a program for Linux: take another download"
  built=$(cpu_of "$file")
  case "$said" in
    *"Exec format error"* | *"exec format error"*)
      die "$file is built for $built and this machine is $(uname -m): take the file for $(uname -m), or name a runner" \
        "such as qemu-aarch64-static" ;;
    *"No such file or directory"* | *"required file not found"*)
      die "$file needs a C library that is not here (the loader of glibc): take the static build, or name its folder to" \
        "the runner (qemu-…-static -L FOLDER)" ;;
    *GLIBC_*)
      die "$file needs a newer C library than that of this machine: take the static build. It said: $said" ;;
    *) die "$file does not start: $said" ;;
  esac
}

[ $# -ge 1 ] || { usage >&2; exit 2; }
case "$1" in
  -h | --help) usage; exit ;;
esac
began=${EPOCHREALTIME/[.,]/}
binary=$1
shift
runner=("$@")
root=${CUED_SMOKE_ROOT:-}
case "$binary" in
  /*) ;;
  *) [ -z "$root" ] || die "with CUED_SMOKE_ROOT, BINARY is an absolute path in that folder"
    binary=$PWD/$binary ;;
esac
[ -f "$root$binary" ] || die "no file at $root$binary: build it first (cargo build --release), or name another"
[ -x "$root$binary" ] || die "$root$binary is not executable: chmod +x $root$binary"

# The folder as this script sees it, and as the program sees it.
folder=${TMPDIR:-/tmp}
[ -z "$root" ] || folder=$root/tmp
outside=$(mktemp -d "$folder/cued-smoke.XXXXXX")
inside=${outside#"$root"}
server='' sink=''

clean_up() {
  local pid
  for pid in $server $sink; do
    { kill -s KILL "$pid" && wait "$pid"; } 2>/dev/null || true
  done
  rm -rf "$outside"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
# The program may run as a user of its own.
[ -z "$root" ] || chmod 1777 "$outside"

# Neither the settings nor the sign-in of the caller count.
for name in "${!CUED_@}"; do
  unset "$name"
done
export CUED_CONFIG="$inside/credentials.json" HOME="$inside"

cued() {
  "${runner[@]}" "$binary" "$@"
}

# The milliseconds since the script began.
elapsed() {
  echo $(((${EPOCHREALTIME/[.,]/} - began) / 1000))
}

step() {
  what=$*
  printf '%6s ms  %s\n' "$(elapsed)" "$what"
}

failed() {
  {
    echo "smoke.sh: failed at: $what"
    echo "  $1"
    [ ! -s "$outside/server.err" ] || { echo "  the server said:"; sed 's/^/    /' "$outside/server.err"; }
  } >&2
  exit 1
}

# run COMMAND…: its output in $said; a failure ends the journey.
run() {
  local code=0
  said=$(cued "$@" </dev/null 2>&1) || code=$?
  [ "$code" = 0 ] || failed "cued $1 ended with exit code $code: $said"
}

# expect TEXT: the last output has it.
expect() {
  case "$said" in
    *"$1"*) ;;
    *) failed "expected \"$1\" in: $said" ;;
  esac
}

# line_of FILE PATTERN PID: the first line that matches, waited for while the process lives, a minute at most.
line_of() {
  local file=$1 pattern=$2 pid=$3 line tries
  for ((tries = 0; tries < 600; tries++)); do
    line=$(grep -m 1 -e "$pattern" "$file" || true)
    if [ -n "$line" ]; then
      echo "$line"
      return
    fi
    kill -0 "$pid" 2>/dev/null || failed "it ended: $(cat "$file")"
    sleep 0.1
  done
  failed "no line with \"$pattern\" within a minute: $(cat "$file")"
}

# start_server FILE [ADDRESS]: a server on that database, its address in $url.
start_server() {
  local line
  : >"$outside/server.out"
  "${runner[@]}" "$binary" serve --db "$inside/$1" --listen "${2:-127.0.0.1:0}" \
    --allow-callbacks-to loopback --limits off \
    >"$outside/server.out" 2>"$outside/server.err" </dev/null &
  server=$!
  line=$(line_of "$outside/server.out" 'cued listening on' "$server")
  url=${line##* }
}

# A receiver that verifies signatures, its address in $sink_url.
start_sink() {
  local line
  "${runner[@]}" "$binary" sink --listen 127.0.0.1:0 >"$outside/sink.out" 2>&1 </dev/null &
  sink=$!
  line=$(line_of "$outside/sink.out" '^listening on ' "$sink")
  sink_url=${line##* }/
}

# end_server SIGNAL CODE: the server ends with that exit code. The shell does not report the kill.
end_server() {
  local code=0
  { kill -s "$1" "$server" && wait "$server"; } 2>/dev/null || code=$?
  server=
  [ "$code" = "$2" ] || failed "the server ended with exit code $code in place of $2"
}

# fire_and_receive COUNT: the sink has COUNT deliveries with the signature verified and the number intact.
fire_and_receive() {
  run cue fire smoke --wait
  local received
  received=$(grep -c 'verified.*200$' "$outside/sink.out" || true)
  [ "$received" = "$1" ] || failed "the receiver has $received deliveries in place of $1: $(cat "$outside/sink.out")"
  [ "$(grep -c '12345678901234567890123456789' "$outside/sink.out")" = "$1" ] ||
    failed "a payload arrived changed: $(cat "$outside/sink.out")"
}

step "start the program"
version=$(cued --version 2>&1) || explain_start "$version" "$root$binary"
case "$version" in
  "cued "*) ;;
  *) die "$binary is not cued: --version printed $version" ;;
esac

step "start a server on a new database"
start_server smoke.db

step "register and sign in"
run login --email smoke@example.com "$url"
run api GET /status
expect healthy

step "deliver a fired cue to a receiver, signed"
start_sink
run cue add --name smoke --cron @yearly --url "$sink_url" --payload '{"number": 12345678901234567890123456789}'
fire_and_receive 1

step "kill -9"
end_server KILL 137
run check "$inside/smoke.db"
expect "result      ok"
expect "runs        1 success"

step "restart, and deliver again"
start_server smoke.db "${url#http://}"
fire_and_receive 2

step "back up while the server runs"
run backup --db "$inside/smoke.db" "$inside/backup.db"
run check "$inside/backup.db"
expect "runs        2 success"

step "stop"
end_server TERM 0

step "restore on hold, and promote"
run restore "$inside/backup.db" --db "$inside/restored.db"
start_server restored.db "${url#http://}"
run api GET /status
expect held
run promote --db "$inside/restored.db"
run run list
expect smoke
end_server TERM 0

echo "ok: $version passed in $(elapsed) ms"
