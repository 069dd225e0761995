#!/bin/sh
# Receives, verifies and prints deliveries of `webhook` cues.
#
#     WEBHOOK_SECRET=whsec_... sh receiver.sh [PORT]        (default 9000; 0 selects a free port)
#
# The body of a delivery is the payload of the cue itself, with nothing around it.
# GET /v1/auth/webhook-secret returns the secret. Requires openssl, and perl because a shell cannot listen on a port:
# the perl lines at the end accept connections and start this script once per request. Debian's base perl suffices.
set -eu
export LC_ALL=C

# A signature never expires, so a recorded request could be replayed. Five minutes cover every legitimate delay.
tolerance_seconds=300
# A payload has at most 1 MiB of compact UTF-8. Sending non-ASCII as \uXXXX makes it up to three times larger.
max_body=8388608

# Does the work for execution $execution_id. The file $body holds the payload; file descriptor 3 is the output of the
# receiver. It must take less than 30 seconds; otherwise store the payload and process it after responding.
handle_payload() {
  printf '%s %s\n' "$execution_id" "$(cat "$body")" >&3
}

# Succeeds if $signature (`v1=HEX`) is a recent signature of exactly the bytes in $body with $WEBHOOK_SECRET.
is_signed() {
  case $timestamp in '' | 0* | *[!0-9]* | ????????????*) return 1 ;; esac
  age=$(($(date +%s) - timestamp))
  if [ "${age#-}" -gt "$tolerance_seconds" ]; then return 1; fi
  expected=v1=$({ printf '%s.' "$timestamp" && cat "$body"; } | hmac)
  # `=` stops at the first difference, and its duration would reveal how much of a forged value is correct. Comparing
  # hashes that include a random value reveals nothing.
  nonce=$(openssl rand -hex 32)
  [ "$(hash "$nonce$expected")" = "$(hash "$nonce$signature")" ]
}

hash() {
  printf '%s' "$1" | openssl dgst -sha256 -r | cut -c 1-64
}

# Prints the HMAC-SHA256 of standard input in hex. `openssl dgst -hmac` would expose the secret among its arguments in
# the process list.
hmac() {
  { padded_key 54 && cat; } | openssl dgst -sha256 -binary | { padded_key 92 && cat; } | openssl dgst -sha256 -r | cut -c 1-64
}

# Prints the HMAC key, padded to 64 bytes and each byte XORed with $1. HMAC replaces a key of more than 64 bytes, as
# the secret is, by its hash.
padded_key() {
  digits=$(hash "$WEBHOOK_SECRET")$(printf '%064d' 0)
  bytes=
  while [ -n "$digits" ]; do
    rest=${digits#??}
    bytes=$bytes\\0$(printf '%03o' $((0x${digits%"$rest"} ^ $1)))
    digits=$rest
  done
  printf '%b' "$bytes"
}

respond() {
  printf 'HTTP/1.1 %s\r\nContent-Length: 0\r\nConnection: close\r\n\r\n' "$1"
  exit 0
}

# Reads one request from standard input and writes the response to standard output.
receive() {
  length='' execution_id='' timestamp='' signature=''
  carriage_return=$(printf '\r')
  IFS=' ' read -r method _
  while IFS= read -r line && line=${line%"$carriage_return"} && [ -n "$line" ]; do
    value=${line#*:}
    value=${value#"${value%%[! 	]*}"}
    case $(printf '%s' "${line%%:*}" | tr A-Z a-z) in
      content-length) length=$value ;;
      x-cueapi-execution-id) execution_id=$value ;;
      x-cueapi-timestamp) timestamp=$value ;;
      x-cueapi-signature) signature=$value ;;
    esac
  done
  case $method in POST | PUT | PATCH) ;; *) respond '405 Method Not Allowed' ;; esac
  case $length in '' | *[!0-9]*) respond '411 Length Required' ;; ????????*) respond '413 Content Too Large' ;; esac
  if [ "$length" -gt "$max_body" ]; then respond '413 Content Too Large'; fi
  body=$(mktemp "$folder/body.XXXXXX")
  trap 'rm -f "$body"' EXIT
  # A shell variable cannot hold all bytes, so the body goes to a file.
  head -c "$length" >"$body"
  if [ "$(wc -c <"$body")" -ne "$length" ]; then respond '400 Bad Request'; fi
  if [ -n "${WEBHOOK_SECRET:-}" ] && ! is_signed; then respond '401 Unauthorized'; fi
  case $execution_id in '' | *[!0-9A-Za-z-]*) respond '400 Bad Request' ;; esac
  # Delivery is at least once: if a response is lost, the execution is sent again. A production receiver stores the ids
  # of handled executions with its results, beyond its own lifetime. `X-CueAPI-Signature` covers the time and the body,
  # but not the id: whoever records a delivery can send it again under another id for five minutes. Where that matters,
  # serve HTTPS, or verify `webhook-signature` as receiver.js does: it covers `webhook-id`.
  if [ -e "$folder/$execution_id" ]; then
    echo "$execution_id again, ignored" >&3
  else
    handle_payload || respond '500 Internal Server Error'
    # After the work: if the work fails, the next attempt repeats it. Attempts of one execution never overlap, so no
    # second request does the same work at the same time.
    : >"$folder/$execution_id"
  fi
  respond '200 OK'
}

if [ "${1:-}" = --request ]; then
  receive
fi

folder=$(mktemp -d)
export folder
if [ -z "${WEBHOOK_SECRET:-}" ]; then
  echo 'no secret given: signatures are NOT verified, anyone can post here'
fi
# File descriptor 3 is the receiver's standard output: the standard output of a request is its connection.
exec 3>&1
exec perl -MIO::Socket::INET -e '
  my ($port, @receive) = @ARGV;
  my $server = IO::Socket::INET->new(LocalAddr => "127.0.0.1", LocalPort => $port, Listen => 64, ReuseAddr => 1)
    or die "cannot listen on port $port: $@\n";
  $| = 1;
  print "receiver listening on http://127.0.0.1:", $server->sockport, "\n";
  my $parent = $$;
  $SIG{INT} = $SIG{TERM} = sub { exit };
  END { system "rm", "-rf", $ENV{folder} if $parent == $$ }
  $SIG{CHLD} = "IGNORE";
  while (1) {
    my $connection = $server->accept or next;
    if (defined(my $child = fork)) {
      next if $child;
      $SIG{CHLD} = "DEFAULT";
      open STDIN, "<&", $connection;
      open STDOUT, ">&", $connection;
      alarm 60;    # ends a request that takes longer
      exec @receive;
      exit 1;
    }
  }
' "${1:-9000}" sh "$0" --request
