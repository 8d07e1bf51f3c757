"""Recipes: data sets known by name, each a YAML file in `datasets/`."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from grpo.paths import project_roots
from verifiers.errors import UserError

Role = Literal["train", "test"]


class Recipe(BaseModel):
    """A data set that people know by name."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    title: str
    """What it is, in a few words."""
    licence: str
    """Of the data, as its publisher states it."""
    homepage: str
    """Where it comes from."""
    splits: dict[Role, str]
    """The split to train on and the one to evaluate on; one of them may be missing."""
    sizes: dict[str, int] = {}
    """Problems of each split, where they are known."""
    digests: dict[str, str] = {}
    """Digest of the problems of each split, where one was computed from the published rows."""
    data: dict[str, Any]
    """What an entry of `data` would say."""


def recipe_names() -> tuple[str, ...]:
    """Every recipe's name."""
    return tuple(sorted(file.stem for file in _recipe_files()))


@cache
def load_recipe(name: str) -> Recipe:
    """Read a recipe.

    Raises:
        UserError: There is none of that name; the nearest names are given.
    """
    for file in _recipe_files():
        if file.stem == name:
            try:
                return Recipe.model_validate(yaml.safe_load(file.read_text(encoding="utf-8")))
            except ValidationError as error:
                raise UserError(f"{file} is not a valid recipe: {error}") from None
    near = difflib.get_close_matches(name, recipe_names(), n=3, cutoff=0.5)
    hint = f" Did you mean {' or '.join(near)}?" if near else ""
    raise UserError(
        f"There is no recipe {name!r}.{hint} Known are {', '.join(recipe_names())}; a file or a "
        "hub id is given as `path` instead."
    )


def merge_recipe(given: Mapping[str, Any], role: Role | None = None) -> dict[str, Any]:
    """A data set's options, with those that its recipe gives where it says nothing itself.

    Args:
        given: The options; without `recipe` they are returned as they are.
        role: What the set is for, which chooses the split; by default the one to evaluate on.

    Raises:
        UserError: There is no such recipe.

    Example:
        >>> merge_recipe({"recipe": "gsm8k", "limit": 5})["path"]
        'openai/gsm8k'
    """
    name = given.get("recipe")
    if name is None:
        return dict(given)
    recipe = load_recipe(str(name))
    wanted: Role = role or "test"
    split = recipe.splits.get(wanted) or next(iter(recipe.splits.values()))
    defaults = {
        "name": f"{name}_train" if role == "train" else name,
        "split": split,
        **recipe.data,
    }
    return {**defaults, **given}


def _recipe_files() -> list[Path]:
    for root in project_roots():
        files = list((root / "datasets").glob("*.yaml"))
        if files:
            return files
    return []
