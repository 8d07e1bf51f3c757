from types import SimpleNamespace
from typing import Any

import pytest

from grpo.config import RunConfig
from grpo.evaluating import make_judging
from grpo.evaluation.imports import StoredPool
from grpo.preparation import ServerSide
from grpo.served.pool import ServedPool
from grpo.wiring import machinery
from verifiers.errors import UserError
from verifiers.incident import ignore_incident

PREPARED: Any = SimpleNamespace(
    encoder=ServerSide(),
    inputs=SimpleNamespace(problems=[], verifier_options={"math": {}}),
    device="cpu",
)
STORED = StoredPool({})


@pytest.fixture
def full_cluster(monkeypatch):
    def reserve(config, device, *, with_learner):
        raise UserError("The cluster cannot hold the engines")

    monkeypatch.setattr(machinery, "reserve_placement", reserve)


def judge(served, stored):
    config = RunConfig.model_validate(
        {
            "model": "m",
            "data": [{"path": "d.jsonl"}],
            "output_dir": "o",
            "rollout": {"num_engines": 8},
            "served": served,
        }
    )
    return make_judging(config, PREPARED, stored, ignore_incident)


def test_completions_from_elsewhere_need_no_room_for_engines(full_cluster):
    pool, _, node_ids = judge({}, STORED)
    assert pool is STORED
    assert not node_ids, "no node has to fetch a model"
    pool, _, node_ids = judge({"base_url": "http://localhost:8000/v1"}, None)
    assert isinstance(pool, ServedPool)
    assert not node_ids


def test_a_model_that_runs_here_needs_room(full_cluster):
    with pytest.raises(UserError, match="cannot hold the engines"):
        judge({}, None)
