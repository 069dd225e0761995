# shellcheck shell=bash
# The archive of a binary: what a self-hoster unpacks. Sourced after common.sh.

# archive TARGET OUT: packs $binary, and prints the path of the archive. The same commit and binary make the same file.
archive() {
  local target=$1 out=$2 name folder
  name=cued-$(version)-$target
  folder=$TOOLCHAIN/archive/$name
  rm -rf "$TOOLCHAIN/archive"
  mkdir -p "$folder"/{man/man1,completions}
  install -m 755 "$binary" "$folder/cued"
  install -m 644 "$repository"/{LICENSE,README.md,src/docs/changelog.md,examples/cued.service} "$folder"
  third_party >"$folder/THIRD-PARTY.txt"
  runnable
  "${run[@]}" man --dir "$folder/man/man1" >/dev/null
  "${run[@]}" completions bash >"$folder/completions/cued.bash"
  "${run[@]}" completions zsh >"$folder/completions/_cued"
  "${run[@]}" completions fish >"$folder/completions/cued.fish"
  chmod -R u=rwX,go=rX "$folder"
  tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" --format=gnu \
    -C "$TOOLCHAIN/archive" -c "$name" | gzip -9n >"$out/$name.tar.gz"
  rm -rf "$TOOLCHAIN/archive"
  echo "$out/$name.tar.gz"
}
