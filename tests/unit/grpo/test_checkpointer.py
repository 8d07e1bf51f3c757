"""Checkpoints that are written while the loop goes on, the best one, and where a run may begin."""

from __future__ import annotations

import json
import threading

import pytest
import yaml

from grpo.checkpointer import RunCheckpointer
from grpo.checkpoints import list_checkpoints, read_state, verify_checkpoint
from grpo.config.schema import RunConfig
from grpo.evaluation.scores import Estimate, EvaluationResult, SetScore
from grpo.learner.errors import LearnerDied
from grpo.protocols import Progress
from grpo.resuming import find_start, keep_changes, note_device
from grpo.run_directory import RunDirectory
from verifiers.errors import UserError


class SlowLearner:
    """Copies at once, and writes when it is told to."""

    def __init__(self):
        self.may_write = threading.Event()
        self.weights = "first"
        self.error: LearnerDied | None = None

    def begin_save(self, folder):
        self._copy, self._folder = self.weights, folder

    def finish_save(self):
        assert self.may_write.wait(10)
        if self.error:
            raise self.error
        (self._folder / "weights").write_text(self._copy)


class Counter:
    def __init__(self):
        self.count = 0

    def state(self):
        return {"count": self.count}

    def restore(self, state):
        self.count = state["count"]


def never(incident):
    pytest.fail(f"nothing was to be noted: {incident}")


def names(folder):
    return [path.name for path in list_checkpoints(folder)]


def test_training_goes_on_while_the_state_of_then_is_written(tmp_path):
    learner, counter, progress = SlowLearner(), Counter(), Progress(step=1, policy_version=1)
    checkpointer = RunCheckpointer(
        tmp_path, learner, keep_last=2, note=never, parts={"counter": counter}
    )
    checkpointer.save(progress)
    learner.weights, counter.count, progress.step = "second", 7, 2
    assert names(tmp_path) == []
    learner.may_write.set()
    checkpointer.settle()
    folder = tmp_path / "checkpoint-1"
    verify_checkpoint(folder)
    assert (folder / "weights").read_text() == "first"
    state = read_state(folder)
    assert (state["step"], state["parts"]) == (1, {"counter": {"count": 0}})


def test_a_rank_that_dies_while_it_writes_costs_that_checkpoint_only(tmp_path):
    learner, notes = SlowLearner(), []
    learner.may_write.set()
    checkpointer = RunCheckpointer(tmp_path, learner, keep_last=2, note=notes.append)
    learner.error = LearnerDied("rank 0 died")
    checkpointer.save(Progress(step=1))
    checkpointer.settle()
    learner.error = None
    checkpointer.save(Progress(step=2))
    checkpointer.finish()
    assert names(tmp_path) == ["checkpoint-2"]
    assert [(n.worker, n.action) for n in notes] == [("checkpoint of step 1", "not written")]


def test_what_a_killed_run_left_half_written_is_removed(tmp_path):
    (tmp_path / "partial-3-99" / "policy").mkdir(parents=True)
    (tmp_path / "removing-checkpoint-1").mkdir()
    RunCheckpointer(tmp_path, SlowLearner(), keep_last=1, note=never)
    assert list(tmp_path.iterdir()) == []


def evaluate(step, value):
    estimate = Estimate.model_construct(value=value)
    score = SetScore.model_construct(name="maths", pass_at_k={1: estimate})
    return EvaluationResult.model_construct(step=step, sets=(score,))


def test_the_best_checkpoint_outlives_keep_last(tmp_path):
    learner = SlowLearner()
    learner.may_write.set()
    checkpointer = RunCheckpointer(
        tmp_path, learner, keep_last=1, note=never, best_metric="heldout/maths/pass@1"
    )
    for step, value in enumerate((0.2, 0.9, 0.5, 0.9, 0.1), start=1):
        progress = Progress(step=step)
        if step != 2:  # an evaluation between two checkpoints makes one of its own
            checkpointer.save(progress)
        checkpointer.consider(progress, evaluate(step, value))
    checkpointer.finish()
    assert names(tmp_path) == ["checkpoint-2", "checkpoint-5"]
    assert (tmp_path / "best").resolve().name == "checkpoint-2"


@pytest.fixture
def run(tmp_path):
    """The folder of a run with a checkpoint of step 4."""
    learner = SlowLearner()
    learner.may_write.set()
    folder = tmp_path / "run"
    checkpointer = RunCheckpointer(folder / "checkpoints", learner, keep_last=1, note=never)
    checkpointer.save(Progress(step=4))
    checkpointer.finish()
    return folder


def make_config(**options):
    return RunConfig.model_validate({"model": "m", "data": {"path": "d.jsonl"}} | options)


def resume(run, config):
    start = find_start(config, resume=str(run), fork=None, warn=pytest.fail)
    assert start is not None
    return start


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("max_tokens_per_microbatch", 512),
        ("placement", "dedicated"),
        ("max_non_finite_steps", 9),
        ("evaluation", {"num_samples": 8}),
        ("rollout", {"gpu_memory_utilization": 0.4}),
        ("learner", {"gradient_checkpointing": True}),
        ("invariants", {"max_logprob_difference": 0.2}),
    ],
)
def test_a_run_goes_on_with_what_does_not_change_its_gradient(run, option, value):
    directory = RunDirectory(run)
    directory.write_config(make_config())
    changed = make_config(**{option: value})
    start = resume(run, changed)
    said = []
    keep_changes(changed, start, directory, say=said.append)

    assert len(said) == len(start.changes) == 1
    assert option in said[0]
    assert resume(run, changed).changes == {}
    (kept,) = directory.read_lines("resumed.jsonl")
    assert kept["step"] == 4
    assert list(kept["changes"]) == list(start.changes)


@pytest.mark.parametrize(
    ("facts", "changes"),
    [
        ({"engine": {"device": "cuda"}}, {"device": ("cuda", "cpu")}),
        ({"engine": {"device": "cpu"}}, {}),
        ({}, {}),
        (None, {}),
    ],
)
def test_a_run_that_goes_on_on_another_kind_of_device_says_so(run, facts, changes):
    directory = RunDirectory(run)
    directory.write_config(make_config())
    if facts is not None:
        directory.write_json("environment.json", facts)
    start = note_device(resume(run, make_config()), "cpu")
    assert start is not None
    assert start.changes == changes
    said = []
    keep_changes(make_config(), start, directory, say=said.append)
    assert said == ["changed    device: 'cuda' before, 'cpu' now"] * len(changes)


def test_a_run_that_begins_has_no_device_from_before(run):
    assert note_device(None, "cuda") is None
    fork = find_start(make_config(steps=9), resume=None, fork=str(run), warn=pytest.fail)
    assert note_device(fork, "cuda") is fork


def test_a_run_does_not_go_on_as_another(run):
    RunDirectory(run).write_config(make_config())
    with pytest.raises(UserError, match=r"beta is 0\.5 now, but 0\.0 in .*--fork"):
        resume(run, make_config(beta=0.5))


def test_a_run_of_an_older_release_goes_on_without_the_options_that_are_new_since(run):
    config = make_config()
    old = config.model_dump(mode="json")
    del old["use_rslora"], old["rewards"]["limit"], old["data"][0]["limit"]
    (run / "config.yaml").write_text(yaml.safe_dump(old))
    assert resume(run, config).changes == {}
    with pytest.raises(UserError, match="use_rslora is True now, but False"):
        resume(run, make_config(use_rslora=True))


@pytest.mark.parametrize("below", ["", "checkpoints/checkpoint-4"])
def test_a_fork_names_a_run_or_a_checkpoint(run, below):
    start = find_start(make_config(steps=9), resume=None, fork=str(run / below), warn=pytest.fail)
    assert start is not None
    assert start.directory is None
    assert start.checkpoint == run / "checkpoints/checkpoint-4"


def test_forks_that_cannot_be_are_refused(run, tmp_path):
    def fork(path, steps=9, resume=None):
        find_start(make_config(steps=steps), resume=resume, fork=str(path), warn=pytest.fail)

    with pytest.raises(UserError, match=r"of step 4, and steps=4 leaves nothing"):
        fork(run, steps=4)
    with pytest.raises(UserError, match="neither a checkpoint"):
        fork(tmp_path)
    with pytest.raises(UserError, match="give one of the two"):
        fork(run, resume="")
    manifest = run / "checkpoints/checkpoint-4/manifest.json"
    manifest.write_text(json.dumps({"files": {"weights": {"size": 99, "blake2b": ""}}}))
    with pytest.raises(UserError, match="has 5 bytes, but 99 were written"):
        fork(run / "checkpoints/checkpoint-4")


def test_a_checkpoint_begins_once_the_record_of_its_steps_is_on_disk(tmp_path):
    events = []

    class Learner(SlowLearner):
        def begin_save(self, folder):
            events.append("copy")
            super().begin_save(folder)

    learner = Learner()
    learner.may_write.set()
    checkpointer = RunCheckpointer(
        tmp_path, learner, keep_last=1, note=never, settle_record=lambda: events.append("record")
    )
    checkpointer.save(Progress(step=1))
    checkpointer.settle()
    assert events == ["record", "copy", "record"]
