# shellcheck shell=bash
# Sourced by the packaging scripts: what they all read from the repository and from a binary.

repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
packaging=$repository/.github/packaging

# die MESSAGE…: ends the script; the message says what to do.
die() {
  echo "${0##*/}: $*" >&2
  exit 1
}

# needs TOOL PACKAGE: the tool is here, or the script ends.
needs() {
  command -v "$1" >/dev/null || die "$1 is missing: apt-get install $2"
}

# The CPU of this machine, as targets name it.
machine() {
  uname -m | sed 's/^armv7l$/armv7/'
}

# The version of the manifest.
version() {
  sed -n '/^\[package\]/,/^\[/s/^version = "\(.*\)"/\1/p' "$repository/Cargo.toml"
}

# The same, as packages write it: 1.0.0~rc.1 comes before 1.0.0.
package_version() {
  version | sed 's/-/~/'
}

# The second that all files in a package have as their time, so that two packages of a commit are equal.
source_date() {
  if [ -n "${SOURCE_DATE_EPOCH:-}" ]; then
    echo "$SOURCE_DATE_EPOCH"
    return
  fi
  git -C "$repository" log -1 --format=%ct 2>/dev/null || die "no commit to take the time from: set SOURCE_DATE_EPOCH"
}

# counted COUNT WORD…: prints the usage for --help, and refuses another number of words than COUNT.
counted() {
  local count=$1
  shift
  case "${1:-}" in
    -h | --help) usage; exit ;;
  esac
  [ $# = "$count" ] || { usage >&2; exit 2; }
}

# begin_package: sets $version, $maintainer and SOURCE_DATE_EPOCH, and makes $scratch, which is removed at the end.
begin_package() {
  version=$(package_version)
  # shellcheck disable=SC2034
  maintainer=${CUED_MAINTAINER:-cued <cued@localhost.localdomain>}
  SOURCE_DATE_EPOCH=$(source_date)
  export SOURCE_DATE_EPOCH
  scratch=$(mktemp -d "${TMPDIR:-/tmp}/cued-package.XXXXXX")
  trap 'rm -rf --one-file-system "$scratch"' EXIT
  umask 022
}

# arguments BINARY TARGET OUT: the three that every packing script takes, as absolute paths in $binary, $target, $out.
arguments() {
  counted 3 "$@"
  [ -f "$1" ] || die "no file at $1: build it first (cargo build --release), or name another"
  binary=$(realpath "$1")
  target=$2
  mkdir -p "$3"
  # shellcheck disable=SC2034
  out=$(realpath "$3")
  local expected
  expected=$(cpu_of_target)
  [ "$(cpu "$binary")" = "$expected" ] ||
    die "$1 is built for $(cpu "$binary"), and $target wants $expected: name the binary of that target"
}

# The CPU that the header of an ELF file names.
cpu() {
  case "$(od -An -tx1 -j18 -N2 "$1" | tr -d ' ')" in
    3e00) echo x86_64 ;;
    b700) echo aarch64 ;;
    2800) echo armv7 ;;
    *) echo "no CPU of ours" ;;
  esac
}

# The CPU of $target.
cpu_of_target() {
  case "$target" in
    x86_64-* | aarch64-* | armv7-*) echo "${target%%-*}" ;;
    *) die "unknown target $target: x86_64-…, aarch64-… and armv7-… are known" ;;
  esac
}

# The newest version of glibc that a binary asks for, such as 2.28; nothing for a static one.
glibc_of() {
  grep -aq '/ld-linux' "$1" || return 0
  grep -aoE 'GLIBC_2\.[0-9]+' "$1" | sed 's/GLIBC_//' | sort -Vu | tail -1
}

# runnable: a command line, word by word in $run, that runs a cued of this version here: the binary itself, through
# $CUED_RUNNER (such as "qemu-aarch64-static -L FOLDER"), or $CUED_NATIVE, a binary for this machine.
runnable() {
  read -ra run <<<"${CUED_RUNNER:-}"
  run+=("$binary")
  [ -z "${CUED_NATIVE:-}" ] || run=("$CUED_NATIVE")
  local said
  said=$("${run[@]}" --version 2>&1) ||
    die "${run[*]} does not run here, and its manual pages are needed: set CUED_NATIVE to a cued that is built for this" \
      "machine, or CUED_RUNNER to what runs it (\"qemu-aarch64-static -L FOLDER\"). It said: $said"
  [ "$said" = "cued $(version)" ] || die "${run[*]} is $said, and the manifest says $(version): build it again"
}

# documents FOLDER: manual pages, completions and notices, as a system has them below /usr.
documents() {
  local share=$1/share
  runnable
  mkdir -p "$share"/{man/man1,bash-completion/completions,zsh/vendor-completions,fish/vendor_completions.d,doc/cued}
  "${run[@]}" man --dir "$share/man/man1" >/dev/null
  gzip -9n "$share"/man/man1/*
  "${run[@]}" completions bash >"$share/bash-completion/completions/cued"
  "${run[@]}" completions zsh >"$share/zsh/vendor-completions/_cued"
  "${run[@]}" completions fish >"$share/fish/vendor_completions.d/cued.fish"
  third_party | gzip -9n >"$share/doc/cued/THIRD-PARTY.txt.gz"
}

# The notices of linked crates: the file in $THIRD_PARTY if it is set, so that a release makes them once.
third_party() {
  if [ -n "${THIRD_PARTY:-}" ]; then
    cat "$THIRD_PARTY"
  else
    "$packaging/licences.py" --notices
  fi
}
