# shellcheck shell=bash
# The release build of one target. Sourced after common.sh and toolchain.sh.
#
# The same commit, compiler and target make the same binary in any folder: the folders that the compiler would write
# into messages of panics get fixed names.

# The oldest glibc that the binaries run with: that of Debian 10, Ubuntu 18.10 and RHEL 8.
readonly GLIBC=2.28
readonly BUILD_OPTIONS=(--locked --release --bin cued)

# The Rust target of a target of ours.
rust_target() {
  case "$1" in
    x86_64-unknown-linux-static) echo x86_64-unknown-linux-gnu ;;
    *) echo "$1" ;;
  esac
}

# A static binary finds no `getrandom` in a C library at run time, and would read /dev/urandom, which a container may
# lack.
static_build() {
  local target=$1
  env CARGO_TARGET_DIR="$TOOLCHAIN/build/$target" \
    RUSTFLAGS="-C target-feature=+crt-static --cfg getrandom_backend=\"linux_getrandom\" $(
      remaps "$cargo_home" "$repository" "$TOOLCHAIN/build/$target")" \
    cargo build "${BUILD_OPTIONS[@]}" --target "$(rust_target "$target")"
}

# compile TARGET: builds $binary, and sets $compiler to the versions of what made it.
compile() {
  local target=$1
  if [[ $target = *-static ]]; then
    stage "compile $target"
    static_build "$target"
    compiler="$(rustc --version), $(cc --version | head -n 1)"
  else
    install_zig || die "zig and cargo-zigbuild cannot be installed with pip, as it says above"
    install_std "$target" ||
      die "there is no Rust for $target: install rustup (or rustup target add $target), or set CUED_DEBIAN_MIRROR to a" \
        "mirror of Debian that answers"
    stage "compile $target"
    zig_cargo "$target" zigbuild "${BUILD_OPTIONS[@]}" --target "$target.$GLIBC"
    case "$rust" in
      chroot) compiler=$(in_chroot rustc --version) ;;
      *) compiler=$(rustc --version) ;;
    esac
    compiler="$compiler, zig $("$TOOLCHAIN/python/ziglang/zig" version)"
  fi
  # shellcheck disable=SC2034 # for those who pack it
  binary=$TOOLCHAIN/build/$target/$(rust_target "$target")/release/cued
}
