"""Where the files are that a configuration names: beside the user, or in the project."""

from __future__ import annotations

import difflib
from pathlib import Path

from verifiers.errors import UserError

_PACKAGE = Path(__file__).resolve().parent
_EMBEDDED_MODELS = {"embedded:quickstart": _PACKAGE / "bundled" / "quickstart_policy"}


def project_roots() -> tuple[Path, ...]:
    """Folders with `configs/` and `datasets/`: the checkout, or an installed package's copies."""
    return (_PACKAGE.parent, _PACKAGE / "bundled")


def find_file(path: str, what: str) -> Path:
    """Find a file that was named relative to the working folder or to the project.

    Args:
        path: As the user wrote it.
        what: What it is, for the message.

    Raises:
        UserError: There is no such file.
    """
    given = Path(path).expanduser()
    candidates = (
        [given] if given.is_absolute() else [given, *(root / given for root in project_roots())]
    )
    for candidate in candidates:
        if candidate.is_file():
            return candidate.resolve()
    tried = ", ".join(str(candidate.absolute()) for candidate in candidates)
    raise UserError(
        f"The {what} {path!r} does not exist.{_nearest_config(given)} Looked for: {tried}."
    )


def _nearest_config(given: Path) -> str:
    ours = {
        file.stem: file.relative_to(root)
        for root in reversed(project_roots())
        for file in (root / "configs").rglob("*.yaml")
    }
    near = difflib.get_close_matches(given.stem, ours, n=1)
    return f" Did you mean {ours[near[0]]}?" if near else ""


def find_model(name: str) -> str:
    """Turn a configuration's model name into what `from_pretrained` takes.

    Args:
        name: A folder, a hub id, or `embedded:...`.

    Raises:
        UserError: It looks like a folder and is none, or lacks `config.json`.
    """
    if name.startswith("embedded:"):
        if name not in _EMBEDDED_MODELS:
            raise UserError(
                f"model={name!r} is not embedded; known: {', '.join(_EMBEDDED_MODELS)}."
            )
        return str(_EMBEDDED_MODELS[name])
    folder = Path(name).expanduser()
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            raise UserError(
                f"model={name!r} is a folder without config.json. It must be a model in Hugging "
                "Face format; for a run's checkpoint name its policy folder, such as "
                "runs/NAME/checkpoints/checkpoint-50/policy."
            )
        return str(folder.resolve())
    looks_local = name.startswith((".", "/", "~")) or name.count("/") != 1
    if looks_local:
        raise UserError(
            f"model={name!r} does not exist. Give a folder in Hugging Face format or a hub id "
            f"(owner/name)."
        )
    return name
