import math
import textwrap

import pytest

from grpo.config import load_config
from grpo.config.aliases import ALIASES
from grpo.config.load import known_options
from verifiers.errors import UserError

MINIMAL = """
model: embedded:quickstart
data: {path: train.jsonl, verifier: math}
"""


@pytest.fixture
def load(tmp_path):
    def _load(text=MINIMAL, *overrides):
        file = tmp_path / "run.yaml"
        file.write_text(textwrap.dedent(text))
        return load_config(str(file), overrides)

    return _load


def test_defaults_are_filled_in(load):
    config, notes = load()
    assert config.num_generations == 8
    assert config.data[0].label == "train"
    assert notes == []


@pytest.mark.parametrize(
    ("override", "read", "value"),
    [
        ("beta=0.04", lambda c: c.beta, 0.04),
        ("--beta=0.04", lambda c: c.beta, 0.04),
        ("learning_rate=1e-4", lambda c: c.learning_rate, 1e-4),
        ("rollout.dtype=float32", lambda c: c.rollout.dtype, "float32"),
        ("data.path=other.jsonl", lambda c: c.data[0].path, "other.jsonl"),
        ("data.columns.prompt=question", lambda c: c.data[0].columns.prompt, "question"),
        ("evaluation.k=[1,2]", lambda c: c.evaluation.k, (1, 2)),
        ("top_k=null", lambda c: c.top_k, None),
        ("dynamic_sampling=off", lambda c: c.dynamic_sampling, "off"),
        ("importance_sampling=off", lambda c: c.importance_sampling, "off"),
        ("rejection_sampling=off", lambda c: c.rejection_sampling, "off"),
        ("importance_max=.inf", lambda c: c.importance_max, math.inf),
        ("rewards.weights.format=0.5", lambda c: c.rewards.weights, {"format": 0.5}),
        ("eval_before_train=false", lambda c: c.eval_before_train, False),
    ],
)
def test_overrides_reach_their_option(load, override, read, value):
    config, _ = load(MINIMAL, override)
    assert read(config) == value


@pytest.mark.parametrize("sets", ["gsm8k", "[gsm8k, math500]"])
def test_an_override_reaches_into_a_set_that_is_a_bare_name(load, sets):
    config, _ = load(MINIMAL, f"evaluation.data={sets}", "evaluation.data.0.limit=3")
    assert (config.evaluation.data[0].recipe, config.evaluation.data[0].limit) == ("gsm8k", 3)


@pytest.mark.parametrize(
    ("override", "fragment"),
    [
        ("served.api=vllm", "served.api says nothing without served.base_url"),
        ("served.base_url=localhost:8000", "begins with http://"),
    ],
)
def test_a_served_model_needs_a_whole_address(load, override, fragment):
    with pytest.raises(UserError, match=fragment):
        load(MINIMAL, override)


def test_a_configuration_that_is_not_there_gives_the_nearest():
    with pytest.raises(UserError, match=r"Did you mean configs/eval/gsm8k\.yaml\?"):
        load_config("gsm8k")


def test_an_override_reaches_into_a_list_by_number(load):
    text = "model: m\ndata: [{path: a.jsonl}, {path: b.jsonl}]"
    config, _ = load(text, "data.1.limit=3")
    assert [data.limit for data in config.data] == [None, 3]


@pytest.mark.parametrize(
    ("text", "overrides", "fragments"),
    [
        (MINIMAL + "num_generation: 4", (), ["unknown option num_generation", "num_generations"]),
        (MINIMAL, ("rollout.dtyp=float32",), ["rollout.dtyp", "did you mean rollout.dtype?"]),
        (MINIMAL, ("beta",), ["'beta'", "key=value"]),
        (MINIMAL, ("steps=-1",), ["steps", "greater than or equal to 1", "-1"]),
        (MINIMAL, ("steps.more=1",), ["steps"]),
        (MINIMAL, ("evaluation.k=[8]",), ["k=8", "num_samples=4"]),
        ("data: {path: a.jsonl}", (), ["option model is missing"]),
        ("model: m\ndata: [{path: a}]", ("data.7.path=x",), ["'7'", "list of 1"]),
        ("- 1", (), ["mapping"]),
        ("a: [", (), ["not valid YAML"]),
        (MINIMAL, ("num_generations=1",), ["num_generations"]),
        (MINIMAL, ("sandbox.backend=subprocess",), ["hostile", "allow_unsafe_backend: true"]),
    ],
)
def test_a_wrong_configuration_names_the_key_and_the_cure(load, text, overrides, fragments):
    with pytest.raises(UserError) as caught:
        load(text, *overrides)
    for fragment in fragments:
        assert fragment in str(caught.value)


def test_a_missing_file_lists_where_it_was_looked_for(tmp_path):
    with pytest.raises(UserError, match="Looked for"):
        load_config(str(tmp_path / "absent.yaml"))


@pytest.mark.parametrize(
    ("text", "read", "value"),
    [
        ("max_steps: 7", lambda c: c.steps, 7),
        ("kl_coef: 0.1", lambda c: c.beta, 0.1),
        ("algorithm: {use_kl_in_reward: true}", lambda c: c.kl_placement, "reward"),
        ("reward_model: {overlong_buffer: {len: 64}}", lambda c: c.overlong_buffer, 64),
        (
            "rollout_correction: {rollout_is: token}",
            lambda c: c.importance_sampling,
            "token_truncate",
        ),
        ("rollout_correction: {rollout_is: null}", lambda c: c.importance_sampling, "off"),
        ("actor: {ppo_epochs: 2}", lambda c: c.num_iterations, 2),
        ("actor_rollout_ref: {rollout: {n: 16}}", lambda c: c.num_generations, 16),
        ("actor: {kl_loss_type: low_var_kl}", lambda c: c.kl_estimator, "k3"),
        ("algorithm: {norm_adv_by_std_in_grpo: false}", lambda c: c.scale_rewards, "none"),
        ("rollout: {n: 6}", lambda c: c.num_generations, 6),
        ("filter_overlong_prompts: true", lambda c: c.overlong_prompts, "drop"),
        ("loss_agg_mode: seq-mean-token-mean", lambda c: c.loss_reduction, "sequence_mean"),
    ],
)
def test_names_of_other_trainers_are_mapped_and_said(load, text, read, value):
    config, notes = load(MINIMAL + text)
    assert read(config) == value
    assert len(notes) == 1
    assert "is called" in notes[0]


def test_an_alias_beside_our_own_name_is_refused(load):
    with pytest.raises(UserError, match="kl_coef and beta are the same option"):
        load(MINIMAL + "beta: 0.1\nkl_coef: 0.2")


@pytest.mark.parametrize("file", ["beta: 0.1", "kl_coef: 0.1"])
@pytest.mark.parametrize(
    "override", ["beta=0.3", "kl_coef=0.3", "actor.kl_loss_coef=0.3", "actor={kl_loss_coef: 0.3}"]
)
def test_an_override_wins_by_whatever_name(load, file, override):
    config, _ = load(MINIMAL + file, override)
    assert config.beta == 0.3


def test_an_override_by_two_names_is_refused(load):
    with pytest.raises(UserError, match="kl_coef and beta are the same option"):
        load(MINIMAL, "beta=0.1", "kl_coef=0.2")


def test_two_aliases_of_one_option_are_refused(load):
    with pytest.raises(UserError, match=r"kl_loss_coef and kl_coef .* keep beta"):
        load(MINIMAL + "kl_coef: 0.1\nkl_loss_coef: 0.2")


def test_every_alias_leads_to_an_option_that_exists():
    known = set(known_options())
    assert {ours for ours, _ in ALIASES.values()} <= known


def test_no_alias_shadows_an_option_of_ours():
    top_level = {option for option in known_options() if "." not in option}
    assert not top_level & set(ALIASES)


def test_a_resolved_configuration_loads_as_itself(load, tmp_path):
    import yaml

    text = MINIMAL + "verifiers: {'rewards.py:close': {threshold: 0.5}}"
    config, _ = load(text, "beta=0.5", "verifiers.math={}", "importance_max=.inf")
    (tmp_path / "again.yaml").write_text(yaml.safe_dump(config.model_dump(mode="json")))
    again, notes = load_config(str(tmp_path / "again.yaml"))
    assert again == config
    assert notes == []
