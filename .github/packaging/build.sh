#!/usr/bin/env bash
# Makes what a release consists of: archives, packages, an image, sums, a list of components.
#
# Everything is built and tried in a scratch folder. Only when all of it is done, it comes into the output folder.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=common.sh
. "$(dirname "$0")/common.sh"
# shellcheck source=build/toolchain.sh
. "$packaging/build/toolchain.sh"
# shellcheck source=build/compile.sh
. "$packaging/build/compile.sh"
# shellcheck source=build/archive.sh
. "$packaging/build/archive.sh"

readonly TARGETS=(
  x86_64-unknown-linux-gnu
  aarch64-unknown-linux-gnu
  armv7-unknown-linux-gnueabihf
  x86_64-unknown-linux-static
)

usage() {
  cat <<TEXT
usage: build.sh [TARGET...]     without TARGET, what runs on this machine

$(printf '  %s\n' "${TARGETS[@]}")

CUED_RELEASE=1       all targets; a missing tool is an error, and nothing is left out
OUT=FOLDER           the folder of the results: target/packages
CUED_TOOLCHAIN=DIR   keeps compilers and builds in DIR for the next run (6 GB); otherwise they are removed
CUED_DEBIAN_MIRROR=URL, SOURCE_DATE_EPOCH=SECONDS, CUED_MAINTAINER=NAME

It needs cargo, git, python3 with pip, and a C compiler; for other CPUs, a Debian or Ubuntu, and rustup or root.
TEXT
}

# The targets that run on this machine without help.
native_targets() {
  local target
  for target in "${TARGETS[@]}"; do
    [ "${target%%-*}" != "$(machine)" ] || echo "$target"
  done
}

# choose TARGET…: sets $targets.
choose() {
  local target
  if [ "${CUED_RELEASE:-}" = 1 ] && [ $# = 0 ]; then
    targets=("${TARGETS[@]}")
  elif [ $# = 0 ]; then
    mapfile -t targets < <(native_targets)
    [ "${#targets[@]}" -gt 0 ] || die "nothing is built for $(machine): name a target of build.sh --help"
  else
    targets=("$@")
  fi
  for target in "${targets[@]}"; do
    if [[ " ${TARGETS[*]} " != *" $target "* ]]; then
      echo "build.sh: unknown target $target; known are ${TARGETS[*]}" >&2
      exit 2
    fi
    [[ $target != *-static || $target = "$(machine)"-* ]] || die "$target is built on ${target%%-*} only, and this is $(machine)"
  done
}

# Whether a tool is here. In a release it must be.
has_tool() {
  local tool=$1 package=$2
  ! command -v "$tool" >/dev/null || return 0
  [ "${CUED_RELEASE:-}" != 1 ] || die "$tool is missing: apt-get install $package"
  echo "skipped: what $tool makes; to have it, apt-get install $package" >&2
  return 1
}

# What the chosen targets take, so that nothing is missing after an hour.
check_tools() {
  needs cargo "cargo, or rustup"
  needs git git
  needs python3 "python3 python3-pip"
  needs cc "gcc libc6-dev"
  python3 -m pip --version >/dev/null 2>&1 || die "pip is missing: apt-get install python3-pip"
  has_deb=0 has_rpm=0 has_image=0
  ! has_tool dpkg-deb dpkg || has_deb=1
  ! has_tool rpmbuild rpm || has_rpm=1
  ! has_tool buildah buildah || ! has_tool xz xz-utils || has_image=1
}

# journey PROGRAM NAME: the smoke test of a program that was unpacked from the artefact NAME.
journey() {
  stage "try $2"
  "$packaging/smoke.sh" "$1" "${runner[@]}" >&2
}

# try_out TARGET: runs what was packed: the program of each artefact; the .deb in a chroot and the image in podman where
# that is possible, which is as root and on the CPU of the machine.
try_out() {
  local target=$1 folder=$TOOLCHAIN/unpacked name file
  name=cued-$(version)-$target
  rm -rf "$folder"
  mkdir -p "$folder"/{archive,deb,rpm}
  tar -xzf "$stage/$name.tar.gz" -C "$folder/archive"
  journey "$folder/archive/$name/cued" "$name.tar.gz"
  for file in "${packed[@]}"; do
    case "$file" in
      *.deb)
        dpkg-deb -x "$file" "$folder/deb"
        journey "$folder/deb/usr/bin/cued" "${file##*/}" ;;
      *.rpm)
        rpm2archive - <"$file" | tar -xz -C "$folder/rpm"
        journey "$folder/rpm/usr/bin/cued" "${file##*/}" ;;
    esac
    [ "$(id -u)" = 0 ] && [ "${target%%-*}" = "$(machine)" ] || continue
    case "$file" in
      *.deb) "$packaging/deb-tests.sh" "$file" >&2 ;;
      *-image.tar.xz) ! has_tool podman podman || "$packaging/image-tests.sh" "$file" >&2 ;;
    esac
  done
}

# pack TARGET: everything that is made of $binary, into $stage.
pack() {
  local target=$1 rust_target
  rust_target=$(rust_target "$target")
  install_runner "$target" || die "qemu for $target cannot be downloaded, as it says above"
  export CUED_RUNNER="${runner[*]}"
  archive "$target" "$stage"
  packed=()
  case "$target" in
    *-static)
      [ "$has_image" = 0 ] || packed+=("$("$packaging/image.sh" "$binary" "$rust_target" "$stage")") ;;
    *)
      [ "$has_deb" = 0 ] || packed+=("$("$packaging/deb.sh" "$binary" "$rust_target" "$stage")")
      # No distribution with rpm runs on armv7 any more.
      [ "$has_rpm" = 0 ] || [[ $target = armv7-* ]] ||
        packed+=("$("$packaging/rpm.sh" "$binary" "$rust_target" "$stage")") ;;
  esac
  try_out "$target"
  echo "$target: $compiler; $(stat -c %s "$binary") bytes" >>"$stage/BUILD.txt"
}

# The files of all targets: notices before, sums after.
prepare() {
  open_toolchain
  stage=$TOOLCHAIN/stage
  rm -rf "$stage"
  mkdir -p "$stage"
  cd "$repository"
  cargo fetch --locked
  SOURCE_DATE_EPOCH=$(source_date)
  THIRD_PARTY=$TOOLCHAIN/THIRD-PARTY.txt
  export SOURCE_DATE_EPOCH THIRD_PARTY
  "$packaging/licences.py" --notices >"$THIRD_PARTY"
  "$packaging/build/sbom.py" >"$stage/cued-$(version).cdx.json"
}

finish() {
  (cd "$stage" && sha256sum -- * >SHA256SUMS)
  mkdir -p "$out"
  cp "$stage"/* "$out"
  stage "done"
  (cd "$stage" && wc -c -- *)
  echo "in $out"
}

case "${1:-}" in
  -h | --help) usage; exit ;;
esac
choose "$@"
check_tools
out=$(realpath -m "${OUT:-$repository/target/packages}")
umask 022
prepare
for target in "${targets[@]}"; do
  compile "$target"
  stage "pack $target"
  pack "$target"
done
finish
