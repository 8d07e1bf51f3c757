# What the set-up scripts share; sourced, never run.

say() { printf '==> %s\n' "$*"; }

# One sentence for what is wrong, one for the cure.
die() {
  printf 'error: %s\n' "$1" >&2
  shift
  for line in "$@"; do printf '       %s\n' "$line" >&2; done
  exit 1
}

have() { command -v "$1" >/dev/null 2>&1; }

is_root() { [[ "$(id -u)" == 0 ]]; }

# Whether this machine lets us add system packages: root on Debian or a relative of it.
can_apt() { is_root && have apt-get && [[ -e /etc/debian_version ]]; }

apt_install() {
  say "Installing the system packages: $*"
  export DEBIAN_FRONTEND=noninteractive
  apt-get -qq update >/dev/null || printf 'warning: apt-get update failed\n' >&2
  apt-get -qq install --yes --no-install-recommends "$@" >/dev/null </dev/null ||
    die "apt-get could not install $*." "Read the lines above, then run the same command again."
}

# uv from PATH where it runs, else the one that set-up put into the virtual environment.
find_uv() {
  local candidate
  for candidate in uv .venv/bin/uv; do
    "$candidate" --version >/dev/null 2>&1 && command -v "$candidate" && return
  done
  return 1
}

# uv does not read pip's settings: hand over the two that say where packages come from.
adopt_pip_settings() {
  local links="${PIP_FIND_LINKS:-}" index="${PIP_INDEX_URL:-}"
  if [[ -x .venv/bin/pip ]]; then
    links="${links:-$(.venv/bin/pip config get global.find-links 2>/dev/null || true)}"
    index="${index:-$(.venv/bin/pip config get global.index-url 2>/dev/null || true)}"
  fi
  # pip separates several places by spaces, uv by commas.
  links="$(xargs <<<"$links" | tr ' ' ',')"
  [[ -z "$links" ]] || export UV_FIND_LINKS="${UV_FIND_LINKS:-$links}"
  [[ -z "$index" ]] || export UV_DEFAULT_INDEX="${UV_DEFAULT_INDEX:-$index}"
}
