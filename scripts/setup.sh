#!/usr/bin/env bash
# Makes this checkout ready to run: .venv with the pinned packages, a Docker engine, the sandbox image.
#
# Safe to repeat: what is already there is left alone. Nothing outside this folder changes, except that root on
# Debian or Ubuntu gets the system packages that are missing and a Docker engine that was not running is started.
#
#   VERIGRAD_ACCELERATOR=cpu|gpu   which pinned list to install (default: gpu where nvidia-smi works)
#   PYTHON=/path/to/python         the interpreter to use (default: the first of 3.11, 3.12, 3.13)
#   --packages-only                stop after .venv
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/lib.sh

readonly STAMPS=.venv/.verigrad

# --- stamps: what an earlier call has finished -----------------------------------------------------

hash_of() { cat "$@" | sha256sum | cut -d' ' -f1; }

is_done() { [[ "$(cat "$STAMPS/$1" 2>/dev/null)" == "$2" ]]; }

mark_done() { mkdir -p "$STAMPS" && printf '%s' "$2" >"$STAMPS/$1"; }

# --- the virtual environment -----------------------------------------------------------------------

find_python() {
  local candidate
  for candidate in ${PYTHON:-python3.11 python3.12 python3.13 python3}; do
    # Runs it: a shim of a version manager may be on PATH without a Python behind it.
    "$candidate" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))' 2>/dev/null &&
      "$candidate" -c 'import sys; print(sys.executable)' && return
  done
  return 1
}

make_venv() {
  [[ -x .venv/bin/python ]] && .venv/bin/python -c '' 2>/dev/null && return
  local python
  python="$(find_python)" || die "No Python 3.11, 3.12 or 3.13 was found." \
    "Install one (Debian, Ubuntu: apt-get install python3 python3-venv) or name it: PYTHON=/path/to/python make setup"
  say "Making .venv with $("$python" --version)"
  rm -rf .venv
  if ! "$python" -c 'import ensurepip' 2>/dev/null; then
    can_apt && [[ "$python" == /usr/bin/* ]] || die "$python cannot make virtual environments (no ensurepip)." \
      "Debian, Ubuntu: apt-get install $(basename "$python")-venv"
    apt_install "$(basename "$("$python" -c 'import os, sys; print(os.path.realpath(sys.executable))')")-venv"
  fi
  "$python" -m venv .venv
}

install_packages() {
  local list="requirements/$accelerator.txt" key torch
  key="$(hash_of "$list" <(.venv/bin/python --version))"
  is_done packages "$key" && return
  find_uv >/dev/null || { say "Installing uv into .venv" && .venv/bin/python -m pip install --quiet uv; }
  adopt_pip_settings
  torch="$(grep '^torch==' "$list")"
  say "Installing $torch and $(grep -c '==' "$list") pinned packages from $list (about 3 GB; minutes the first time)"
  install_torch "$torch"
  install --requirements "$list" || die "The packages of $list could not be installed." \
    "Read uv's lines above; a package index must be reachable (PIP_INDEX_URL, PIP_FIND_LINKS are honoured)."
  mark_done packages "$key"
}

# The byte code is compiled now: machines that set PYTHONDONTWRITEBYTECODE would else compile vLLM at every start.
install() {
  "$(find_uv)" pip install --quiet --python .venv/bin/python --no-deps --compile-bytecode "$@"
}

# First from where this machine is told to look for packages (UV_FIND_LINKS, an index that has it), then, for the
# CPU build, which the default index does not carry, from the place that uv knows.
install_torch() {
  local log=.cache/setup-torch.log
  install "$1" 2>"$log" && return
  [[ "$1" == *+cpu ]] && install --torch-backend cpu "$1" 2>>"$log" && return
  cat "$log" >&2
  die "$1 was found neither where pip and uv look on this machine nor where uv knows it to be." \
    "Put its wheel into a folder and name the folder: PIP_FIND_LINKS=/path/to/folder make setup"
}

install_project() {
  local key
  key="$(hash_of pyproject.toml "$STAMPS/packages")"
  is_done project "$key" && [[ -x .venv/bin/verigrad ]] && return
  say "Installing verigrad itself (editable)"
  install --editable . || die "The project itself could not be installed." "Read uv's lines above."
  mark_done project "$key"
}

# --- the sandbox -----------------------------------------------------------------------------------

build_image() {
  .venv/bin/verigrad sandbox build && return
  # No registry answered: the image can be made from Debian packages where debootstrap is.
  if can_apt && ! have debootstrap; then
    apt_install debootstrap
    .venv/bin/verigrad sandbox build && return
  fi
  die "The sandbox image could not be made." "Read the lines above, then run \`.venv/bin/verigrad sandbox build\`."
}

# --- all of it -------------------------------------------------------------------------------------

choose_accelerator() {
  accelerator="${VERIGRAD_ACCELERATOR:-}"
  if [[ -z "$accelerator" ]]; then
    accelerator=cpu
    nvidia-smi >/dev/null 2>&1 && accelerator=gpu
  fi
  [[ -f "requirements/$accelerator.txt" ]] ||
    die "VERIGRAD_ACCELERATOR is \"$accelerator\"." "It must be cpu or gpu."
}

main() {
  [[ "$(uname -s)" == Linux ]] || die "Verigrad runs on Linux, and this is $(uname -s)." "Use a Linux machine or VM."
  mkdir -p .cache
  exec 9>.cache/setup.lock
  flock --nonblock 9 || { say "Waiting for another set-up of this folder to end" && flock 9; }
  choose_accelerator
  make_venv
  install_packages
  install_project
  [[ "${1:-}" == --packages-only ]] && return
  # Without the lock's descriptor, which an engine started there would hold for good.
  bash scripts/docker_engine.sh 9>&-
  build_image
  say "Ready: .venv/bin/verigrad ($accelerator)"
}

main "$@"
