"""Evaluations in the form of lm-evaluation-harness: a results file, and samples of each task."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from grpo.evaluation.scores import EvaluationResult, SetScore


def write_lm_eval(result: EvaluationResult, samples: Path | None, folder: Path) -> list[Path]:
    """Write `results.json` and, where the samples are there, `samples_SET.jsonl`.

    Args:
        result: The evaluation.
        samples: Its `samples.jsonl`.
        folder: Where to write.

    Returns:
        The files.
    """
    folder.mkdir(parents=True, exist_ok=True)
    files = [folder / "results.json"]
    files[0].write_text(json.dumps(make_results(result), indent=2) + "\n", encoding="utf-8")
    if samples is None:
        return files
    for score in result.sets:
        file = folder / f"samples_{score.name}.jsonl"
        rows = _sample_rows(score, samples)
        file.write_text(
            "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8"
        )
        files.append(file)
    return files


def make_results(result: EvaluationResult) -> dict[str, Any]:
    """The results file's content."""
    record = result.record
    return {
        "results": {score.name: _metrics(score) for score in result.sets},
        "configs": {
            score.name: {
                "task": score.name,
                "repeats": score.num_samples,
                "output_type": "generate_until",
                "generation_kwargs": dict(record.sampling) if record else {},
                "metadata": {"graders": list(score.graders)},
            }
            for score in result.sets
        },
        "versions": {score.name: 1 for score in result.sets},
        "n-samples": {
            score.name: {"original": score.num_problems, "effective": score.num_problems}
            for score in result.sets
        },
        "config": {"model": "verigrad", "model_args": f"pretrained={result.model}"},
        "model_name": result.model,
        "chat_template": record.chat_template if record else None,
        "random_seed": result.seed,
        "total_evaluation_time_seconds": str(result.seconds),
    }


def _metrics(score: SetScore) -> dict[str, Any]:
    metrics: dict[str, Any] = {"alias": score.name}
    for name, estimates in (
        ("pass@{}", score.pass_at_k),
        ("pass^{}", score.pass_hat_k),
        ("maj@{}", score.maj_at_k),
    ):
        for k, estimate in estimates.items():
            metrics[f"{name.format(k)},none"] = estimate.value
            # lm-eval writes N/A where it has no standard error.
            metrics[f"{name.format(k)}_stderr,none"] = (
                "N/A" if estimate.stderr is None else estimate.stderr
            )
    if 1 in score.pass_at_k:
        metrics["exact_match,none"] = metrics["pass@1,none"]
        metrics["exact_match_stderr,none"] = metrics["pass@1_stderr,none"]
    return metrics


def _sample_rows(score: SetScore, samples: Path) -> Iterator[dict[str, Any]]:
    groups: dict[str, list[Mapping[str, Any]]] = {p.problem_id: [] for p in score.problems}
    with samples.open(encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            if row["problem_id"] in groups:
                groups[row["problem_id"]].append(row)
    for number, (name, unsorted_rows) in enumerate(groups.items()):
        rows = sorted(unsorted_rows, key=lambda row: row["member"])
        right = [row["status"] == "correct" for row in rows]
        yield {
            "doc_id": number,
            "doc": {"id": name, "prompt": rows[0]["prompt"] if rows else None},
            "target": rows[0]["reference"] if rows else None,
            "resps": [[row["text"] for row in rows]],
            "filtered_resps": [[row["extracted"] for row in rows]],
            "exact_match": sum(right) / len(right) if right else None,
        }
