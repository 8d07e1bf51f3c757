"""Problems whose prompt is longer than the run allows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from verifiers.errors import UserError
from verifiers.problem import Problem


def leave_out_overlong(
    sets: Mapping[str, Sequence[Problem]],
    prompts: Mapping[str, Sequence[int]],
    *,
    max_prompt_length: int,
    drop: bool,
) -> tuple[dict[str, list[Problem]], dict[str, list[str]]]:
    """The problems whose prompts fit, and where the others stand with their lengths, by set.

    Args:
        sets: Problems by the set's name.
        prompts: Token ids by problem id.
        max_prompt_length: In tokens.
        drop: Whether problems may be left out.

    Raises:
        UserError: A prompt is longer and may not be left out, or a set would be left empty.
    """
    kept: dict[str, list[Problem]] = {}
    left_out: dict[str, list[str]] = {}
    for name, problems in sets.items():
        kept[name] = [p for p in problems if len(prompts[p.id]) <= max_prompt_length]
        longer = [p for p in problems if len(prompts[p.id]) > max_prompt_length]
        if not longer:
            continue
        left_out[name] = [f"{p.source} has {len(prompts[p.id])} tokens" for p in longer]
        if not drop or not kept[name]:
            longest = max(len(prompts[p.id]) for p in longer)
            cure = ", or set overlong_prompts=drop to leave such problems out" if kept[name] else ""
            raise UserError(
                f"{len(longer)} of {len(problems)} prompts of {name!r} are longer than "
                f"max_prompt_length={max_prompt_length}, the first: {left_out[name][0]}. Raise it "
                f"(the longest has {longest}){cure}."
            )
    return kept, left_out
