"""Problems of which none has a signal: a run draws as many as it may, says so, and goes on."""

from __future__ import annotations

import json

import pytest

STEPS, WANTED = 2, 4
OPTIONS = (
    f"steps={STEPS}",
    f"prompts_per_step={WANTED}",
    "num_generations=4",
    "dynamic_sampling=replace",
    "max_gen_batches=2",
    "evaluation.data=[]",
)


@pytest.mark.long
@pytest.mark.parametrize("answer", [True, False], ids=["all easy", "all hard"])
def test_a_step_ends_at_the_cap_with_the_prompts_by_name(train, tmp_path, answer):
    rows = [{"id": f"row-{n}", "prompt": f"{n}+{n}=", "answer": str(2 * n)} for n in range(40)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "same.py").write_text(f"def check(completion):\n    return {answer}\n")
    data = f"data=[{{path: {tmp_path}/rows.jsonl, verifier: '{tmp_path}/same.py:check'}}]"
    run = train(tmp_path, data, *OPTIONS)
    assert run.returncode == 0, run.stderr
    assert [row["step"] for row in run.metrics] == list(range(1, STEPS + 1))
    said = [line for line in run.stdout.splitlines() if "max_gen_batches" in line]
    assert len(said) == STEPS
    for line in said:
        assert f"0 of {WANTED} wanted groups have a signal after {2 * WANTED} problems" in line
        assert "row-" in line
