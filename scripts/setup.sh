#!/usr/bin/env bash
# Makes this checkout ready to run: .venv with pinned packages, a Docker engine, the sandbox image.
#
# Safe to repeat: what is there is left alone. Nothing outside this folder changes, except that root
# on Debian or Ubuntu gets system packages that are missing, and a Docker engine that was not
# running is started.
#
#   VERIGRAD_ACCELERATOR=cpu|gpu   the pinned list to install (default: gpu where nvidia-smi works)
#   PYTHON=/path/to/python         the interpreter to use (default: first of 3.11, 3.12, 3.13)
#   --packages-only                stop after .venv
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/lib.sh

readonly STAMPS=.venv/.verigrad

# --- stamps: what an earlier call has finished ------------------------------------------------

hash_of() { cat "$@" | sha256sum | cut -d' ' -f1; }

is_done() { [[ "$(cat "$STAMPS/$1" 2>/dev/null)" == "$2" ]]; }

mark_done() { mkdir -p "$STAMPS" && printf '%s' "$2" >"$STAMPS/$1"; }

# --- the virtual environment ------------------------------------------------------------------

# Runs it: a shim of a version manager may be on PATH without a Python behind it.
is_supported() {
  "$1" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))' 2>/dev/null
}

find_python() {
  local candidate
  for candidate in ${PYTHON:-python3.11 python3.12 python3.13 python3}; do
    is_supported "$candidate" && "$candidate" -c 'import sys; print(sys.executable)' && return
  done
  return 1
}

# One that was cut short has no installer. One for other hardware holds another vLLM. One whose
# folder was moved has scripts that point to the old place.
is_usable_venv() {
  is_supported .venv/bin/python && { [[ -x .venv/bin/pip ]] || find_uv >/dev/null; } &&
    { [[ ! -e "$STAMPS/venv" ]] || is_done venv "$1"; }
}

make_venv() {
  local python key="$accelerator $PWD"
  if ! is_usable_venv "$key"; then
    python="$(find_python)" || die "No Python 3.11, 3.12 or 3.13 was found." \
      "Install one (Debian, Ubuntu: apt-get install python3 python3-venv)," \
      "or name one: PYTHON=/path/to/python make setup"
    say "Making .venv with $("$python" --version)"
    rm -rf .venv
    "$python" -c 'import ensurepip' 2>/dev/null || add_ensurepip "$python"
    "$python" -m venv .venv
  fi
  mark_done venv "$key"
}

# Debian and Ubuntu keep what makes virtual environments in a package of its own.
add_ensurepip() {
  local package
  package="$("$1" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')"
  { [[ "$1" == /usr/bin/* ]] && can_apt; } ||
    die "$1 cannot make virtual environments (it has no ensurepip)." \
      "Debian, Ubuntu: apt-get install $package"
  apt_install "$package"
}

# The byte code is compiled now: where Python is told not to write it (PYTHONDONTWRITEBYTECODE),
# every process would else compile vLLM anew.
install() {
  "$(find_uv)" pip install --quiet --python .venv/bin/python --compile-bytecode "$@"
}

install_packages() {
  local key torch
  key="$(hash_of "$list" <(.venv/bin/python --version))"
  is_done packages "$key" && return
  find_uv >/dev/null ||
    { say "Installing uv into .venv" && .venv/bin/python -m pip install --quiet uv; } ||
    die "uv could not be installed." "A Python package index must be reachable from here."
  adopt_pip_settings
  torch="$(grep '^torch==' "$list")"
  say "Installing $torch and the other $(grep -c '==' "$list") packages of $list (3 GB and more)"
  install_torch "$torch"
  install --no-deps --requirements "$list" ||
    die "The packages of $list could not be installed." "Read uv's lines above; a Python package \
index must be reachable (PIP_INDEX_URL and PIP_FIND_LINKS are honoured)."
  mark_done packages "$key"
}

# First from where this machine is told to look (UV_FIND_LINKS, an index that has it), then, for the
# CPU build, which the default index does not carry, from the place that uv knows.
install_torch() {
  local log=.cache/setup-torch.log
  install --no-deps "$1" 2>"$log" && return
  [[ "$1" == *+cpu ]] && install --no-deps --torch-backend cpu "$1" 2>>"$log" && return
  cat "$log" >&2
  die "$1 was found neither where pip and uv look on this machine nor where uv knows it to be." \
    "Put its wheel into a folder and name the folder: PIP_FIND_LINKS=/path/to/folder make setup"
}

install_project() {
  local key what=(--no-deps --editable .) overrides="requirements/$accelerator-overrides.txt"
  key="$(hash_of pyproject.toml "$STAMPS/packages")"
  is_done project "$key" && [[ -x .venv/bin/verigrad ]] && return
  say "Installing verigrad itself (editable)"
  # The lists are resolved for Python 3.11. What another version needs besides is resolved here.
  if [[ "$(.venv/bin/python --version)" != "Python 3.11."* ]]; then
    what=(--constraints "$list" --editable ".[$accelerator,smollm2,dev]")
    [[ -f "$overrides" ]] && what+=(--overrides "$overrides")
  fi
  install "${what[@]}" || die "The project itself could not be installed." "Read uv's lines above."
  mark_done project "$key"
}

# --- the sandbox ------------------------------------------------------------------------------

build_image() {
  .venv/bin/verigrad sandbox build && return
  # No registry answered: the image can be made from Debian packages where debootstrap is.
  if can_apt && ! have debootstrap; then
    apt_install debootstrap
    .venv/bin/verigrad sandbox build && return
  fi
  die "The sandbox image could not be made." \
    "Read the lines above, then run: .venv/bin/verigrad sandbox build"
}

# --- all of it --------------------------------------------------------------------------------

choose_accelerator() {
  accelerator="${VERIGRAD_ACCELERATOR:-}"
  if [[ -z "$accelerator" ]]; then
    accelerator=cpu
    nvidia-smi >/dev/null 2>&1 && accelerator=gpu
  fi
  [[ "$accelerator" == cpu || "$accelerator" == gpu ]] ||
    die "VERIGRAD_ACCELERATOR is \"$accelerator\"." "It must be cpu or gpu."
  list="requirements/$accelerator.txt"
}

main() {
  [[ "$(uname -s)" == Linux ]] ||
    die "Verigrad runs on Linux, and this is $(uname -s)." "Use a Linux machine or VM."
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
