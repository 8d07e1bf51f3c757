"""The bridge to Reasoning Gym: its data sets score the answers to their own puzzles."""

from __future__ import annotations

import functools
import importlib.util
import inspect
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from verifiers.errors import BadReference, UserError
from verifiers.example import Example
from verifiers.extraction import Policy
from verifiers.formula_text import is_formula
from verifiers.json_text import NotJson, read_json
from verifiers.problem import Problem, Submission
from verifiers.protocol import Verifier
from verifiers.replies import ReplyReader, Ruling
from verifiers.verdict import Reason, Status, Verdict
from verifiers.workers import MACHINE_FAILURES, Outcome, WorkerPool, WorkerPoolError, WorkerSettings

PACKAGE = "reasoning_gym"
MAX_ANSWER_CHARS = 20_000
_EVALUATION = re.compile(r"\b(?:eval|exec|parse_expr|sympify|parse_latex|S)\s*\(")


class ReasoningGymVerifier(Verifier):
    """Judges with `score_answer` of the Reasoning Gym data set that a row came from.

    A row is an entry of such a data set: its `answer` is the reference, its `metadata` a column
    (a mapping or JSON text); or the reference is the whole entry. An answer is right when it scores
    `threshold`. What less is worth is not 0 in many data sets (any text at all can get 0.01), so
    it counts only with `partial`; the components always have it as `score_answer`.

    Args:
        dataset: Name of the data set of every row; by default `source_dataset` of the metadata.
        threshold: Score from which an answer is right.
        partial: A wrong answer keeps the score that the data set gave it.
        extraction: Where the answer stands; see `verifiers.extraction.find_answer`.
        allow_truncated: Judge a completion that was cut off at the length limit.
        cpu_limit_s: CPU seconds for one answer; beyond it the completion gets `LIMIT`.
        memory_mb: Address space of the process that scores.
        concurrency: Answers scored at the same time in one verifier worker.
        poison_file: JSONL file to which answers that cost a worker process are appended.

    Raises:
        UserError: Reasoning Gym is not installed, or there is no such extraction policy.
    """

    name = "reasoning_gym"
    version = 1

    def __init__(
        self,
        *,
        dataset: str | None = None,
        threshold: float = 1.0,
        partial: bool = False,
        extraction: Policy = "answer_tag",
        allow_truncated: bool = False,
        cpu_limit_s: float = 10.0,
        memory_mb: int = 4096,
        concurrency: int = 1,
        poison_file: str | None = None,
    ) -> None:
        if importlib.util.find_spec(PACKAGE) is None:
            raise UserError(
                "the verifier `reasoning_gym` needs the package of that name, which is not "
                "installed: pip install 'verigrad[reasoning-gym]'"
            )
        self._dataset = dataset
        self._threshold = threshold
        self._partial = partial
        self._reader = ReplyReader(extraction, allow_truncated=allow_truncated)
        settings = WorkerSettings(
            target="verifiers.reasoning_gym:score",
            preload=("verifiers.reasoning_gym", PACKAGE),
            cpu_limit_s=cpu_limit_s,
            wall_limit_s=5 * cpu_limit_s,
            memory_mb=memory_mb,
            max_resident_mb=memory_mb // 2,
        )
        self.concurrency = concurrency
        self._pool = WorkerPool(settings, size=concurrency, poison_file=poison_file)

    def prepare(self, problem: Problem) -> None:
        """Check that the data set exists and finds the row's own answer right.

        Raises:
            BadReference: It does not.
        """
        try:
            dataset, entry = self._read_entry(problem)
            self._check_own_answer(dataset, entry)
        except ValueError as error:
            raise BadReference(
                f"{problem.source}: the verifier `reasoning_gym` cannot judge the row: {error}"
            ) from error

    def verify(self, submission: Submission) -> Verdict:
        """Score one completion's answer."""
        return self._reader.judge(submission, self.label, self._rule)

    def close(self) -> None:
        """End the worker processes."""
        self._pool.close()

    def examples(self) -> Sequence[Example]:
        """A right and a wrong answer; none where one data set of the user's counts for all rows."""
        if self._dataset is not None:
            return []
        entry = {"question": "2 + 2 =", "answer": "4", "metadata": {"source_dataset": "chain_sum"}}
        return self._reader.make_examples(self.name, entry, right="4", wrong="5")

    def _rule(self, problem: Problem, answer: str) -> Ruling:
        try:
            dataset, entry = self._read_entry(problem)
        except ValueError as error:
            return Ruling.bad_gold(str(error))
        if len(answer) > MAX_ANSWER_CHARS:
            return Ruling.too_long()
        return self._grade(self._pool.run(dataset, answer, entry))

    def _grade(self, outcome: Outcome) -> Ruling:
        if outcome.failure is not None:
            return Ruling.failed(outcome)
        value = outcome.value
        if value is None:
            return Ruling.wrong(Reason.UNPARSED)
        if not isinstance(value, float) or not math.isfinite(value):
            return Ruling(
                status=Status.ERROR,
                reason=Reason.VERIFIER_RAISED,
                detail=f"score_answer returned {value!r}",
            )
        right = value >= self._threshold
        return Ruling(
            status=Status.CORRECT if right else Status.INCORRECT,
            reason=Reason.ACCEPTED if right else Reason.REJECTED,
            score=min(max(value, 0.0), 1.0) if right or self._partial else 0.0,
            components={"score_answer": value},
        )

    def _check_own_answer(self, dataset: str, entry: Mapping[str, Any]) -> None:
        outcome = self._pool.run(dataset, entry["answer"], entry)
        if outcome.failure in MACHINE_FAILURES:
            raise WorkerPoolError(f"an entry of {dataset} was not scored: {outcome.detail}")
        if outcome.failure is not None:
            last_line = (outcome.detail or "").strip().rpartition("\n")[2]
            raise ValueError(f"{dataset} fails on its own answer: {last_line}")
        # Where several answers are right, an entry may come without one.
        if entry["answer"] is not None and self._grade(outcome).status is not Status.CORRECT:
            raise ValueError(f"{dataset} scores the row's own answer {outcome.value}")

    def _read_entry(self, problem: Problem) -> tuple[str, Mapping[str, Any]]:
        """Name of the data set, and the row as an entry of it.

        Raises:
            ValueError: The row is none.
        """
        entry: dict[str, Any] = {"question": problem.prompt, **problem.columns}
        if isinstance(problem.reference, Mapping):
            entry |= problem.reference
        else:
            entry["answer"] = problem.reference
        if isinstance(entry.get("metadata"), str):
            try:
                entry["metadata"] = read_json(entry["metadata"])
            except NotJson as error:
                raise ValueError(f"its metadata is no JSON: {error}") from error
        metadata = entry.get("metadata")
        if not isinstance(metadata, Mapping) or "answer" not in entry:
            raise ValueError("it has no metadata, or no answer, as an entry has")
        dataset = self._dataset or metadata.get("source_dataset")
        if not (dataset and isinstance(dataset, str)):
            raise ValueError("neither its metadata nor the option 'dataset' names the data set")
        return dataset, entry


def score(dataset: str, answer: str | None, entry: Mapping[str, Any]) -> float | None:
    """Run in a worker: what the data set gives the answer, as a plain float.

    Returns:
        None where the data set would evaluate the answer as Python, and it is more than a formula.
    """
    if answer is not None and _evaluates_answers(dataset) and not is_formula(answer):
        return None
    return float(_find_scorer(dataset)(answer, entry))


@functools.cache
def _evaluates_answers(dataset: str) -> bool:
    """Whether the module of a data set hands text to Python or to sympy's parser, which does."""
    module = inspect.getmodule(_find_scorer(dataset))
    return module is None or _EVALUATION.search(inspect.getsource(module)) is not None


@functools.cache
def _find_scorer(dataset: str) -> Callable[[str | None, Mapping[str, Any]], Any]:
    return importlib.import_module(PACKAGE).get_score_answer_fn(dataset)
