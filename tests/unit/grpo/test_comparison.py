"""Comparisons of evaluations, against numbers worked out by hand."""

from __future__ import annotations

import json

import pytest

from grpo.cli import main
from grpo.evaluation.comparison import choose_ks, compare_results, compare_sets
from grpo.evaluation.folder import write_result
from grpo.evaluation.plots import plot_pass_at_k
from grpo.evaluation.scores import EvaluationResult, ProblemScore, SetScore, estimate_all
from verifiers.errors import UserError


def make_score(counts, num_samples=1, name="sums", unverified=()):
    problems = tuple(
        ProblemScore(
            problem_id=f"{name}/{i}",
            num_samples=num_samples - (i in unverified),
            num_correct=count,
            num_unverified=int(i in unverified),
            num_truncated=0,
            num_no_answer=0,
            wrong_votes=(num_samples - (i in unverified) - count,)
            if count < num_samples - (i in unverified)
            else (),
        )
        for i, count in enumerate(counts)
    )
    return SetScore(
        name=name,
        num_problems=len(problems),
        num_samples=num_samples,
        pass_at_k=estimate_all("pass@", problems, [1], 0),
        num_left_out=0,
        unverified_fraction=0.0,
        truncated_fraction=0.0,
        no_answer_fraction=0.0,
        mean_completion_length=1.0,
        problems=problems,
    )


def make_result(*scores):
    return EvaluationResult(
        step=0,
        policy_version=0,
        model="m",
        temperature=0.0,
        top_p=1.0,
        max_completion_length=4,
        seed=0,
        seconds=1.0,
        sets=scores,
    )


def compare(first, second, **options):
    found = compare_sets(make_score(first, **options), make_score(second, **options), seed=0)
    assert found is not None
    return found


def test_the_paired_interval_is_the_one_worked_out_by_hand():
    # Differences 0, 1, 1, 1. Of four draws with replacement the mean is 0 in 1 of 256 cases, at
    # most 1/4 in 13 of 256 (5.1 %), and 1 in 81: so the 2.5 % and 97.5 % quantiles are 1/4 and 1.
    # Shifted to a mean of 0 they are -3/4 and three times 1/4, whose mean is as far from 0 as 3/4
    # in 1 of 256 cases.
    found = compare([1, 0, 0, 0], [1, 1, 1, 1])
    difference = found.pass_at_k[1]
    assert (difference.first, difference.second, difference.value) == (0.25, 1.0, 0.75)
    assert (difference.low, difference.high) == (0.25, 1.0)
    assert difference.p_value == pytest.approx(1 / 256, abs=0.002)
    assert found.gained == ("sums/1", "sums/2", "sums/3")
    assert found.lost == ()
    assert found.flips_p_value == pytest.approx(2 * 1 / 8)


def test_flips_in_both_directions_are_named():
    found = compare([4, 0, 2, 1], [0, 4, 2, 1], num_samples=4)
    assert (found.gained, found.lost) == (("sums/1",), ("sums/0",))
    assert found.flips_p_value == 1.0
    assert set(found.pass_at_k) == {1, 2, 4}
    # pass^2 of 4, 0, 2, 1 right of four: 1, 0, 1/6, 0.
    assert found.pass_hat_k[2].first == pytest.approx((1 + 1 / 6) / 4)
    assert found.pass_hat_k[2].value == pytest.approx(0.0)


@pytest.mark.parametrize(
    ("first", "second", "num_samples", "word"),
    [
        ([1] * 20, [4] * 20, 4, "sharpened"),
        ([0, 1] * 10, [12, 16] * 10, 16, "widened"),
        ([0, 1] * 10, [3, 4] * 10, 4, "more would tell"),
        ([3] * 20, [1] * 20, 4, "worse"),
        ([2, 1] * 10, [2, 1] * 10, 4, "no difference"),
    ],
)
def test_the_curves_are_read_as_sharpened_or_widened(first, second, num_samples, word):
    assert word in compare(first, second, num_samples=num_samples).reading


def test_problems_without_enough_verified_samples_are_left_out_and_counted():
    first = make_score([1, 2, 0], num_samples=2, unverified={0})
    second = make_score([2, 2, 1], num_samples=2)
    found = compare_sets(first, second, seed=0)
    assert found is not None
    assert (found.num_problems, found.num_left_out) == (2, 1)


def test_evaluations_without_a_common_problem_are_refused():
    other = make_score([1], name="others")
    with pytest.raises(UserError, match="no scored problem in common"):
        compare_results(make_result(make_score([1])), make_result(other), seed=0)


def test_ks_are_powers_of_two_and_the_largest():
    assert choose_ks(1) == [1]
    assert choose_ks(6) == [1, 2, 4, 6]


def store(folder, result, texts):
    folder.mkdir()
    write_result(folder, result)
    rows = [
        {
            "problem_id": p.problem_id,
            "status": "correct" if p.num_correct else "incorrect",
            "reason": "different",
            "text": f"{texts} {p.problem_id}",
            "reference": "7",
        }
        for p in result.sets[0].problems
    ]
    (folder / "samples.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(folder)


def test_the_command_prints_tables_examples_and_plots(tmp_path, capsys):
    first = store(tmp_path / "a", make_result(make_score([1, 0, 0, 0])), "before")
    second = store(tmp_path / "b", make_result(make_score([0, 1, 1, 1])), "after")
    assert main(["compare", first, second, "--examples", "1"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    for fragment in (
        "+0.500",
        "3 problems gained, 1 lost",
        "gained: sums/1",
        "right (different): after sums/1",
        "wrong (different): before sums/1",
        "lost: sums/0",
    ):
        assert fragment in shown
    assert main(["compare", first, second, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["others"][second]["sets"][0]["gained"] == ["sums/1", "sums/2", "sums/3"]


def test_curves_are_drawn_where_there_are_several_samples(tmp_path, capsys):
    once = [make_result(make_score(counts)) for counts in ([1, 0], [1, 1])]
    often = [make_result(make_score(counts, num_samples=4)) for counts in ([1, 0], [4, 1])]
    single = [store(tmp_path / f"once-{i}", result, "") for i, result in enumerate(once)]
    several = [store(tmp_path / f"often-{i}", result, "") for i, result in enumerate(often)]
    plots = tmp_path / "plots"
    assert main(["compare", *single, "--plots", str(plots)]) == 0
    assert "no curves" in capsys.readouterr().out
    assert list(plots.iterdir()) == []
    assert main(["compare", *several, "--plots", str(plots)]) == 0
    assert {file.name for file in plots.iterdir()} == {"pass-at-k-sums.png", "pass-at-k-sums.svg"}
    assert "<!-- often-1 -->" in (plots / "pass-at-k-sums.svg").read_text()


@pytest.mark.parametrize("arguments", [["a"], ["a", "a"]])
def test_the_command_needs_two_evaluations(tmp_path, capsys, arguments):
    path = store(tmp_path / "a", make_result(make_score([1])), "x")
    assert main(["compare", *[path] * len(arguments)]) == 2
    assert "evaluation" in capsys.readouterr().err


def test_a_plot_is_the_same_bytes_again(tmp_path):
    curves = {
        "before": make_score([1, 2, 0, 4], num_samples=4),
        "after": make_score([4, 3, 1, 4], num_samples=4),
    }
    first = plot_pass_at_k(curves, tmp_path / "a", title="t", seed=0)
    second = plot_pass_at_k(curves, tmp_path / "b", title="t", seed=0)
    for ours, theirs in zip(first, second, strict=True):
        assert ours.read_bytes() == theirs.read_bytes()
        assert ours.stat().st_size > 2000
