#!/bin/sh
# Receives the deliveries of cues with transport `webhook`.
#
#     WEBHOOK_SECRET=whsec_... sh receiver.sh [PORT]        (default 9000; 0 takes a free port)
#
# The secret is the account's: GET /v1/auth/webhook-secret. Needs openssl, and perl, because a shell cannot listen: a
# few lines of it, which run on any Debian as it comes, start this script anew for each request.
set -eu
export LC_ALL=C

# A signature stays valid for ever, so a recorded request could be sent again: five minutes cover any honest delay.
tolerance_seconds=300
# Payloads are at most 1 MiB, non-ASCII characters written as \uXXXX: nothing honest is larger than this.
max_body=8388608

# The work: $execution_id is whose, the file $body holds the payload, and what is written to 3 is printed. Keep it
# under 30 seconds, or note the payload down and do it after the answer.
handle_payload() {
  printf '%s %s\n' "$execution_id" "$(cat "$body")" >&3
}

# Whether `signature` (`v1=HEX`) was made with $WEBHOOK_SECRET, not long ago, for exactly the bytes in $body.
is_signed() {
  case $timestamp in '' | 0* | *[!0-9]* | ????????????*) return 1 ;; esac
  age=$(($(date +%s) - timestamp))
  if [ "${age#-}" -gt "$tolerance_seconds" ]; then return 1; fi
  expected=v1=$({ printf '%s.' "$timestamp" && cat "$body"; } | hmac)
  # `=` stops at the first difference and so tells, by its time, how much of a guess was right: nothing, when what is
  # compared are hashes that nobody can foresee.
  blind=$(openssl rand -hex 32)
  [ "$(hash "$blind$expected")" = "$(hash "$blind$signature")" ]
}

hash() {
  printf '%s' "$1" | openssl dgst -sha256 -r | cut -c 1-64
}

# HMAC-SHA256 of what comes, in hex. `openssl dgst -hmac` would do it, but whoever lists the processes of this machine
# would read the secret among its arguments.
hmac() {
  { padded_key 54 && cat; } | openssl dgst -sha256 -binary | { padded_key 92 && cat; } | openssl dgst -sha256 -r | cut -c 1-64
}

# HMAC's key of 64 bytes, each XORed with $1. A key that is longer, as a secret is, stands for its hash.
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

answer() {
  printf 'HTTP/1.1 %s\r\nContent-Length: 0\r\nConnection: close\r\n\r\n' "$1"
  exit 0
}

# One request, on standard input, and its answer, on standard output.
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
  case $method in POST | PUT | PATCH) ;; *) answer '405 Method Not Allowed' ;; esac
  case $length in '' | *[!0-9]*) answer '411 Length Required' ;; ????????*) answer '413 Content Too Large' ;; esac
  if [ "$length" -gt "$max_body" ]; then answer '413 Content Too Large'; fi
  body=$(mktemp "$folder/body.XXXXXX")
  trap 'rm -f "$body"' EXIT
  # Into a file: a variable would lose the bytes that the signature is over.
  head -c "$length" >"$body"
  if [ "$(wc -c <"$body")" -ne "$length" ]; then answer '400 Bad Request'; fi
  if [ -n "${WEBHOOK_SECRET:-}" ] && ! is_signed; then answer '401 Unauthorized'; fi
  case $execution_id in '' | *[!0-9A-Za-z-]*) answer '400 Bad Request' ;; esac
  # Delivery is at least once: a lost answer means the same one again. A real receiver keeps what it has handled with
  # its results, for longer than it runs.
  if [ -e "$folder/$execution_id" ]; then
    echo "$execution_id again, ignored" >&3
  else
    handle_payload || answer '500 Internal Server Error'
    # After the work, not before: if it fails, the next attempt does it again. Attempts of one execution never
    # overlap, so nobody else is at it meanwhile.
    : >"$folder/$execution_id"
  fi
  answer '200 OK'
}

if [ "${1:-}" = --request ]; then
  receive
fi

folder=$(mktemp -d)
export folder
if [ -z "${WEBHOOK_SECRET:-}" ]; then
  echo 'no secret given: signatures are NOT verified, anyone can post here'
fi
# What the requests print goes where this prints, by 3: their standard output is the connection.
exec 3>&1
exec perl -MIO::Socket::INET -e '
  my ($port, @receive) = @ARGV;
  my $server = IO::Socket::INET->new(LocalAddr => "127.0.0.1", LocalPort => $port, Listen => 64, ReuseAddr => 1)
    or die "port $port cannot be had: $@\n";
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
      alarm 60;    # ends the script below when it is not through by then
      exec @receive;
      exit 1;
    }
  }
' "${1:-9000}" sh "$0" --request
