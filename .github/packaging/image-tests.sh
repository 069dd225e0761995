#!/usr/bin/env bash
# Loads an image of cued into podman and tries what runs it: read-only, without privileges, health, stop, volumes. Needs
# root and podman; no daemon, no network but that of the machine. Nothing of it stays in the podman of the machine.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=common.sh
. "$(dirname "$0")/common.sh"
# shellcheck source=testing.sh
. "$packaging/testing.sh"

usage() {
  echo "usage: image-tests.sh ARCHIVE     an archive that image.sh made, for the CPU of this machine"
}

# Storage in the scratch folder. Containers of some machines get no resources but those that they have.
podman_here() {
  podman --root "$scratch/storage" --runroot "$scratch/run" --storage-driver vfs --cgroup-manager cgroupfs \
    --events-backend file --log-level fatal "${runtime[@]}" "$@"
}

clean_up() {
  podman_here rm --all --force --volumes >/dev/null 2>&1 || true
  podman_here umount --all >/dev/null 2>&1 || true
  rm -rf --one-file-system "$scratch"
}

# server NAME VOLUME: a server without privileges on that volume and the port of this test, in the background.
server() {
  podman_here run --detach --name "$1" --network host --read-only --read-only-tmpfs=false --cap-drop all \
    --security-opt no-new-privileges --ulimit nofile=10000:10000 --ulimit nproc=4096:4096 \
    --volume "$2:/data" --env "CUED_LISTEN=127.0.0.1:$port" "$image" >/dev/null
}

# ready NAME: it listens, or the test fails with what it said.
ready() {
  local tries
  for ((tries = 0; tries < 300; tries++)); do
    case "$(podman_here logs "$1" 2>&1)" in
      *"cued listening on"*) return ;;
    esac
    [ "$(podman_here inspect --format '{{.State.Status}}' "$1")" = running ] || break
    sleep 0.1
  done
  failed "the server does not listen: $(podman_here logs "$1" 2>&1)"
}

test_run() {
  step "run read-only, without privileges, on a new volume"
  server first data
  ready first
  step "health"
  equal "$(podman_here exec first /cued health --local)" healthy
  has "$(podman_here inspect --format '{{.Config.Healthcheck.Test}}' first)" "/cued health --local"
  podman_here healthcheck run first >/dev/null || failed "the health check of the image fails"
  step "commands on the database"
  has "$(podman_here exec first /cued user add me@example.com 2>&1)" cue_sk_
}

test_stop() {
  step "stop, and start on the same volume"
  podman_here stop --time 30 first >/dev/null
  equal "$(podman_here inspect --format '{{.State.ExitCode}}' first)" 0
  server second data
  ready second
  has "$(podman_here exec second /cued user list)" me@example.com
}

test_port_in_use() {
  step "a port in use"
  server third another
  equal "$(podman_here wait third)" 1
  has "$(podman_here logs third 2>&1)" "cannot listen on 127.0.0.1:$port"
  podman_here stop --time 30 second >/dev/null
}

test_volume_of_another_user() {
  step "a folder of another user"
  mkdir "$scratch/folder"
  server fourth "$scratch/folder"
  equal "$(podman_here wait fourth)" 1
  said=$(podman_here logs fourth 2>&1)
  has "$said" "chown -R 65532"
  chown 65532:65532 "$scratch/folder"
  server fifth "$scratch/folder"
  ready fifth
  podman_here stop --time 30 fifth >/dev/null
  equal "$(ls "$scratch/folder")" cued.db
}

main() {
  counted 1 "$@"
  [ -f "$1" ] || die "no file at $1: make it with image.sh"
  [ "$(id -u)" = 0 ] || die "containers without a daemon need root here"
  needs podman podman
  runtime=()
  # The other runtime, crun, refuses the control groups of some machines.
  ! command -v runc >/dev/null || runtime=(--runtime runc)
  scratch=$(mktemp -d "${TMPDIR:-/tmp}/cued-image-tests.XXXXXX")
  trap clean_up EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM
  port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
  step "load"
  image=$(podman_here load --quiet --input "$1" | sed -n '$s/.*image.*: //p')
  test_run
  test_stop
  test_port_in_use
  test_volume_of_another_user
  echo "ok: $(basename "$1") passed in $SECONDS s, $(($(stat -c %s "$1") / 1000)) kB"
}

main "$@"
