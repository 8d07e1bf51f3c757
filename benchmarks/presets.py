"""Train one configuration with each preset of the objective, and tabulate the held-out scores.

    python benchmarks/presets.py [KEY=VALUE ...] [--presets NAME ...] [--seeds N ...]
                                 [--config FILE] [--output FOLDER] [--page FILE]

Each preset and seed is a `verigrad train` of its own, one after the other; a run that is complete
in the folder is not made again, so that the table can be extended. KEY=VALUE go to every run.
--page writes the table as a page that says how it was made.
"""

from __future__ import annotations

import argparse
import json
import shlex
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[0] = str(ROOT)  # this script's folder would hide packages that share a script's name

from grpo.algorithms.presets import PRESETS  # noqa: E402
from grpo.evaluation.scores import Estimate, EvaluationResult  # noqa: E402

NAMED = ("grpo", "dr_grpo", "dapo", "gspo", "cispo", "rloo", "reinforce_plus_plus")


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A finished run: pass@1 of each held-out set, before and after; and the last evaluation."""

    preset: str
    seed: int
    steps: int
    scores: dict[str, tuple[Estimate, Estimate]]
    evaluation: EvaluationResult


def main(arguments: Sequence[str]) -> int:
    """Train what is not trained yet, and print the table."""
    options = _parse(arguments)
    runs: list[Run] = []
    for preset in options.presets:
        for seed in options.seeds:
            folder = options.output / f"{preset}-{seed}"
            if not _is_complete(folder):
                _train(options, folder, preset, seed)
            runs.append(_read(folder, preset, seed))
    table = "\n".join(_tabulate(runs))
    print(table)
    if options.page is not None:
        shown = ["benchmarks/presets.py", *arguments]
        options.page.write_text(_describe(runs, options.config, shown, table), encoding="utf-8")
    return 0


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--presets", nargs="+", choices=tuple(PRESETS), default=NAMED)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--config", default="configs/quickstart.yaml")
    parser.add_argument("--output", type=Path, default=Path("runs/presets"))
    parser.add_argument("--page", type=Path)
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE")
    options = parser.parse_args(arguments)
    if wrong := [text for text in options.overrides if "=" not in text]:
        parser.error(f"{wrong[0]!r} is not of the form key=value")
    return options


def _train(options: argparse.Namespace, folder: Path, preset: str, seed: int) -> None:
    print(f"training {folder.name} ...", file=sys.stderr, flush=True)
    command = [
        *(sys.executable, "-m", "grpo", "train", options.config),
        *(f"loss_type={preset}", f"seed={seed}"),
        *(f"output_dir={folder.parent}", f"run_name={folder.name}", "save_steps=0"),
        *options.overrides,
    ]
    subprocess.run(command, cwd=ROOT, check=True, stdout=sys.stderr)


def _is_complete(folder: Path) -> bool:
    summary = folder / "summary.json"
    return summary.is_file() and json.loads(summary.read_text(encoding="utf-8"))["complete"]


def _read(folder: Path, preset: str, seed: int) -> Run:
    first, *_, last = [
        EvaluationResult.model_validate_json(file.read_text(encoding="utf-8"))
        for file in sorted((folder / "evaluations").glob("step-*.json"))
    ]
    return Run(
        preset=preset,
        seed=seed,
        steps=last.step,
        evaluation=last,
        scores={
            before.name: (before.pass_at_k[1], after.pass_at_k[1])
            for before, after in zip(first.sets, last.sets, strict=True)
        },
    )


def _tabulate(runs: Sequence[Run]) -> Iterator[str]:
    sets = list(runs[0].scores)
    after = f"after {runs[0].steps} steps"
    heads = [f"{name} {when}" for name in sets for when in ("before", after)]
    yield " | ".join(["| `loss_type`", "seed", *heads]) + " |"
    yield "| --- " * (2 + len(heads)) + "|"
    for run in runs:
        cells = [_show(score) for name in sets for score in run.scores[name]]
        yield " | ".join([f"| `{run.preset}`", str(run.seed), *cells]) + " |"
    for preset in dict.fromkeys(run.preset for run in runs):
        mine = [run for run in runs if run.preset == preset]
        if len(mine) > 1:
            means = [
                f"{statistics.fmean(run.scores[name][when].value for run in mine):.3f}"
                for name in sets
                for when in (0, 1)
            ]
            yield " | ".join([f"| `{preset}`", f"mean of {len(mine)}", *means]) + " |"


def _describe(runs: Sequence[Run], config: str, command: Sequence[str], table: str) -> str:
    """The page."""
    last = runs[0].evaluation
    lowest = [
        min((run.scores[name][1].value, f"`{run.preset}`, seed {run.seed}") for run in runs)
        for name in runs[0].scores
    ]
    ends = [
        f"{name} {value:.3f} ({where})"
        for name, (value, where) in zip(runs[0].scores, lowest, strict=True)
    ]
    sizes = [f"{score.num_problems} problems of {score.name}" for score in last.sets]
    return f"""# Presets of the objective

The policy of the quickstart, trained for {runs[0].steps} steps under each `loss_type`
([algorithms.md](algorithms.md)) and otherwise as `{config}` says. Held-out pass@1 at temperature
{last.temperature:g}: {" and ".join(sizes)}, {last.sets[0].num_samples} samples each,
95 % intervals over problems. The lowest at the end: {", ".join(ends)}.

```console
$ .venv/bin/python {shlex.join(command)}
```

{table}
"""


def _show(score: Estimate) -> str:
    return f"{score.value:.3f} [{score.low:.3f}, {score.high:.3f}]"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
