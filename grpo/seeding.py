"""Where every random number of a run comes from: seeds derived from the run's seed by name."""

from __future__ import annotations

import hashlib
import random

import numpy as np


def derive_seed(*parts: object) -> int:
    """A seed that depends on nothing but its parts.

    Args:
        parts: What the seed is for, the run's seed first, as in `derive_seed(0, "sample", step,
            problem_id, member)`; values whose `repr` is stable (numbers, strings, tuples of them).

    Returns:
        An integer in [0, 2**63).
    """
    digest = hashlib.blake2b(repr(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def make_random(*parts: object) -> random.Random:
    """A generator of its own, seeded from `parts` as `derive_seed` does."""
    return random.Random(derive_seed(*parts))


def make_numpy_random(*parts: object) -> np.random.Generator:
    """As `make_random`, for numpy."""
    return np.random.default_rng(derive_seed(*parts))


def seed_everything(seed: int) -> None:
    """Seed the global generators of Python, numpy and torch, for libraries that draw from them.

    Args:
        seed: As `derive_seed` makes them.
    """
    import torch

    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002 - some libraries still draw from it
    torch.manual_seed(seed)
