"""Proof that the packages this project imports are the ones it means.

PyPI has another project with a top-level `verifiers`, and this checkout has a folder `datasets/`
beside a dependency of that name. A mix-up would otherwise show as a baffling ImportError, or not
at all. Nothing of `verifiers`, `sandbox` or `datasets` is imported here to find out.
"""

from __future__ import annotations

from importlib import metadata, util
from pathlib import Path

_ROOT = Path(__file__).resolve().parent.parent
_PACKAGES = ("grpo", "verifiers", "sandbox")


def check_origins() -> None:
    """Check that `grpo`, `verifiers` and `sandbox` are ours and `datasets` is Hugging Face's.

    Raises:
        UserError: One is not; the message names the file in the way and how to get rid of it.
        ImportError: The same, where `verifiers` itself is foreign and has no `UserError` of ours.
    """
    conflict = find_conflict()
    if conflict is None:
        return
    try:
        from verifiers.errors import UserError
    except ImportError:
        raise ImportError(conflict) from None
    raise UserError(conflict)


def find_conflict() -> str | None:
    """The first mix-up among the packages, for a person; None when there is none."""
    for name in _PACKAGES:
        if conflict := _find_foreign_package(name):
            return conflict
    return _find_foreign_datasets()


def _find_foreign_package(name: str) -> str | None:
    ours = _ROOT / name / "__init__.py"
    found = _find_origin(name)
    if found is None:
        return f"The package `{name}` is not installed: run `pip install --editable .` again."
    if found != ours:
        return f"`import {name}` finds {found} and not verigrad's {ours}: {_cure(name, found)}"
    # Installed as wheels, both land in one folder, and the later one has overwritten the other.
    for other in metadata.distributions(name=name):
        if Path(str(other.locate_file(f"{name}/__init__.py"))).resolve() == ours:
            return (
                f"The distribution {other.name} {other.version} has written its own files into "
                f"verigrad's package `{name}` ({ours.parent}): run `pip uninstall --yes "
                f"{other.name}`, then install verigrad again (`pip install --force-reinstall "
                "--no-deps verigrad`)."
            )
    return None


def _find_foreign_datasets() -> str | None:
    found = _find_origin("datasets")
    if found is None or not any(metadata.distributions(name="datasets")):
        where = "" if found is None else f", although {found} has its name"
        return f"Hugging Face `datasets` is not installed{where}: run `pip install datasets`."
    library = Path(str(metadata.distribution("datasets").locate_file("datasets/__init__.py")))
    if library.is_file() and found != library.resolve():
        return (
            f"`import datasets` finds {found} and not Hugging Face's {library}: "
            f"{_cure('datasets', found)}"
        )
    return None


def _find_origin(name: str) -> Path | None:
    """The file that `import name` would run; None where there is none (a plain folder has none)."""
    spec = util.find_spec(name)
    return Path(spec.origin).resolve() if spec and spec.origin else None


def _cure(name: str, found: Path) -> str:
    for owner in metadata.packages_distributions().get(name, ()):
        if any(
            Path(str(d.locate_file(name))).resolve() in found.parents
            for d in metadata.distributions(name=owner)
        ):
            return f"run `pip uninstall {owner}`, or use verigrad in an environment of its own."
    return "rename or move that file, or take its folder out of PYTHONPATH."
