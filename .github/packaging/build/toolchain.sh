# shellcheck shell=bash
# The compilers of other CPUs, in a scratch folder. Sourced after common.sh.
#
# The standard library of a target comes from the Rust of this machine, else from rustup, else from Debian's packages in
# a chroot, which needs root. zig is the linker and the C compiler of all targets, and qemu runs their programs.
#
# All of it is under $TOOLCHAIN. CUED_TOOLCHAIN=DIR keeps that folder for the next run; without it, the folder is
# temporary and removed on exit, also when the script is interrupted. Every command in the chroot runs in a mount
# namespace of its own, so that no mount outlives it, however it ends.
#
# CUED_DEBIAN_MIRROR=URL names the mirror of the chroot; by default, it is the one that debootstrap uses.

# The stable Debian whose rustc-web is newer than the rust-version of the manifest.
readonly DEBIAN_SUITE=trixie
# Seconds after which a download that does not go on is given up.
readonly STALLED=30
readonly APT_OPTIONS=(-qq -o Acquire::Retries=3 -o "Acquire::http::Timeout=$STALLED" -o "Acquire::https::Timeout=$STALLED")

stage() {
  printf '== %s (after %s s)\n' "$1" "$SECONDS" >&2
}

# Sets TOOLCHAIN, and removes it at the end if it is temporary.
open_toolchain() {
  if [ -n "${CUED_TOOLCHAIN:-}" ]; then
    mkdir -p "$CUED_TOOLCHAIN"
    TOOLCHAIN=$(cd "$CUED_TOOLCHAIN" && pwd)
  else
    TOOLCHAIN=$(mktemp -d "${TMPDIR:-/var/tmp}/cued-toolchain.XXXXXX")
    trap 'rm -rf --one-file-system "$TOOLCHAIN"' EXIT
    # A signal ends the script, and EXIT cleans up.
    trap 'exit 130' INT
    trap 'exit 143' TERM HUP
  fi
  mkdir -p "$TOOLCHAIN/build"
  cargo_home=${CARGO_HOME:-$HOME/.cargo}
  registry=$cargo_home/registry
  # Flags of the compiler are divided at spaces.
  case "$repository $cargo_home $TOOLCHAIN" in
    *\ *\ *\ * | *[$'\t\n']*)
      die "the path of the repository, of cargo ($cargo_home) or of the scratch folder ($TOOLCHAIN) has a space: use others" ;;
  esac
  settings=()
}

# Runs a command with a private list of mounts.
with_own_mounts() {
  unshare --mount --propagation private "$@"
}

# Downloads the files of Debian packages into a folder without installing them.
unpack_packages() {
  local folder=$1
  shift
  # The user _apt cannot write here, and nothing is installed.
  local options=("${APT_OPTIONS[@]}" -o APT::Sandbox::User=root -o "Dir::State::Lists=$TOOLCHAIN/lists"
    -o "Dir::Cache=$TOOLCHAIN/cache")
  # Packages of an earlier call.
  rm -rf "$TOOLCHAIN/cache/packages"
  mkdir -p "$folder" "$TOOLCHAIN/cache/packages" "$TOOLCHAIN/lists/partial" "$TOOLCHAIN/cache/archives/partial"
  command -v apt-get >/dev/null || { echo "no apt-get here to download $*" >&2; return 1; }
  [ -e "$TOOLCHAIN/lists/.ready" ] || apt-get "${options[@]}" update >&2 || return 1
  touch "$TOOLCHAIN/lists/.ready"
  (cd "$TOOLCHAIN/cache/packages" && apt-get "${options[@]}" download "$@" >&2) || return 1
  local package
  for package in "$TOOLCHAIN"/cache/packages/*.deb; do
    dpkg-deb -x "$package" "$folder"
  done
}

# debootstrap of this machine, or unpacked beside the chroot if it is not installed, with the keys of Debian's archive.
run_debootstrap() {
  if ! command -v debootstrap >/dev/null || [ ! -e /usr/share/keyrings/debian-archive-keyring.gpg ]; then
    [ -e "$TOOLCHAIN/tools/usr/sbin/debootstrap" ] \
      || unpack_packages "$TOOLCHAIN/tools" debootstrap debian-archive-keyring || return 1
    with_own_mounts timeout --foreground 300 env DEBOOTSTRAP_DIR="$TOOLCHAIN/tools/usr/share/debootstrap" "$TOOLCHAIN/tools/usr/sbin/debootstrap" \
      --keyring="$TOOLCHAIN/tools/usr/share/keyrings/debian-archive-keyring.gpg" "$@" >&2
  else
    with_own_mounts timeout --foreground 300 debootstrap "$@" >&2
  fi
}

# Runs a command in the chroot: sources read-only in /src, the registry of cargo in /cargo, results in /build.
in_chroot() {
  # shellcheck disable=SC2016 # the inner shell expands these
  with_own_mounts sh -ec '
    root=$1 build=$2 source=$3 registry=$4 python=$5 tools=$6
    shift 6
    mkdir -p "$root/src" "$root/cargo/registry" "$root/build" "$root/python"
    mount -t proc proc "$root/proc"
    mount --bind "$source" "$root/src"
    mount -o remount,ro,bind "$root/src"
    mount --bind "$registry" "$root/cargo/registry"
    mount --bind "$build" "$root/build"
    [ ! -e "$python" ] || mount --bind "$python" "$root/python"
    # qemu, by the path that it has outside.
    if [ -e "$tools" ]; then
      mkdir -p "$root$tools"
      mount --bind "$tools" "$root$tools"
    fi
    exec chroot "$root" env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 CARGO_HOME=/cargo \
      CARGO_ZIGBUILD_ZIG_PATH=/python/ziglang/zig DEBIAN_FRONTEND=noninteractive "$@"
  ' sh "$TOOLCHAIN/chroot" "$TOOLCHAIN/build" "$repository" "$registry" "$TOOLCHAIN/python" \
    "$TOOLCHAIN/tools" "$@"
}

# Makes the chroot, without compilers.
install_chroot() {
  [ ! -e "$TOOLCHAIN/chroot/.ready" ] || return 0
  if [ "$(id -u)" != 0 ]; then
    echo "without rustup, compilers of other CPUs need a chroot, and that needs root: run as root, or install rustup" >&2
    return 1
  fi
  stage "chroot with $DEBIAN_SUITE"
  rm -rf --one-file-system "$TOOLCHAIN/chroot"
  run_debootstrap --variant=minbase --include=ca-certificates "$DEBIAN_SUITE" "$TOOLCHAIN/chroot" \
    ${CUED_DEBIAN_MIRROR:+"$CUED_DEBIAN_MIRROR"} || return 1
  echo force-unsafe-io >"$TOOLCHAIN/chroot/etc/dpkg/dpkg.cfg.d/scratch"
  touch "$TOOLCHAIN/chroot/.ready"
}

# Debian's name of the CPU of a target.
debian_architecture() {
  case "$1" in
    x86_64-*) echo amd64 ;;
    aarch64-*) echo arm64 ;;
    armv7-*) echo armhf ;;
  esac
}

# Debian's Rust with the standard library of a target.
install_debian_std() {
  local architecture
  architecture=$(debian_architecture "$1")
  [ ! -e "$TOOLCHAIN/chroot/.std-$architecture" ] || return 0
  install_chroot || return 1
  stage "Debian's Rust for $1"
  in_chroot dpkg --add-architecture "$architecture" || return 1
  in_chroot apt-get "${APT_OPTIONS[@]}" update >&2 || return 1
  in_chroot apt-get "${APT_OPTIONS[@]}" -y install --no-install-recommends \
    rustc-web cargo-web gcc libc6-dev "libstd-rust-web-dev:$architecture" >&2 || return 1
  touch "$TOOLCHAIN/chroot/.std-$architecture"
}

# The same version of Rust as that of this machine, with the standard library of a target, in the scratch folder.
install_rustup_std() {
  command -v rustup >/dev/null || return 1
  rust_version=$(rustc --version | cut -d ' ' -f 2)
  [[ $rust_version =~ ^[0-9.]+$ ]] || return 1
  [ ! -d "$TOOLCHAIN/rustup/toolchains/$rust_version-$(rustc -vV | sed -n 's/^host: //p')/lib/rustlib/$1" ] || return 0
  stage "Rust $rust_version for $1"
  RUSTUP_HOME="$TOOLCHAIN/rustup" timeout --foreground 600 rustup toolchain install "$rust_version" --profile minimal --no-self-update \
    --target "$1" >&2
}

# Sets $rust to where the standard library of a target is.
install_std() {
  if [ -d "$(rustc --print target-libdir --target "$1")" ]; then
    rust=machine
  elif install_rustup_std "$1"; then
    rust=rustup
  else
    install_debian_std "$1" || return 1
    rust=chroot
  fi
}

# The linker and C compiler of every target, for a chosen version of glibc.
install_zig() {
  [ ! -e "$TOOLCHAIN/python/.ready" ] || return 0
  stage "zig"
  rm -rf "$TOOLCHAIN/python"
  python3 -m pip install --quiet --no-cache-dir --disable-pip-version-check --timeout "$STALLED" --require-hashes \
    --requirement "$packaging/build/requirements.txt" --target "$TOOLCHAIN/python" >&2 || return 1
  touch "$TOOLCHAIN/python/.ready"
}

# with_rust COMMAND…: with the Rust that install_std chose for this machine.
with_rust() {
  if [ "$rust" = rustup ]; then
    env RUSTUP_HOME="$TOOLCHAIN/rustup" RUSTUP_TOOLCHAIN="$rust_version" "$@"
  else
    "$@"
  fi
}

# remaps CARGO_HOME SOURCE RESULTS: flags that give these folders the names that they have in the chroot.
remaps() {
  echo "--remap-path-prefix=$1=/cargo --remap-path-prefix=$2=/src --remap-path-prefix=$3=/build"
}

# zig_cargo NAME WORDS…: cargo-zigbuild with the words, its results in build/NAME. $settings has variables for it.
zig_cargo() {
  local name=$1
  shift
  if [ "$rust" = chroot ]; then
    in_chroot env CARGO_TARGET_DIR="/build/$name" CARGO_NET_OFFLINE=true RUSTFLAGS="$(remaps /cargo /src "/build/$name")" \
      "${settings[@]}" sh -c 'cd /src && exec /python/bin/cargo-zigbuild "$@"' sh "$@"
    return
  fi
  # With the caches of zig in the scratch folder.
  with_rust env CARGO_TARGET_DIR="$TOOLCHAIN/build/$name" CARGO_ZIGBUILD_ZIG_PATH="$TOOLCHAIN/python/ziglang/zig" \
    XDG_CACHE_HOME="$TOOLCHAIN/cache" CARGO_ZIGBUILD_CACHE_DIR="$TOOLCHAIN/cache/cargo-zigbuild" \
    ZIG_GLOBAL_CACHE_DIR="$TOOLCHAIN/cache/zig" ZIG_LOCAL_CACHE_DIR="$TOOLCHAIN/cache/zig" \
    RUSTFLAGS="$(remaps "$cargo_home" "$repository" "$TOOLCHAIN/build/$name")" \
    "${settings[@]}" "$TOOLCHAIN/python/bin/cargo-zigbuild" "$@"
}

# Sets $runner to the words that run a program of a target here: none for the CPU of this machine.
install_runner() {
  local cpu=${1%%-*} system=${1%%-*}-linux-gnu debian
  runner=()
  [ "$cpu" != "$(machine)" ] || return 0
  debian=$(debian_architecture "$1")
  case "$cpu" in
    armv7) cpu=arm system=arm-linux-gnueabihf ;;
  esac
  if [ ! -d "$TOOLCHAIN/tools/usr/$system" ]; then
    stage "qemu for $1"
    unpack_packages "$TOOLCHAIN/tools" qemu-user-static "libc6-$debian-cross" "libgcc-s1-$debian-cross" || return 1
  fi
  runner=("$TOOLCHAIN/tools/usr/bin/qemu-$cpu-static" -L "$TOOLCHAIN/tools/usr/$system")
}
