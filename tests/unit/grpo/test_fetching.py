"""A model comes from the hub before anything that waits for it is timed."""

from __future__ import annotations

import pytest

from grpo.fetching import fetch_model
from verifiers.errors import UserError

COMMIT = "0" * 40


@pytest.fixture
def make_cached(tmp_path, monkeypatch):
    """Put files of `owner/name` into a cache of the hub, to which there is no connection."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)

    def make(*names):
        repository = tmp_path / "models--owner--name"
        (repository / "refs").mkdir(parents=True)
        (repository / "refs/main").write_text(COMMIT)
        snapshot = repository / "snapshots" / COMMIT
        for name in names:
            (snapshot / name).parent.mkdir(parents=True, exist_ok=True)
            (snapshot / name).write_bytes(b"x")
        return snapshot

    return make


@pytest.mark.parametrize("weights", ["model.safetensors", "pytorch_model.bin"])
def test_a_model_in_the_cache_is_found_without_a_connection(make_cached, weights):
    cached = make_cached("config.json", weights)
    assert fetch_model("owner/name") == cached


def test_a_model_that_does_not_come_is_the_users_to_cure(make_cached):
    with pytest.raises(UserError, match=r"'owner/name' did not come.*HF_ENDPOINT.*HF_TOKEN"):
        fetch_model("owner/name")


def test_a_folder_is_as_it_is(tmp_path):
    assert fetch_model(str(tmp_path)) == tmp_path
