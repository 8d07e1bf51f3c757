"""The suites of configs/eval: valid, of recipes, and each with the source of its convention."""

from __future__ import annotations

import re

import pytest

from grpo.config import load_config
from grpo.paths import project_roots

SUITES = sorted((project_roots()[0] / "configs" / "eval").glob("*.yaml"))


@pytest.mark.parametrize("suite", SUITES, ids=lambda path: path.stem)
def test_a_suite_is_valid_and_says_where_its_convention_comes_from(suite):
    config, notes = load_config(str(suite), ["model=m"])
    assert not notes
    assert not config.data
    assert config.run_name == suite.stem
    assert all(data.recipe for data in config.evaluation.data)
    assert max(config.evaluation.k) <= config.evaluation.num_samples
    greedy = config.evaluation.temperature == 0
    assert not (greedy and config.evaluation.num_samples > 1)
    longest = config.max_prompt_length + (config.evaluation.max_completion_length or 0)
    assert (config.rollout.max_model_len or longest) >= longest
    comment = suite.read_text().partition("run_name")[0]
    assert re.search(r"arXiv \d{4}\.\d{5}|github\.com/", comment)
