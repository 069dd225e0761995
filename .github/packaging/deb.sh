#!/usr/bin/env bash
# Packs a built cued as a .deb, with dpkg-deb alone. The same commit and binary make the same package, bit for bit.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=common.sh
. "$(dirname "$0")/common.sh"

usage() {
  cat <<'TEXT'
usage: deb.sh BINARY TARGET OUT     prints the path of the package

  TARGET  x86_64-unknown-linux-gnu, aarch64-unknown-linux-gnu or armv7-unknown-linux-gnueabihf
  OUT     the folder of the package

CUED_RUNNER=COMMAND    what runs a BINARY for another CPU: "qemu-aarch64-static -L FOLDER"
CUED_NATIVE=FILE       or a cued of this machine, for the manual pages
CUED_MAINTAINER=TEXT   "Name <address>" of who publishes the package
THIRD_PARTY=FILE       notices of the linked crates; generated again without it
SOURCE_DATE_EPOCH      the time of all files; that of the commit without it
TEXT
}

architecture() {
  case "$(cpu_of_target)" in
    x86_64) echo amd64 ;;
    aarch64) echo arm64 ;;
    armv7) echo armhf ;;
  esac
}

# What the binary asks for. systemd-sysusers makes the user, also where systemd does not run.
dependencies() {
  local glibc
  glibc=$(glibc_of "$binary")
  [ -z "$glibc" ] || printf 'libc6 (>= %s), ' "$glibc"
  ! grep -aq 'libgcc_s\.so\.1' "$binary" || printf 'libgcc-s1, '
  echo 'systemd | systemd-standalone-sysusers | systemd-sysusers, init-system-helpers (>= 1.54~)'
}

# The changelog in the form of Debian: an entry for each release, its sections as the first words, lines of 78 columns.
changelog() {
  awk -v maintainer="$maintainer" -v date="$(LC_ALL=C date -u -R -d "@$SOURCE_DATE_EPOCH")" '
    function item(  word, line, words, n, i) {
      if (text == "") return
      n = split(text, words, " ")
      line = "  *"
      for (i = 1; i <= n; i++) {
        word = words[i]
        if (length(line " " word) > 78) { print line; line = "   " }
        line = line " " word
      }
      print line
      text = ""
    }
    function entry() { item(); if (open) printf "\n -- %s  %s\n\n", maintainer, date }
    /^## / { entry(); open = 1; printf "cued (%s) unstable; urgency=medium\n\n", $2; next }
    !open { next }
    /^### / { item(); section = $2; next }
    /^- / { item(); text = section ": " substr($0, 3); next }
    /^  [^ ]/ { text = text " " substr($0, 3); next }
    { item() }
    END { entry() }' "$repository/src/docs/changelog.md" | sed "1s/(.*)/($version)/"
}

copyright() {
  cat <<TEXT
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: cued
Comment:
 The licences of linked software: /usr/share/doc/cued/THIRD-PARTY.txt.gz

Files: *
$(sed -n 's/^Copyright (c) /Copyright: /p' "$repository/LICENSE")
License: MIT
$(sed '1,/^Copyright/d; /./!s/^/./; s/^/ /' "$repository/LICENSE" | sed '1{/^ \.$/d}')
TEXT
}

control() {
  cat <<TEXT
Package: cued
Version: $version
Architecture: $(architecture)
Maintainer: $maintainer
Installed-Size: $(du -k -s --apparent-size --exclude=DEBIAN "$tree" | cut -f1)
Depends: $(dependencies)
Section: net
Priority: optional
Description: scheduled callbacks: a cron that calls URLs and workers
 cued keeps cues: a cron expression or an instant, each with a JSON payload.
 When a cue is due, it POSTs the signed payload to a URL, or queues an
 execution that a worker claims over HTTP. It retries failures, records every
 result, survives power cuts, and keeps a record of every run that it missed.
 .
 One program with its database in one SQLite file, a page for browsers and a
 command-line client.
TEXT
}

lay_out() {
  install -D -m 755 "$binary" "$tree/usr/bin/cued"
  documents "$tree/usr"
  install -D -m 644 "$system/cued.service" "$tree/lib/systemd/system/cued.service"
  install -D -m 644 "$system/cued.sysusers" "$tree/usr/lib/sysusers.d/cued.conf"
  install -D -m 640 "$system/cued.default" "$tree/etc/default/cued"
  install -D -m 644 "$system/lintian-overrides" "$tree/usr/share/lintian/overrides/cued"
  changelog | gzip -9n >"$tree/usr/share/doc/cued/changelog.gz"
  copyright >"$tree/usr/share/doc/cued/copyright"
  mkdir "$tree/DEBIAN"
  install -m 755 "$system"/{postinst,prerm,postrm} "$tree/DEBIAN"
  echo /etc/default/cued >"$tree/DEBIAN/conffiles"
  control >"$tree/DEBIAN/control"
  (cd "$tree" && find . -type f -not -path './DEBIAN/*' -printf '%P\0' | LC_ALL=C sort -z | xargs -0 md5sum) \
    >"$tree/DEBIAN/md5sums"
  find "$tree" -type d -exec chmod 755 {} +
  find "$tree" -type f -perm 600 -exec chmod 644 {} +
  find "$tree" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
}

needs dpkg-deb dpkg
arguments "$@"
system=$packaging/system
begin_package
tree=$scratch/tree
lay_out
package=$out/cued_${version}_$(architecture).deb
# Beside its place until it is whole.
dpkg-deb --root-owner-group -Zxz -z9 --build "$tree" "$scratch/package.deb" >/dev/null
mv "$scratch/package.deb" "$package"
echo "$package"
