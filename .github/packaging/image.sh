#!/usr/bin/env bash
# Makes a container image of a static cued with buildah, without a daemon, as an archive that docker and podman load.
# The same commit and binary make the same archive, bit for bit.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=common.sh
. "$(dirname "$0")/common.sh"

usage() {
  cat <<'TEXT'
usage: image.sh BINARY TARGET OUT     prints the path of the archive

  BINARY  a static build
  TARGET  its Rust target: x86_64-…, aarch64-… or armv7-…
  OUT     the folder of the archive

THIRD_PARTY, SOURCE_DATE_EPOCH: as for deb.sh
TEXT
}

platform() {
  case "$(cpu_of_target)" in
    x86_64) echo amd64 ;;
    aarch64) echo arm64 ;;
    armv7) echo arm/v7 ;;
  esac
}

# Images and layers in the scratch folder, not in those of the machine.
in_scratch() {
  local command=$1
  shift
  buildah --root "$scratch/storage" --runroot "$scratch/run" --storage-driver vfs "$command" "$@" >>"$scratch/log" 2>&1 ||
    { cat "$scratch/log" >&2; die "buildah $command failed, as it says above"; }
}

lay_out() {
  mkdir -p "$context/data"
  chmod 700 "$context/data"
  install -m 755 "$binary" "$context/cued"
  install -m 644 "$repository/LICENSE" "$context/LICENSE"
  third_party >"$context/THIRD-PARTY.txt"
  find "$context" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
}

needs buildah buildah
needs python3 python3
needs xz xz-utils
arguments "$@"
! grep -aq '/ld-linux\|/ld-musl' "$binary" ||
  die "$1 is linked to the C library of a system, and the image has none: build it static (RUSTFLAGS='-C" \
    "target-feature=+crt-static' cargo build --release --target $target)"
version=$(version)
SOURCE_DATE_EPOCH=$(source_date)
scratch=$(mktemp -d "${TMPDIR:-/tmp}/cued-image.XXXXXX")
trap 'rm -rf --one-file-system "$scratch"' EXIT
umask 022
context=$scratch/context
lay_out
# The format of Docker: that of OCI has no health check.
in_scratch bud --isolation chroot --format docker --timestamp "$SOURCE_DATE_EPOCH" --platform "linux/$(platform)" \
  --build-arg "VERSION=$version" --tag "cued:$version" --file "$packaging/image/Dockerfile" "$context"
in_scratch push "cued:$version" "docker-archive:$scratch/built.tar:cued:$version"
"$packaging/image/reproducible.py" "$scratch/built.tar" "$scratch/image.tar"
# podman 4.3 reads this, and no archive of gzip.
xz -9 -T1 "$scratch/image.tar"
archive=$out/cued-$version-$(cpu_of_target)-image.tar.xz
mv "$scratch/image.tar.xz" "$archive"
echo "$archive"
