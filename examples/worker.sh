#!/bin/sh
# Executes `worker` cues whose `payload.task` is TASK by running a command. Needs no open port.
#
#     CUED_API_KEY=cue_sk_... sh worker.sh TASK COMMAND [ARGUMENT...]        example: disk-free df -h /
#
# COMMAND reads the payload as JSON from standard input. Its output is reported as `result`, or as `error` if its exit
# code is not 0. CUED_URL is the address of the server (default http://127.0.0.1:8000). Requires curl.
set -u
export LC_ALL=C

poll_seconds=25 # how long the server waits for work before it returns an empty list
heartbeat_seconds=60 # the server marks a worker as stale after 180 seconds without one
max_pause_seconds=60
# A response holds at most one payload of 1 MiB and its frame.
max_response=8388608

if [ $# -lt 2 ] || [ -z "${CUED_API_KEY:-}" ]; then
  echo 'set CUED_API_KEY to a key of the account (cue_sk_...) and pass a task and a command' >&2
  exit 2
fi
task=$1
shift
case $task in *[!0-9A-Za-z._-]*) echo "a task name may contain letters, digits and . _ - only: $task" >&2; exit 2 ;; esac
url=${CUED_URL:-http://127.0.0.1:8000}
# Unique per process, so that a claim identifies its holder.
worker=${WORKER_ID:-$(uname -n)-$$}
folder=$(mktemp -d)

# call NAME METHOD PATH [BODY]: writes the response body to the file NAME and prints the HTTP status. Fails without a
# complete response. Call it in a subshell: `exec` replaces the shell by curl.
call() {
  printf '%s' "${4:-}" >"$folder/$1.body"
  # In blocks of 512 bytes: bounds a response without a length, which older versions of curl read without end.
  ulimit -f $((max_response / 512)) 2>/dev/null
  # The key is passed on standard input: arguments are visible in the process list.
  exec curl --silent --max-time $((poll_seconds + 15)) --max-filesize "$max_response" --config - \
    --request "$2" --output "$folder/$1" --header 'Content-Type: application/json' \
    --header "X-Worker-Id: $worker" --data-binary "@$folder/$1.body" --write-out '%{http_code}' "$url$3" <<END
header = "Authorization: Bearer $CUED_API_KEY"
END
}

# Sleeps, and returns early on a signal.
interruptible_sleep() {
  sleep "$1" >/dev/null &
  sleep_pid=$!
  wait "$sleep_pid"
}

# Sends heartbeats as long as the worker process exists, however it ends. Heartbeats of a dead worker would keep its
# claims from other workers.
heartbeat() {
  trap 'kill "$sleep_pid"; exit' TERM
  while kill -0 $$; do
    (call heartbeat POST /v1/worker/heartbeat "{\"worker_id\": \"$worker\", \"handlers\": [\"$task\"]}")
    interruptible_sleep "$heartbeat_seconds"
  done
}

# keep_claim ID SECONDS: extends the claim every SECONDS, a third of the lease.
keep_claim() {
  trap 'kill "$sleep_pid"; exit' TERM
  while interruptible_sleep "$2" && kill -0 $$; do
    (call keep POST "/v1/executions/$1/heartbeat")
  done
}

# Succeeds if the response of the poll is an empty list. Only its start is looked at: a payload can contain the same
# text.
nothing_to_claim() {
  case $(head -c 64 "$folder/poll" | tr -d ' \t\r\n') in '{"executions":[]'*) return 0 ;; *) return 1 ;; esac
}

# Prints the first 60,000 bytes of standard input as a JSON string.
json_string() {
  printf '"'
  head -c 60000 | iconv -c -f UTF-8 -t UTF-8 2>/dev/null | tr -d '\000-\010\013-\037' |
    sed 's/\\/\\\\/g; s/"/\\"/g; s/	/\\t/g' | awk 'NR > 1 { printf "\\n" } { printf "%s", $0 }'
  printf '"'
}

# Claims the oldest execution of the task and runs the command.
claim_and_run() {
  status=$(call claim POST /v1/executions/claim "{\"worker_id\": \"$worker\", \"task\": \"$task\"}") || status=000
  case $status in
    200) ;;
    409) interruptible_sleep 1; return ;; # another worker was faster: normal
    *) back_off "$status"; return ;;
  esac
  # cued writes the fields of a response in alphabetical order, so the fields before `payload` cannot be confused with
  # contents of the payload. With jq: jq -c .payload
  claim=$(cat "$folder/claim")
  id=${claim#*\"execution_id\":\"} && id=${id%%\"*}
  lease=${claim#*\"lease_seconds\":} && lease=${lease%%[!0-9]*}
  payload=${claim#*\"payload\":} && payload=${payload%,\"scheduled_for\":*}
  keep_claim "$id" $((lease / 3)) >/dev/null 2>&1 &
  keeper_pid=$!
  printf '%s' "$payload" | "$@" >"$folder/out" 2>"$folder/err"
  code=$?
  kill "$keeper_pid"
  if [ "$code" -eq 0 ]; then
    report "$id" "{\"success\": true, \"result\": $(json_string <"$folder/out")}"
  else
    report "$id" "{\"success\": false, \"error\": $({ cat "$folder/out" "$folder/err"; echo "exit code $code"; } | json_string)}"
  fi
}

# Without a report the work would be done again, so this retries until the server responds. If an earlier report was
# recorded and only its response was lost, the next one returns 409.
report() {
  while :; do
    status=$(call outcome POST "/v1/executions/$1/outcome" "$2") || status=000
    case $status in
      2??) failures=0; printf '%s\n' "$1 $2"; return ;;
      000 | 429 | 5??) if [ -n "$stopping" ]; then echo "$1 not reported: $status" >&2; return; fi ;;
      *) echo "$1 not recorded: $(cat "$folder/outcome")" >&2; return ;;
    esac
    back_off "$status"
  done
}

# Exponential backoff.
failures=0
back_off() {
  echo "worker $worker: the server returned $1" >&2
  seconds=$((failures < 6 ? 1 << failures : max_pause_seconds))
  failures=$((failures + 1))
  interruptible_sleep "$seconds"
}

stopping='' poll_pid='' sleep_pid=''
# A signal ends the poll; an execution in progress is finished and reported first.
trap 'stopping=1; [ -z "$poll_pid" ] || kill "$poll_pid"' INT TERM
heartbeat >/dev/null 2>&1 &
heartbeat_pid=$!
trap 'kill "$heartbeat_pid"; rm -rf "$folder"' EXIT
echo "worker $worker waits for: $task"
while [ -z "$stopping" ]; do
  call poll GET "/v1/executions/claimable?task=$task&limit=1&wait=$poll_seconds" >"$folder/status" &
  poll_pid=$!
  if [ -n "$stopping" ]; then kill "$poll_pid"; fi
  wait "$poll_pid" || echo 000 >"$folder/status"
  poll_pid=''
  if [ -n "$stopping" ]; then break; fi
  status=$(cat "$folder/status")
  case $status in
    200) failures=0; nothing_to_claim || claim_and_run "$@" ;;
    *) back_off "$status" ;;
  esac
done
