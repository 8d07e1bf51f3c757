"""Training and evaluation as functions, for scripts and notebooks."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from verifiers.callables import name_function
from verifiers.errors import UserError

if TYPE_CHECKING:
    from grpo.config import RunConfig
    from grpo.evaluation.scores import EvaluationResult

Source = str | Path | Mapping[str, Any]
_at_work = threading.Lock()


def train(
    config: Source,
    options: Mapping[str, Any] | None = None,
    *,
    resume: str | Path | None = None,
    fork: str | Path | None = None,
) -> dict[str, Any]:
    """Train a policy with GRPO on verified rewards.

    Args:
        config: A YAML file, or a mapping of what would be in one.
        options: Overrides by dotted name, as `{"seed": 1, "data.0.limit": 100}`. A function stands
            for the verifier that it is.
        resume: A run's folder to go on with; an empty string for the newest run of that name.
        fork: The folder of a run or of a checkpoint that a new run starts from.

    Returns:
        What the run's `summary.json` says; `complete` is False where Ctrl-C stopped it, and
        `directory` is its folder.

    Raises:
        RunFailed: A part of the run failed for good; its folder has all that was done.
        UserError: Something given is wrong; no model was loaded.

    Example:
        >>> def ends_with_answer(completion, answer):
        ...     return float(completion.strip().endswith(answer))
        >>> summary = train(  # doctest: +SKIP
        ...     "configs/quickstart.yaml", {"data.0.verifier": ends_with_answer, "steps": 20}
        ... )
    """
    begun = time.perf_counter()
    from grpo.config import load_config
    from grpo.console import Console

    given, overrides = _read(config, options)
    run, notes = load_config(given, overrides)
    require_training(run)
    console = Console()
    for note in notes:
        console.line(f"note: {note}")
    from grpo.session import run_training

    with _alone("train"), console:
        _, summary = run_training(run, console, resume=_text(resume), fork=_text(fork), begun=begun)
    return summary


def evaluate(
    config: Source,
    options: Mapping[str, Any] | None = None,
    *,
    output: str | Path | None = None,
    completions: str | Path | None = None,
) -> EvaluationResult:
    """Measure pass@k on the held-out sets of a configuration.

    Args:
        config: A YAML file, a mapping of what would be in one, or a run's folder: then its own
            configuration and its newest checkpoint count.
        options: As for `train`.
        output: Folder for scores and completions; the same one goes on with an evaluation that was
            interrupted. By default as for `verigrad eval`.
        completions: JSONL of completions to judge in place of sampling any.

    Returns:
        The scores, with intervals.

    Raises:
        RunFailed: A part failed; what was sampled so far is kept.
        UserError: Something given is wrong; no model was loaded.
    """
    from grpo.console import Console
    from grpo.targets import resolve_evaluation

    console = Console()
    given, overrides = _read(config, options)
    run, folder = resolve_evaluation(given, overrides, warn=console.line)
    stored = Path(completions) if completions is not None else None
    from grpo.evaluating import run_evaluation

    with _alone("evaluate"), console:
        result, _ = run_evaluation(run, console, Path(output or folder), stored)
    return result


def require_training(config: RunConfig) -> None:
    """See that a configuration is one that can be trained by.

    Raises:
        UserError: It has no data, or the model is another's to serve.
    """
    if not config.data:
        raise UserError(
            "There is no training set: data is empty. Name a recipe (data=gsm8k; docs/data.md "
            "lists them) or a file."
        )
    if config.served.base_url is not None:
        raise UserError("A served model can be evaluated, not trained: leave served.base_url out.")


@contextmanager
def _alone(name: str) -> Iterator[None]:
    """Keep a process to one run at a time."""
    if not _at_work.acquire(blocking=False):
        raise UserError(
            f"{name}() was called while another run goes on in this process. Where a script holds "
            "both the call and its verifier, its file is imported again to find the verifier: put "
            'the call under `if __name__ == "__main__":`.'
        )
    try:
        yield
    finally:
        _at_work.release()


def _read(
    config: Source, options: Mapping[str, Any] | None
) -> tuple[str | Mapping[str, Any], list[str]]:
    """A configuration and overrides as the command line would give them."""
    given = _name_functions(config) if isinstance(config, Mapping) else str(config)
    overrides = _name_functions(options or {})
    # JSON is YAML, which is what the value of an override is read as.
    return given, [f"{key}={json.dumps(value)}" for key, value in overrides.items()]


def _name_functions(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _name_functions(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_name_functions(inner) for inner in value]
    if isinstance(value, Path):
        return str(value)
    return name_function(value) if callable(value) else value


def _text(path: str | Path | None) -> str | None:
    return None if path is None else str(path)
