"""Rows that a generator of puzzles makes, named as `reasoning_gym:TASK`."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

from verifiers.errors import UserError

PREFIX = "reasoning_gym:"
DEFAULT_SIZE = 500
_SEEDS = {"train": 0, "test": 1}


def generate_rows(path: str, *, split: str, size: int | None) -> Iterator[tuple[str, Any]]:
    """Entries of one of Reasoning Gym's data sets, as (place, row) pairs.

    Args:
        path: `reasoning_gym:TASK`.
        split: `train` or `test`: the generator's seed.
        size: Entries to make.

    Raises:
        UserError: The package is not installed, or there is no such task or split.
    """
    task = path.removeprefix(PREFIX)
    if split not in _SEEDS:
        raise UserError(f"{path} has the splits {' and '.join(_SEEDS)}, not {split!r}.")
    try:
        # By name: an optional package, which type checkers do not find where it is not installed.
        reasoning_gym = importlib.import_module("reasoning_gym")
    except ImportError:
        raise UserError(
            f"{path} needs Reasoning Gym: pip install 'verigrad[reasoning-gym]'."
        ) from None
    try:
        entries = reasoning_gym.create_dataset(task, size=size or DEFAULT_SIZE, seed=_SEEDS[split])
    except ValueError as error:
        raise UserError(f"{path} cannot be made: {error}. TASK is a data set's name.") from None
    for number, entry in enumerate(entries):
        yield f"{path}[{split}]:{number}", dict(entry)
