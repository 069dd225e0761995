# Sourced by the runners of programs that are not ours: finds the built cued and makes Python environments.

# Prints the path that was given, else that of a cued that is built.
built_cued() {
  local candidates=(target/release/cued target/debug/cued) built
  if [ -n "$1" ]; then
    candidates=("$1")
  fi
  for built in "${candidates[@]}"; do
    if [ -x "$built" ]; then
      echo "$built"
      return
    fi
  done
  echo "no built cued at ${candidates[*]}: run cargo build first, or name one" >&2
  return 2
}

# environment FOLDER REQUIREMENTS: a Python environment with exactly these packages, rebuilt only when they change.
# Fails if they cannot be installed, also where the caller asks whether it does: bash then ignores `set -e` in here.
environment() {
  local folder=$1 requirements=$2
  if [ -x "$folder/bin/python" ] && cmp -s "$requirements" "$folder/installed"; then
    return
  fi
  rm -rf "$folder"
  mkdir -p "$(dirname "$folder")"
  python3 -m venv "$folder" || return
  "$folder/bin/pip" install --quiet --disable-pip-version-check --requirement "$requirements" || return
  cp "$requirements" "$folder/installed"
}
