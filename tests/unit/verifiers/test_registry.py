"""Names and options of verifiers."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from verifiers.errors import UserError
from verifiers.registry import BUILT_IN, build_verifier, find_placement

NEEDED_OPTIONS = {"length": {"minimum": 1}, "composite": {"parts": [{"verifier": "exact"}]}}


@pytest.mark.parametrize("name", BUILT_IN)
def test_every_built_in_name_is_its_verifiers_name(name):
    if name == "reasoning_gym":
        pytest.importorskip("reasoning_gym", reason="the extra reasoning-gym is not installed")
    verifier = build_verifier(name, NEEDED_OPTIONS.get(name, {}))
    assert verifier.name == name
    assert verifier.placement == find_placement(name)
    verifier.close()


@pytest.mark.parametrize(
    ("spec", "options", "message"),
    [
        ("mth", {}, "did you mean math"),
        ("maths_of_mine", {}, "Built in are"),
        ("math", {"extracton": "boxed"}, "did you mean 'extraction'"),
        ("math", {"extraction": "bold"}, "no extraction policy 'bold'"),
        ("math", {"unique_box": "yes"}, "takes (a )?bool"),
        ("math", {"rel_tol": True}, "takes (a )?float"),
        ("numeric", {"rel_tol": -1.0}, "negative"),
        ("choice", {"num_choices": 1}, "num_choices"),
        ("exact", {"strickt": True}, "did you mean 'strict'"),
        ("regex", {"pattern": "(a"}, "'pattern'.*unterminated"),
        ("json_schema", {"schema": {"type": "texts"}}, "texts"),
        ("format", {"answer": "boxed"}, "choose from tag, box, text"),
        ("format", {"think": False, "think_in_prompt": True}, "think_in_prompt"),
        ("length", {}, "'minimum', 'maximum' or both"),
        ("length", {"minimum": "5"}, "'minimum' .* is '5'; it takes int"),
        ("length", {"maximum": True}, "takes int or null"),
        ("exact", {"strict": 1}, "takes (a )?bool"),
        ("regex", {"cpu_limit_s": "2"}, "takes (a )?float"),
        ("regex", {"cpu_limit_s": 0.0}, "cpu_limit_s of a verifier is 0.0; it must be above 0"),
        ("math", {"wall_limit_s": -1.0}, "wall_limit_s .* above 0"),
        ("math", {"memory_mb": 0}, "memory_mb .* above 0"),
        ("length", {"minimum": 5, "maximum": 4}, "maximum not below"),
        ("length", {"maximum": 5, "unit": "lines"}, "choose from words"),
        ("length", {"maximum": 5, "unit": "tokens"}, "give both or neither"),
        ("length", {"maximum": 5, "unit": "tokens", "tokenizer": "/no/such"}, "there is no file"),
        ("composite", {}, "needs 'parts'"),
        ("composite", {"parts": [{"verifier": "mth"}]}, "did you mean math"),
        ("composite", {"parts": [{"verifier": "math", "wieght": 1}]}, "'wieght'"),
        ("composite", {"parts": [{"verifier": "math", "weight": 0}]}, "not above 0"),
        ("composite", {"parts": [{"verifier": "code"}]}, "owns containers"),
        ("composite", {"parts": [{"verifier": "math"}, {"verifier": "math"}]}, "one name"),
        ("composite", {"parts": [{"verifier": "math"}], "main": "exact"}, "its parts are math"),
        ("composite", {"parts": [{"verifier": "math"}], "mode": "sum"}, "weighted_sum"),
        (
            "composite",
            {"parts": [{"verifier": "math", "weight": 2}], "mode": "product"},
            "no effect",
        ),
    ],
)
def test_a_wrong_name_or_option_says_what_to_do(spec, options, message):
    with pytest.raises(UserError, match=message):
        build_verifier(spec, options)


def install(monkeypatch, folder, **entry_points):
    """A package in `folder` whose entry points these are."""
    (folder / "house_checks.py").write_text(
        "from verifiers.protocol import Verifier\n"
        "class Ours(Verifier):\n"
        "    name, version = 'ours', 1\n"
        "    def __init__(self, *, level=1): self.level = level\n"
        "    def prepare(self, problem): ...\n"
        "    def verify(self, submission): ...\n"
        "def check(completion, answer): return completion == answer\n"
        "class Nothing: ...\n"
    )
    info = folder / "house_checks-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: house-checks\nVersion: 1.0\n")
    lines = [f"{name} = {value}" for name, value in entry_points.items()]
    (info / "entry_points.txt").write_text("\n".join(["[verigrad.verifiers]", *lines]))
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, "house_checks", raising=False)


def test_an_installed_package_brings_a_class(monkeypatch, tmp_path):
    install(monkeypatch, tmp_path, ours="house_checks:Ours")
    build_verifier("exact", {})
    assert "house_checks" not in sys.modules

    verifier: Any = build_verifier("ours", {"level": 3})

    assert (verifier.name, verifier.level, find_placement("ours")) == ("ours", 3, "worker")
    with pytest.raises(UserError, match="did you mean 'level'"):
        build_verifier("ours", {"levle": 3})
    with pytest.raises(UserError, match="installed packages add ours"):
        build_verifier("nobodys", {})


def test_an_installed_package_brings_a_function(monkeypatch, tmp_path):
    install(monkeypatch, tmp_path, same="house_checks:check")
    verifier = build_verifier("same", {"threshold": 0.5})
    assert verifier.name == "house_checks:check"
    assert find_placement("same") == "worker"
    verifier.close()


def test_a_name_that_is_built_in_is_refused_with_both_origins(monkeypatch, tmp_path):
    install(monkeypatch, tmp_path, math="house_checks:Ours")
    with pytest.raises(UserError, match=r"house_checks:Ours.*house-checks.*MathVerifier"):
        build_verifier("math", {})


@pytest.mark.parametrize(
    ("value", "message"),
    [("house_checks:Nothing", "is no verifier"), ("house_checks:missing", "importing")],
)
def test_an_entry_point_that_is_no_verifier_says_whose_it_is(monkeypatch, tmp_path, value, message):
    install(monkeypatch, tmp_path, odd=value)
    with pytest.raises(UserError, match=message) as caught:
        build_verifier("odd", {})
    assert "house-checks" in str(caught.value)
