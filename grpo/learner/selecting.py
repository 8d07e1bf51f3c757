"""Choose weights or modules by patterns of their names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

from verifiers.errors import UserError

_NUMBER = re.compile(r"(?<=\.)\d+(?=\.)")


def select_names(names: Iterable[str], patterns: Sequence[str], *, option: str) -> list[str]:
    """Choose the names that a pattern matches.

    A pattern matches a run of whole dotted parts: `q_proj` is `model.layers.3.self_attn.q_proj`,
    `layers.3` is everything in that layer and nothing in layer 30. `*`, `?` and `[...]` are
    wildcards.

    Args:
        names: To choose from.
        patterns: Each has to match something.
        option: Where the user wrote them, for the message.

    Raises:
        UserError: A pattern matches nothing; the message lists what there is.

    Example:
        >>> select_names(["embed.weight", "layers.0.weight"], ["embed"], option="frozen_layers")
        ['embed.weight']
    """
    names = list(names)
    matched = {pattern: [n for n in names if _matches(n, pattern)] for pattern in patterns}
    for pattern, found in matched.items():
        if not found:
            kinds = list(dict.fromkeys(_NUMBER.sub("*", name) for name in names))
            raise UserError(
                f"{option}: {pattern!r} matches nothing in the model. What there is to match: "
                f"{', '.join(kinds)}."
            )
    chosen = {name for found in matched.values() for name in found}
    return [name for name in names if name in chosen]


def _matches(name: str, pattern: str) -> bool:
    return fnmatchcase(f".{name}.", f"*.{pattern}.*")
