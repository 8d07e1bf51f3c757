"""From a YAML file and `key=value` overrides to a checked configuration."""

from __future__ import annotations

import copy
import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from grpo.config.aliases import ALIASES
from grpo.config.schema import SHARES, RunConfig
from grpo.paths import find_file
from verifiers.errors import UserError

_Path = tuple[str, ...]


def load_config(
    source: str | Mapping[str, Any], overrides: Sequence[str] = ()
) -> tuple[RunConfig, list[str]]:
    """Read, override and check a configuration.

    Args:
        source: The YAML file, or what would be in it.
        overrides: `key=value` with dotted keys; values are read as YAML. A leading `--` is allowed.

    Returns:
        The configuration, and one line for each foreign option name that was mapped to ours.

    Raises:
        UserError: The file cannot be read, or a key or value is wrong; the message names it and
        what is known.
    """
    notes: list[str] = []
    if isinstance(source, str):
        name = str(find_file(source, what="configuration file"))
        given = _read_yaml(Path(name))
    else:
        name, given = "What was given", copy.deepcopy(dict(source))
    raw = _map_aliases(given, notes)
    _override(raw, overrides, notes)
    try:
        return RunConfig.model_validate(raw), notes
    except ValidationError as error:
        raise UserError(_explain(error, name)) from None


def _read_yaml(file: Path) -> dict[str, Any]:
    try:
        raw = yaml.safe_load(file.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise UserError(f"{file} is not valid YAML: {error}") from None
    if not isinstance(raw, dict):
        raise UserError(f"{file} must hold a mapping of options, but holds {type(raw).__name__}.")
    return raw


def _override(raw: dict[str, Any], overrides: Sequence[str], notes: list[str]) -> None:
    """Put each override in the place of what the file has, by whatever name it goes there."""
    spellings: dict[_Path, _Path] = {}
    for text in overrides:
        key, value = _split_override(text)
        parts = tuple(key.split("."))
        leaves = [(parts, value)]
        if isinstance(value, dict) and value:
            inner = [((*parts, *path), leaf) for path, leaf in _leaves(value)]
            leaves = inner if any(_find_alias(path) for path, _ in inner) else leaves
        for path, leaf in leaves:
            ours, new = _translate(path, leaf, notes)
            _check_one_spelling(path, ours, spellings)
            _assign(raw, ours, new, where=f"override {text!r}")
    for one, other in (*SHARES, *((count, share) for share, count in SHARES)):
        if (one,) in spellings and (other,) not in spellings:
            raw.pop(other, None)


def _split_override(text: str) -> tuple[str, Any]:
    key, separator, value = text.removeprefix("--").partition("=")
    if not separator or not key:
        raise UserError(
            f"Override {text!r} is not of the form key=value, such as beta=0.04 or "
            f"rollout.dtype=float32."
        )
    try:
        return key, _parse_scalar(value)
    except yaml.YAMLError as error:
        raise UserError(f"The value of override {text!r} is not valid YAML: {error}") from None


def _parse_scalar(value: str) -> Any:
    parsed = yaml.safe_load(value)
    if isinstance(parsed, str):
        # YAML 1.1 reads 1e-4 as text; every user means the number.
        try:
            return float(parsed)
        except ValueError:
            return parsed
    return parsed


def _assign(raw: dict[str, Any], parts: _Path, value: Any, where: str) -> None:
    node: Any = raw
    for part in parts[:-1]:
        node = _descend(node, part, where)
    if isinstance(node, list):
        node[_index(node, parts[-1], where)] = value
    else:
        node[parts[-1]] = value


def _descend(node: Any, part: str, where: str) -> Any:
    if isinstance(node, list):
        place = _index(node, part, where)
        node[place] = _spell_out(node[place])
        return node[place]
    child = node.setdefault(part, {})
    if part == "data" and isinstance(child, str):
        child = node[part] = [_spell_out(child)]
    if not isinstance(child, dict | list):
        raise UserError(
            f"In {where}, {part!r} holds the single value {child!r} and has no keys of its own."
        )
    return child


def _spell_out(entry: Any) -> Any:
    """A set that is given by its recipe's bare name, as one that has options."""
    return {"recipe": entry} if isinstance(entry, str) else entry


def _index(node: list[Any], part: str, where: str) -> int:
    if not part.isdigit() or int(part) >= len(node):
        raise UserError(
            f"In {where}, {part!r} is not a place in a list of {len(node)}: use a number from 0 "
            f"to {len(node) - 1}."
        )
    return int(part)


def _map_aliases(raw: dict[str, Any], notes: list[str]) -> dict[str, Any]:
    """Replace the names of other trainers by ours, with a note for each."""
    mapped: dict[str, Any] = {}
    spellings: dict[_Path, _Path] = {}
    for path, value in _leaves(raw):
        ours, new = _translate(path, value, notes)
        _check_one_spelling(path, ours, spellings)
        _put(mapped, ours, new)
    return mapped


def _translate(path: _Path, value: Any, notes: list[str]) -> tuple[_Path, Any]:
    """An option's name here, and its value."""
    alias = _find_alias(path)
    if alias is None:
        return path, value
    ours, convert = alias
    new = convert(value)
    notes.append(f"{'.'.join(path)} is called {ours} here: {ours}={new}")
    return tuple(ours.split(".")), new


def _check_one_spelling(path: _Path, ours: _Path, spellings: dict[_Path, _Path]) -> None:
    other = spellings.setdefault(ours, path)
    if other != path:
        first, second, kept = (".".join(name) for name in (path, other, ours))
        raise UserError(
            f"{first} and {second} are the same option, and both are given; keep {kept}."
        )


def _find_alias(path: _Path) -> tuple[str, Callable[[Any], Any]] | None:
    if ".".join(path) in ALIASES:
        return ALIASES[".".join(path)]
    if path[0] in RunConfig.model_fields:
        return None
    return ALIASES.get(".".join(path[-2:])) or ALIASES.get(path[-1])


def _leaves(node: dict[str, Any], prefix: _Path = ()) -> Iterator[tuple[_Path, Any]]:
    for name, child in node.items():
        path = (*prefix, str(name))
        if isinstance(child, dict) and child:
            yield from _leaves(child, path)
        else:
            yield path, child


def _put(mapped: dict[str, Any], path: _Path, value: Any) -> None:
    for part in path[:-1]:
        mapped = mapped.setdefault(part, {})
    mapped[path[-1]] = value


def _explain(error: ValidationError, file: str) -> str:
    lines = [f"{file} (with overrides) is not a valid configuration:"]
    for item in error.errors():
        where = ".".join(str(part) for part in item["loc"])
        if item["type"] == "extra_forbidden":
            lines.append(f"  unknown option {where}{_nearest(item['loc'])}")
        elif item["type"] == "missing":
            lines.append(f"  option {where} is missing")
        else:
            message = item["msg"].removeprefix("Value error, ")
            given = (
                ""
                if isinstance(item["input"], dict | BaseModel)
                else f" (given: {item['input']!r})"
            )
            lines.append(f"  {where}: {message}{given}")
    return "\n".join(lines)


def known_options() -> list[str]:
    """Every option's dotted name, lists left out."""
    return list(_option_names(RunConfig, ""))


def _option_names(model: type[BaseModel], prefix: str) -> Iterator[str]:
    for name, field in model.model_fields.items():
        yield prefix + name
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            yield from _option_names(inner, f"{prefix}{name}.")


def _nearest(loc: tuple[int | str, ...]) -> str:
    name = ".".join(str(part) for part in loc)
    known = known_options()
    leaves = {option.split(".")[-1]: option for option in reversed(known)}
    close = difflib.get_close_matches(name, known, n=1) or [
        leaves[leaf] for leaf in difflib.get_close_matches(str(loc[-1]), leaves, n=1)
    ]
    return (
        f"; did you mean {close[0]}?"
        if close
        else "; the options are listed in docs/configuration.md"
    )
