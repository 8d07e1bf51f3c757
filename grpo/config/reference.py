"""The table of all options, made from their definitions; `python -m grpo.config.reference`."""

from __future__ import annotations

import sys
import types
import typing
from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from grpo.config.aliases import ALIASES
from grpo.config.data import DataConfig, FewShotConfig
from grpo.config.schema import RunConfig

_HEAD = """# Configuration

A run is one YAML file and any number of `key=value` overrides after it:

```bash
verigrad train configs/quickstart.yaml seed=1 evaluation.num_samples=8
```

Keys are dotted; a number reaches into a list (`data.0.limit=100`). An override of a length in one
form, such as `num_train_epochs=2`, takes the place of the file's in the other, such as `steps`. An
unknown key is an error that names the nearest known one. The resolved configuration is written to
`config.yaml` in the run's folder, and is itself a configuration. `--dry-run` resolves and checks
everything, and prints the algebra of a step, without loading a model.

This page is made from the definitions: `python -m grpo.config.reference > docs/configuration.md`.
"""


def render() -> str:
    """The page, as Markdown."""
    parts = [_HEAD, "## Options\n", *_table(RunConfig, "")]
    for name, field in RunConfig.model_fields.items():
        section = _section_of(field)
        if section is not None and section is not DataConfig:
            parts += [f"\n## `{name}`\n", f"{section.__doc__}\n", *_table(section, f"{name}.")]
    parts += ["\n## Entries of `data` and `evaluation.data`\n", f"{DataConfig.__doc__}\n"]
    parts += _table(DataConfig, "")
    parts += [
        "\n### `few_shot`\n",
        f"{FewShotConfig.__doc__}\n",
        *_table(FewShotConfig, "few_shot."),
    ]
    parts += [
        "\n## Names of other trainers\n",
        "Accepted, with a line that says what they mapped to.\n",
    ]
    parts += ["| theirs | here |", "| --- | --- |"]
    parts += [f"| `{theirs}` | `{ours}` |" for theirs, (ours, _) in sorted(ALIASES.items())]
    return "\n".join(parts) + "\n"


def _table(model: type[BaseModel], prefix: str) -> Iterator[str]:
    yield "| option | default | meaning |"
    yield "| --- | --- | --- |"
    for name, field in model.model_fields.items():
        section = _section_of(field)
        if section is not None and not prefix and section is not DataConfig and model is RunConfig:
            continue
        meaning = (field.description or "").replace("\n", " ").replace("|", "\\|")
        choices = _choices(field.annotation)
        if choices:
            meaning = f"One of {choices}. {meaning}".strip()
        if section is not None and section is not DataConfig:
            inner = ", ".join(f"`{key}`" for key in section.model_fields)
            meaning = f"{meaning} Keys: {inner}.".strip()
        yield f"| `{prefix}{name}` | {_default(field)} | {meaning} |"


def _section_of(field: FieldInfo) -> type[BaseModel] | None:
    annotation: Any = field.annotation
    if typing.get_origin(annotation) is tuple:
        annotation = typing.get_args(annotation)[0]
    is_section = isinstance(annotation, type) and issubclass(annotation, BaseModel)
    return annotation if is_section else None


def _choices(annotation: Any) -> str:
    if typing.get_origin(annotation) is typing.Literal:
        return ", ".join(f"`{value}`" for value in typing.get_args(annotation))
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        return next(filter(None, map(_choices, typing.get_args(annotation))), "")
    return ""


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    if isinstance(value, BaseModel) or value in ((), {}):
        return ""
    if isinstance(value, bool) or value is None:
        return f"`{str(value).lower()}`" if value is not None else "`null`"
    if isinstance(value, tuple):
        return f"`[{', '.join(map(str, value))}]`"
    return f"`{value}`"


if __name__ == "__main__":
    sys.stdout.write(render())
