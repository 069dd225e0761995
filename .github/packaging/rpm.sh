#!/usr/bin/env bash
# Packs a built cued as an .rpm, with rpmbuild. The same commit and binary make the same package, bit for bit.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=common.sh
. "$(dirname "$0")/common.sh"

usage() {
  cat <<'TEXT'
usage: rpm.sh BINARY TARGET OUT     prints the path of the package

  TARGET  x86_64-unknown-linux-gnu or aarch64-unknown-linux-gnu
  OUT     the folder of the package

CUED_RUNNER, CUED_NATIVE, CUED_MAINTAINER, THIRD_PARTY, SOURCE_DATE_EPOCH: as for deb.sh
TEXT
}

lay_out() {
  install -D -m 755 "$binary" "$tree/usr/bin/cued"
  documents "$tree/usr"
  mkdir -p "$tree/usr/share/zsh/site-functions" "$tree/usr/share/licenses/cued" "$tree/var/lib/cued"
  mv "$tree/usr/share/zsh/vendor-completions/_cued" "$tree/usr/share/zsh/site-functions/_cued"
  rmdir "$tree/usr/share/zsh/vendor-completions"
  mv "$tree/usr/share/doc/cued/THIRD-PARTY.txt.gz" "$tree/usr/share/licenses/cued"
  install -m 644 "$repository/LICENSE" "$tree/usr/share/licenses/cued"
  install -m 644 "$repository/src/docs/changelog.md" "$tree/usr/share/doc/cued"
  install -D -m 644 "$packaging/system/cued.service" "$tree/usr/lib/systemd/system/cued.service"
  install -D -m 644 "$packaging/system/cued.sysusers" "$tree/usr/lib/sysusers.d/cued.conf"
  install -D -m 640 "$packaging/system/cued.default" "$tree/etc/default/cued"
  find "$tree" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
}

pack() {
  rpmbuild -bb --target "$cpu-unknown-linux" \
    --define "_topdir $scratch/rpm" --define "_rpmdir $scratch" --define "_rpmfilename package.rpm" \
    --define "tree $tree" --define "cued_version $version" --define "maintainer $maintainer" \
    --define "_buildhost localhost" --define "use_source_date_epoch_as_buildtime 1" \
    --define "clamp_mtime_to_source_date_epoch 1" --define "_binary_payload w9.xzdio" \
    "$packaging/system/cued.spec" >"$scratch/log" 2>&1 || { cat "$scratch/log" >&2; die "rpmbuild failed, as it says above"; }
}

needs rpmbuild rpm
arguments "$@"
cpu=$(cpu_of_target)
[ "$cpu" != armv7 ] || die "no distribution with rpm runs on armv7 any more: take the .deb or the archive"
begin_package
tree=$scratch/tree
lay_out
pack
package=$out/cued-$version-1.$cpu.rpm
mv "$scratch/package.rpm" "$package"
echo "$package"
