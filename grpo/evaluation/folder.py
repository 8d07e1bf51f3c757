"""Folders of evaluations: which one to go on with, and what is in a finished one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from grpo.evaluation.journal import SAMPLES
from grpo.evaluation.record import EvaluationRecord
from grpo.evaluation.scores import EvaluationResult
from grpo.held_file import hold_file
from verifiers.errors import UserError

RESULT = "evaluation.json"
_PLAN = "plan.json"
_MAX_FOLDERS = 10_000


@contextmanager
def open_folder(base: Path, record: EvaluationRecord) -> Iterator[tuple[Path, bool]]:
    """The folder of an evaluation: an unfinished one of the same, or a new one.

    A folder of a finished evaluation, or of another, is left alone; the next number is tried.

    Args:
        base: The folder without a number.
        record: What is evaluated, and how.

    Yields:
        The folder, which is this process's alone meanwhile, and whether it was begun before.

    Raises:
        UserError: No folder can be made there, or another process is at work on this evaluation.
    """
    while True:
        folder, begun_before = _find_folder(base, record)
        busy = (
            f"Another `verigrad eval` of the same is at work in {folder}. Wait for its end, or set "
            "--output to another folder."
        )
        with hold_file(folder / _PLAN, busy=busy):
            if not (folder / RESULT).exists():  # it may have been finished since it was found
                yield folder, begun_before
                return


def _find_folder(base: Path, record: EvaluationRecord) -> tuple[Path, bool]:
    for number in range(1, _MAX_FOLDERS):
        folder = base if number == 1 else base.with_name(f"{base.name}-{number}")
        if folder.exists():
            if _is_unfinished(folder, record):
                return folder, True
            continue
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            continue  # another command was faster
        except OSError as error:
            raise UserError(
                f"The evaluation's folder {folder} cannot be made: {error}. Set --output to a "
                "folder of yours."
            ) from None
        (folder / _PLAN).write_text(record.model_dump_json(indent=2) + "\n", encoding="utf-8")
        return folder, False
    raise UserError(f"{base} has {_MAX_FOLDERS} evaluations beside it; set --output to another.")


def _is_unfinished(folder: Path, record: EvaluationRecord) -> bool:
    plan = folder / _PLAN
    if (folder / RESULT).exists() or not plan.is_file():
        return False
    try:
        theirs = EvaluationRecord.model_validate_json(plan.read_text(encoding="utf-8"))
    except ValueError:
        return False  # half written, or of another version: not ours to go on with
    return theirs.fingerprint == record.fingerprint


def write_result(folder: Path, result: EvaluationResult) -> Path:
    """Write a finished evaluation, whole or not at all."""
    file = folder / RESULT
    partial = file.with_name(f".{RESULT}.partial")
    partial.write_text(result.model_dump_json(indent=2) + "\n", encoding="utf-8")
    partial.replace(file)
    return file


def read_result(path: str) -> tuple[EvaluationResult, Path | None]:
    """Read a stored evaluation.

    Args:
        path: An evaluation's folder or its JSON file, also one beside a training run.

    Returns:
        The scores, and the file with the samples, where it is there.

    Raises:
        UserError: There is none, or it cannot be read.
    """
    file = Path(path) / RESULT if Path(path).is_dir() else Path(path)
    if not file.is_file():
        raise UserError(
            f"There is no evaluation {file}. Give the folder that `verigrad eval` names, or a "
            "run's evaluations/step-NNNNNN.json."
        )
    try:
        result = EvaluationResult.model_validate(json.loads(file.read_text(encoding="utf-8")))
    except ValueError as error:
        raise UserError(f"{file} is no evaluation: {error}") from None
    samples = file.with_name(SAMPLES) if file.name == RESULT else file.with_suffix(".jsonl")
    return result, samples if samples.is_file() else None
