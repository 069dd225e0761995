#!/usr/bin/env bash
# Installs a .deb in a chroot and tries what happens to it: a journey, an upgrade of the database, wrong settings, a
# downgrade, removal. Prints "skipped: …" and ends well without root, and where the mirror does not answer.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=common.sh
. "$(dirname "$0")/common.sh"
# shellcheck source=build/toolchain.sh
. "$packaging/build/toolchain.sh"
# shellcheck source=testing.sh
. "$packaging/testing.sh"

usage() {
  cat <<'TEXT'
usage: deb-tests.sh DEB

CUED_CHROOT=FOLDER   a Debian with systemd to copy, in place of one that debootstrap makes (a minute)
CUED_SUITE=NAME      the Debian that debootstrap makes: bookworm
CUED_DEBIAN_MIRROR=URL   its mirror
TEXT
}

skip() {
  echo "skipped: $*"
  exit 0
}

inside() {
  "${enter[@]}" "$@"
}

as_cued() {
  "${enter[@]}" "${user[@]}" "$@"
}

# dpkg inside: its output in $said; a failure ends the test.
package() {
  said=$(inside dpkg "$@" 2>&1) || failed "dpkg $*: $said"
}

make_root() {
  if [ -n "${CUED_CHROOT:-}" ]; then
    cp -a "$CUED_CHROOT" "$root"
    return
  fi
  run_debootstrap --variant=minbase --include=systemd "${CUED_SUITE:-bookworm}" "$root" \
    ${CUED_DEBIAN_MIRROR:+"$CUED_DEBIAN_MIRROR"} >"$scratch/log" 2>&1 ||
    skip "debootstrap made no Debian, the mirror may be broken: $(tail -n 1 "$scratch/log")"
}

# repacked FIELD VALUE: the package with another value in its control file, its path inside.
repacked() {
  local tree=$scratch/repacked
  rm -rf "$tree"
  dpkg-deb -R "$deb" "$tree"
  sed -i "s/^$1: .*/$1: $2/" "$tree/DEBIAN/control"
  dpkg-deb --root-owner-group -Znone --build "$tree" "$root/tmp/$2.deb" >/dev/null
  echo "/tmp/$2.deb"
}

# pretend_systemd: what the scripts of the package ask of a running systemd is written down, and nothing runs.
pretend_systemd() {
  mkdir -p "$root/run/systemd/system"
  printf '#!/bin/sh\necho "$*" >>/tmp/systemctl.log\n' >"$root/usr/local/sbin/systemctl"
  chmod 755 "$root/usr/local/sbin/systemctl"
}

# The requests for the unit since the last call.
requests() {
  grep -E '(start|restart|stop) cued.service' "$root/tmp/systemctl.log" | sed 's/.*\b\(start\|restart\|stop\) /\1 /' || true
  : >"$root/tmp/systemctl.log"
}

# serve [NAME=VALUE…]: the server with the settings of the unit and its file, until it listens or has ended. What it
# printed is in $said. One that listens goes on as $server, with $code empty; otherwise $code is the exit code.
serve() {
  local settings tries
  mapfile -t settings < <(sed -n 's/^Environment=//p' "$root/lib/systemd/system/cued.service"
    sed -n '/^CUED_/p' "$root/etc/default/cued")
  code=''
  : >"$scratch/served"
  "${enter[@]}" "${user[@]}" env "${settings[@]}" "$@" /usr/bin/cued serve >"$scratch/served" 2>&1 &
  server=$!
  for ((tries = 0; tries < 600; tries++)); do
    said=$(cat "$scratch/served")
    case "$said" in
      *"cued listening on"*) return ;;
    esac
    if ! kill -0 "$server" 2>/dev/null; then
      code=0
      wait "$server" || code=$?
      server=
      said=$(cat "$scratch/served")
      return
    fi
    sleep 0.1
  done
  failed "the server neither listened nor ended within a minute: $said"
}

stop() {
  local ended=0
  kill -s TERM "$server"
  wait "$server" || ended=$?
  server=
  equal "$ended" 0
}

clean_up() {
  [ -z "$server" ] || kill -s KILL "$server" 2>/dev/null || true
  rm -rf --one-file-system "$scratch"
}

# The part of a unit that takes privileges away.
sandbox() {
  sed -n '/^ProtectSystem=/,$p' "$1"
}

test_installation() {
  step "install"
  package -i "$1"
  equal "$(inside stat -c '%U:%G %a' /var/lib/cued)" "cued:cued 700"
  equal "$(inside stat -c '%U:%G %a' /etc/default/cued)" "root:cued 640"
  [ -L "$root/etc/systemd/system/multi-user.target.wants/cued.service" ] || failed "the unit is not enabled"
  equal "$(inside systemd-analyze --man=no verify cued.service 2>&1 | grep -i cued || true)" ""
  equal "$(sandbox "$root/lib/systemd/system/cued.service")" "$(sandbox "$repository/examples/cued.service")"
  inside bash -n /usr/share/bash-completion/completions/cued
  has "$(zcat "$root/usr/share/man/man1/cued-serve.1.gz")" "Run the server"
  has "$(zcat "$root/usr/share/doc/cued/THIRD-PARTY.txt.gz")" BSD-3-Clause
}

test_journey() {
  step "run as its user"
  CUED_SMOKE_ROOT=$root "$packaging/smoke.sh" /usr/bin/cued \
    chroot "$root" "${user[@]}" | sed 's/^/        /'
}

test_upgrade() {
  step "upgrade, with a database and settings of the administrator"
  as_cued /usr/bin/cued user add ada@example.com --db /var/lib/cued/cued.db >/dev/null
  echo 'CUED_LISTEN=127.0.0.1:0' >>"$root/etc/default/cued"
  pretend_systemd
  package -i "$1"
  equal "$(requests)" "restart cued.service"
  has "$(cat "$root/etc/default/cued")" "CUED_LISTEN=127.0.0.1:0"
  serve
  has "$said" "cued listening on"
  stop
  has "$(as_cued /usr/bin/cued user list --db /var/lib/cued/cued.db)" ada@example.com
  has "$(as_cued /usr/bin/cued check /var/lib/cued/cued.db)" "schema      version 1"
}

test_wrong_settings() {
  step "settings that do not work"
  serve CUED_LISTEN=127.0.0.1:80o0
  equal "$code" 2
  has "$said" "expected an address and a port"
  has "$said" CUED_LISTEN

  echo 'CUED_LIMITS off' >>"$root/etc/default/cued"
  # The unit's line, as systemd reads it.
  said=$(inside sh -c "$(sed -n 's/^ExecStartPre=-//p' "$root/lib/systemd/system/cued.service" | sed 's/\$\$/$/g')")
  equal "$(wc -l <<<"$said")" 1
  has "$said" "has no NAME=value and is ignored"
  sed -i '$d' "$root/etc/default/cued"

  serve CUED_LIMIT=off
  has "$said" CUED_LIMITS
  local first=$server address=${said##*http://}
  address=${address%%[[:space:]]*}
  serve CUED_DB=/var/lib/cued/another.db "CUED_LISTEN=$address"
  equal "$code" 1
  has "$said" "cannot listen on $address"
  server=$first
  stop

  inside chown root /var/lib/cued
  serve
  equal "$code" 1
  has "$said" "must be readable and writable"
  inside chown cued /var/lib/cued
}

test_another_cpu() {
  step "a package for another CPU"
  local file
  file=$(repacked Architecture s390x)
  said=$(inside dpkg -i "$file" 2>&1) && failed "it was installed"
  has "$said" "does not match system"
}

test_downgrade() {
  step "downgrade, with a database of a newer version"
  package -i "$1"
  equal "$(requests)" "restart cued.service"
  python3 - "$root/var/lib/cued/cued.db" <<'PY'
import sqlite3, sys
database = sqlite3.connect(sys.argv[1])
database.execute("PRAGMA user_version = 1000")
database.commit()
PY
  inside chown cued:cued /var/lib/cued/cued.db
  serve
  equal "$code" 1
  has "$said" "written by a newer cued"
  has "$said" "cued restore"
}

test_removal() {
  step "remove"
  : >"$root/tmp/systemctl.log"
  package -r cued
  equal "$(requests)" "stop cued.service"
  [ ! -e "$root/usr/bin/cued" ] || failed "the program is left"
  has "$(cat "$root/etc/default/cued")" "CUED_LISTEN=127.0.0.1:0"
  step "purge"
  package -P cued
  has "$said" "The database is left in /var/lib/cued"
  [ ! -e "$root/etc/default/cued" ] || failed "the settings are left"
  [ ! -L "$root/etc/systemd/system/multi-user.target.wants/cued.service" ] || failed "the unit is still enabled"
  [ -s "$root/var/lib/cued/cued.db" ] || failed "the database is gone"
}

main() {
  counted 1 "$@"
  [ -f "$1" ] || die "no file at $1: make it with deb.sh"
  [ "$(id -u)" = 0 ] || skip "a chroot needs root"
  deb=$(realpath "$1")
  scratch=$(mktemp -d "${TMPDIR:-/tmp}/cued-deb-tests.XXXXXX")
  server=
  trap clean_up EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM
  root=$scratch/root
  # shellcheck disable=SC2034 # where debootstrap is unpacked if this machine has none
  TOOLCHAIN=$scratch
  enter=(env -i PATH=/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive
    chroot "$root")
  user=(setpriv --reuid cued --regid cued --clear-groups)
  step "make a Debian"
  make_root
  local older
  older=$(repacked Version 0.0.1)
  cp "$deb" "$root/tmp/new.deb"
  test_installation "$older"
  test_journey
  test_upgrade /tmp/new.deb
  test_wrong_settings
  test_another_cpu
  test_downgrade "$older"
  test_removal
  echo "ok: $(basename "$deb") passed in $SECONDS s"
}

main "$@"
