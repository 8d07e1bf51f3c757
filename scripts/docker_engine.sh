#!/usr/bin/env bash
# Makes sure that a Docker engine answers; as root starts one, on Debian and Ubuntu installs one.
#
# An engine that is there is never restarted or reconfigured.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/lib.sh

readonly SOCKET=/var/run/docker.sock
readonly LOG=/var/log/verigrad-dockerd.log
readonly START_TIMEOUT_S=60

# Asks as verigrad itself asks: DOCKER_HOST counts, and a command-line client is not needed.
answers() {
  .venv/bin/python - 2>/dev/null <<'PY'
import docker
docker.from_env(timeout=10).ping()
PY
}

wait_for_answer() {
  local pid="${1:-}" deadline=$((SECONDS + START_TIMEOUT_S))
  until answers; do
    [[ -z "$pid" ]] || kill -0 "$pid" 2>/dev/null || return 1
    ((SECONDS < deadline)) || return 1
    sleep 0.5
  done
}

# The cases that starting an engine here would not help, each with its cure.
refuse_what_we_cannot_cure() {
  if [[ -n "${DOCKER_HOST:-}" && "$DOCKER_HOST" != "unix://$SOCKET" ]]; then
    die "No Docker engine answers at DOCKER_HOST=$DOCKER_HOST." \
      "Start that engine, or unset DOCKER_HOST."
  fi
  if [[ -S "$SOCKET" && ! -w "$SOCKET" ]]; then
    die "A Docker engine is there, but $(id -un) may not use $SOCKET." \
      "Run: sudo usermod -aG docker $(id -un)   then log in again." \
      "(Whoever may use Docker is as powerful as root.)"
  fi
  if ! is_root; then
    have dockerd && die "No Docker engine is running." \
      "Run: sudo systemctl start docker   (or: sudo bash $0)"
    die "No Docker engine was found." "Run: sudo apt-get install docker.io   (or: sudo bash $0)" \
      "On other systems install Docker or rootless Docker and set DOCKER_HOST; then run this again."
  fi
}

install_engine() {
  have dockerd && return
  can_apt || die "No Docker engine was found, and this system has no apt-get." \
    "Install Docker with this system's package manager, start it, then run this again."
  local packages=(docker.io iptables)
  # With AppArmor in the kernel, a container does not start unless its profile can be loaded.
  [[ "$(cat /sys/module/apparmor/parameters/enabled 2>/dev/null)" != Y ]] || packages+=(apparmor)
  apt_install "${packages[@]}"
}

start_detached() {
  say "Starting dockerd${*:+ $*}, which then runs until this machine stops (log: $LOG)"
  setsid dockerd "$@" >>"$LOG" 2>&1 </dev/null &
  wait_for_answer $!
}

start_engine() {
  if [[ -d /run/systemd/system ]]; then
    say "Starting the Docker engine with systemd"
    systemctl start docker && wait_for_answer && return
    die "systemd could not start Docker." \
      "Read: journalctl -u docker --no-pager | tail -n 30"
  fi
  if grep -qxs dockerd /proc/[0-9]*/comm; then
    say "A dockerd is running but does not answer yet; waiting"
    wait_for_answer && return
    die "dockerd is running but does not answer at $SOCKET." \
      "Look at its log, end it, then run this again."
  fi
  printf '\n--- %s\n' "$(date -Is)" >>"$LOG"
  start_detached && return
  # Sandbox containers have no network, so an engine without a bridge serves them just as well.
  if tail -n 30 "$LOG" | grep -qiE 'iptables|nftables|bridge'; then
    say "This kernel gives Docker no firewall tables: trying without its bridge network"
    start_detached --iptables=false --ip6tables=false --bridge=none && return
  fi
  explain_failed_start
}

explain_failed_start() {
  tail -n 60 "$LOG" | grep -iE 'fail|error|cannot|denied' | tail -n 5 >&2 || true
  local cure="Read the lines above and $LOG, start dockerd, then run this again."
  if tail -n 30 "$LOG" | grep -qi 'cgroup'; then
    cure="The control groups are not mounted. Run: apt-get install cgroupfs-mount && cgroupfs-mount"
  elif tail -n 30 "$LOG" | grep -qiE 'operation not permitted|permission denied'; then
    cure="This looks like a container without the rights for an engine of its own: start it with \
--privileged, or mount the host's $SOCKET into it."
  fi
  die "dockerd could not be started." "$cure"
}

main() {
  answers && return
  .venv/bin/python -c 'import docker' 2>/dev/null ||
    die "The virtual environment is not ready yet." "Run: make setup"
  refuse_what_we_cannot_cure
  install_engine
  answers || start_engine
  say "The Docker engine answers"
}

main
