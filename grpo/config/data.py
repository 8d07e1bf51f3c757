"""The options of a set of problems."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Field, model_validator

from grpo.config.base import Positive, Section
from grpo.config.recipes import Role, merge_recipe


class ColumnsConfig(Section):
    """Which columns of a data set hold what; verifiers see every other column by its own name."""

    prompt: str = "prompt"
    """The question: a string, or a list of chat messages."""
    answer: str = "answer"
    """The reference answer that the verifier reads."""
    verifier: str = "verifier"
    """The row's own verifier; where the column is absent, `verifier` of the data set counts."""
    id: str = "id"
    """The row's identity; where the column is absent, the row's place in the file."""


class FewShotConfig(Section):
    """Worked examples before the question, from the rows that come first in another split."""

    num: Positive
    """How many."""
    path: str | None = None
    """The file or hub id they are taken from; by default the set's own hub id."""
    split: str = "train"
    """Hub only."""
    answer: str | None = None
    """The column with the worked answer; by default the answer column, whole."""


class DataConfig(Section):
    """One set of problems. A bare name in the list stands for `recipe: NAME`."""

    recipe: str | None = None
    """A data set known by name (docs/data.md lists them); its other options need not be given, and
    win where they are. `path` then names a local copy."""
    path: str
    """A local file (.jsonl, .json, .parquet, .csv, .arrow, each but the last also .gz), an id on
    the Hugging Face hub, or `reasoning_gym:TASK`."""
    name: str | None = None
    """How tables and metrics call it; by default the recipe, the file's folder or the hub id."""
    subset: str | None = None
    """Hub only: the configuration's name."""
    split: str = "train"
    """Hub only; a recipe brings a split to train on and one to evaluate on."""
    revision: str | None = None
    """Hub only: a commit or tag; pin it to make a result repeatable."""
    files: tuple[str, ...] = ()
    """Hub only: the files of the repository to read, where it has no splits of its own; `{split}`
    stands for the split, and `*` for anything."""
    columns: ColumnsConfig = ColumnsConfig()
    """Which columns hold what."""
    format: str | None = None
    """The shape of the rows: `plain`, a trainer's (`verl`, `trl`, ...), or that of code problems as
    they are published (`humaneval`, `apps`, ...); see docs/data.md and docs/code_data.md. By
    default what the columns show."""
    time_limit_factor: Annotated[float, Field(gt=0)] = 2.0
    """Multiplies the time limits that rows of code problems state, which are meant for compiled
    languages."""
    where: dict[str, Any] = Field(default_factory=dict)
    """Rows to keep, by column: a value, a list of values, or `{from: A, to: B}` with both ends
    included, such as `{contest_date: {from: 2024-10-01, to: 2025-02-28}}`."""
    verifier: str | None = None
    """A built-in name, `path/to/file.py:function` or `package.module:function`."""
    verifier_options: dict[str, Any] = Field(default_factory=dict)
    """Options of that verifier; the same for every set of a run that it judges."""
    few_shot: FewShotConfig | None = None
    """Worked examples before the question."""
    answer_in_prompt: bool = False
    """Allow `prompt_template` to name the answer column, where it is part of the question, such as
    the target of a number puzzle."""
    system_prompt: str | None = None
    """A system message put before prompts that are plain strings."""
    prompt_template: str | None = None
    """Text with `{column}` fields that replaces the prompt column, such as `{question}\\nThink
    first.`"""
    answer_after: str | None = None
    """Keep only what follows the last occurrence of this text in the answer column (`####` for
    GSM8K)."""
    limit: Positive | None = None
    """Use only the first so many rows."""
    weight: Annotated[float, Field(gt=0)] | None = None
    """Share of this set among the prompts of a step, relative to the other sets; by default its
    number of rows."""

    @model_validator(mode="before")
    @classmethod
    def _merge_recipe(cls, given: Any) -> Any:
        return merge_recipe(given) if isinstance(given, dict) else given

    @property
    def label(self) -> str:
        """The name that tables and metrics use."""
        if self.name or self.recipe:
            return self.name or self.recipe or ""
        parts = [p for p in self.path.split("/") if p]
        return parts[-2] if len(parts) > 1 and "." in parts[-1] else parts[-1].split(".")[0]


def _as_sets(value: Any, role: Role) -> Any:
    entries = [value] if isinstance(value, dict | str) else value
    if not isinstance(entries, list | tuple):
        return entries
    named = [{"recipe": entry} if isinstance(entry, str) else entry for entry in entries]
    return [merge_recipe(entry, role) if isinstance(entry, dict) else entry for entry in named]


TrainSets = Annotated[
    tuple[DataConfig, ...], BeforeValidator(lambda value: _as_sets(value, "train"))
]
EvalSets = Annotated[tuple[DataConfig, ...], BeforeValidator(lambda value: _as_sets(value, "test"))]
