#!/bin/sh
# Does the work of cues with transport `worker` whose `payload.task` is TASK: no open port, no address of its own.
#
#     CUED_API_KEY=cue_sk_... sh worker.sh TASK COMMAND [ARGUMENT...]        for instance disk-free df -h /
#
# COMMAND gets the payload as JSON on standard input. What it prints is reported as `result`, or as `error` when it ends
# with another code than 0. CUED_URL says where the server is (http://127.0.0.1:8000). Needs curl.
set -u
export LC_ALL=C

poll_seconds=25 # the server holds the request this long when there is no work
heartbeat_seconds=60 # a worker that is silent for 180 seconds counts as stale
longest_pause=60

if [ $# -lt 2 ] || [ -z "${CUED_API_KEY:-}" ]; then
  echo 'set CUED_API_KEY to a key of the account (cue_sk_...) and give a task and the command that does it' >&2
  exit 2
fi
task=$1
shift
case $task in *[!0-9A-Za-z._-]*) echo "a task's name has letters, digits and . _ - only: $task" >&2; exit 2 ;; esac
url=${CUED_URL:-http://127.0.0.1:8000}
# Unique per process, so that a claim tells who holds it.
worker=${WORKER_ID:-$(uname -n)-$$}
folder=$(mktemp -d)

# call NAME METHOD PATH [BODY]: the answer goes into the file NAME, its status is printed; 000 is no answer. To be
# called in a subshell, which curl takes the place of.
call() {
  printf '%s' "${4:-}" >"$folder/$1.body"
  # The key goes by standard input: whoever lists the processes of this machine would read it among the arguments.
  exec curl --silent --max-time $((poll_seconds + 15)) --config - --request "$2" --output "$folder/$1" \
    --header 'Content-Type: application/json' --header "X-Worker-Id: $worker" \
    --data-binary "@$folder/$1.body" --write-out '%{http_code}' "$url$3" <<END
header = "Authorization: Bearer $CUED_API_KEY"
END
}

# A pause that a signal ends.
nap() {
  sleep "$1" >/dev/null &
  napping=$!
  wait "$napping"
}

# For as long as the worker lives, however it ends: else what it held would never go to another.
heartbeat() {
  trap 'kill "$napping"; exit' TERM
  while kill -0 $$; do
    (call heartbeat POST /v1/worker/heartbeat "{\"worker_id\": \"$worker\", \"handlers\": [\"$task\"]}")
    nap "$heartbeat_seconds"
  done
}

# keep_claim ID SECONDS: three times within a lease.
keep_claim() {
  trap 'kill "$napping"; exit' TERM
  while nap "$2" && kill -0 $$; do
    (call keep POST "/v1/executions/$1/heartbeat")
  done
}

# What comes, as a JSON string; of a long text the beginning.
json_string() {
  printf '"'
  head -c 60000 | iconv -c -f UTF-8 -t UTF-8 2>/dev/null | tr -d '\000-\010\013-\037' |
    sed 's/\\/\\\\/g; s/"/\\"/g; s/	/\\t/g' | awk 'NR > 1 { printf "\\n" } { printf "%s", $0 }'
  printf '"'
}

# Claims the oldest execution of the task and does it.
claim_and_do() {
  status=$(call claim POST /v1/executions/claim "{\"worker_id\": \"$worker\", \"task\": \"$task\"}")
  case $status in
    200) ;;
    409) return ;; # another worker was faster: daily life
    *) patience "$status" && return ;;
  esac
  # cued writes the fields of an answer in the order of their names, so that nothing in a payload can be taken for what
  # stands before it. With jq: jq -c .payload
  claim=$(cat "$folder/claim")
  id=${claim#*\"execution_id\":\"} && id=${id%%\"*}
  lease=${claim#*\"lease_seconds\":} && lease=${lease%%[!0-9]*}
  payload=${claim#*\"payload\":} && payload=${payload%,\"scheduled_for\":*}
  keep_claim "$id" $((lease / 3)) >/dev/null 2>&1 &
  keeping=$!
  printf '%s' "$payload" | "$@" >"$folder/out" 2>"$folder/err"
  code=$?
  kill "$keeping"
  if [ "$code" -eq 0 ]; then
    report "$id" "{\"success\": true, \"result\": $(json_string <"$folder/out")}"
  else
    report "$id" "{\"success\": false, \"error\": $({ cat "$folder/out" "$folder/err"; echo "exit code $code"; } | json_string)}"
  fi
}

# The work is done and must not be done again for want of a report, so this does not give up; a report that arrived
# although its answer was lost is a 409 the next time.
report() {
  while :; do
    status=$(call outcome POST "/v1/executions/$1/outcome" "$2")
    case $status in
      2??) failures=0; printf '%s\n' "$1 $2"; return ;;
      000 | 429 | 5??) if [ -n "$stopping" ]; then echo "$1 not reported: $status" >&2; return; fi ;;
      *) echo "$1 not recorded: $(cat "$folder/outcome")" >&2; return ;;
    esac
    patience "$status"
  done
}

# Twice as long each time.
failures=0
patience() {
  echo "worker $worker: the server answers $1" >&2
  seconds=$((failures < 6 ? 1 << failures : longest_pause))
  failures=$((failures + 1))
  nap "$seconds"
}

stopping='' polling='' napping=''
# What was begun is ended, and nothing more is begun.
trap 'stopping=1; [ -z "$polling" ] || kill "$polling"' INT TERM
heartbeat >/dev/null 2>&1 &
beating=$!
trap 'kill "$beating"; rm -rf "$folder"' EXIT
echo "worker $worker waits for: $task"
while [ -z "$stopping" ]; do
  call poll GET "/v1/executions/claimable?task=$task&limit=1&wait=$poll_seconds" >"$folder/status" &
  polling=$!
  if [ -n "$stopping" ]; then kill "$polling"; fi
  wait "$polling"
  polling=''
  if [ -n "$stopping" ]; then break; fi
  status=$(cat "$folder/status")
  case $status in
    200) failures=0; grep -q '"executions":\[\]' "$folder/poll" || claim_and_do "$@" ;;
    *) patience "$status" ;;
  esac
done
