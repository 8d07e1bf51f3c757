"""Everything that is needed to repeat an evaluation, as it is written beside the scores."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

_WEIGHTS = ("*.safetensors", "*.bin")
_TEXTS = ("config.json", "generation_config.json", "tokenizer*.json", "chat_template.jinja")


class SetRecord(BaseModel):
    """One held-out set."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    digest: str
    """Of the problems as they were asked; see `grpo.data.digest`."""
    num_problems: int
    source: dict[str, Any]
    """The entry of `evaluation.data`, with everything its recipe says."""


class EvaluationRecord(BaseModel):
    """What was evaluated, and how."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: str
    revision: str | None
    """The hub's commit, or the digest of a folder's files; none of a served model."""
    served: dict[str, Any] | None
    """The address and options of a served model, without its key."""
    completions: str | None = None
    """The digest of the file of completions that was judged in place of a model."""
    chat_template: str | None
    """The template's text; none where prompts are plain text, or where a server applies its own."""
    prompting: dict[str, Any] = {}
    """What else shapes the prompts."""
    num_samples: int
    seed: int
    """A sample's own seed follows from it, the problem's id and the sample's number."""
    sampling: dict[str, Any]
    """Temperature, top_p and so on, with the token ids that end a completion."""
    verifiers: dict[str, dict[str, Any]]
    """The options of each verifier; its version is in every verdict."""
    sets: tuple[SetRecord, ...]

    @property
    def fingerprint(self) -> str:
        """The same for two evaluations whose samples can stand for each other's."""
        text = json.dumps(self.model_dump(mode="json"), sort_keys=True)
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def compute_model_digest(folder: Path) -> str:
    """A hash of a model folder's weights, configuration and tokenizer."""
    digest = hashlib.blake2b(digest_size=16)
    for pattern in (*_WEIGHTS, *_TEXTS):
        for file in sorted(folder.glob(pattern)):
            digest.update(file.name.encode())
            with file.open("rb") as stream:
                own = hashlib.file_digest(stream, lambda: hashlib.blake2b(digest_size=16))
            digest.update(own.digest())
    return f"blake2b:{digest.hexdigest()}"


def compute_file_digest(file: Path) -> str:
    """A hash of a file's content."""
    with file.open("rb") as stream:
        digest = hashlib.file_digest(stream, lambda: hashlib.blake2b(digest_size=16))
    return f"blake2b:{digest.hexdigest()}"


def describe_difference(ours: EvaluationRecord, theirs: EvaluationRecord) -> Sequence[str]:
    """The options in which two evaluations differ, the model aside; for a person."""
    mine, other = (_flatten(r.model_dump(mode="json")) for r in (ours, theirs))
    left_out = {"model", "revision", "served", "completions"}
    return [
        f"{name}: {mine.get(name)!r} and {other.get(name)!r}"
        for name in sorted({*mine, *other})
        if name.split(".")[0] not in left_out and mine.get(name) != other.get(name)
    ]


def _flatten(value: Any, prefix: str = "") -> dict[str, Any]:
    if isinstance(value, Mapping):
        items: Any = value.items()
    elif isinstance(value, list) and any(isinstance(item, Mapping) for item in value):
        items = enumerate(value)
    else:
        return {prefix: value}
    flat: dict[str, Any] = {}
    for key, child in items:
        flat |= _flatten(child, f"{prefix}.{key}" if prefix else str(key))
    return flat
