"""The bridge to Reasoning Gym, on a small module in its shape."""

from __future__ import annotations

import importlib
import sys

import pytest

from verifiers import reasoning_gym
from verifiers.formula_text import is_formula

PACKAGE = """
from reasoning_gym_algebra import score as algebra
from reasoning_gym_words import score as words

def get_score_answer_fn(name):
    return {"algebra": algebra, "words": words}[name]
"""
ALGEBRA = "def score(answer, entry):\n    return float(eval(answer) == entry['answer'])\n"
WORDS = "def score(answer, entry):\n    return float(answer == entry['answer'])\n"


@pytest.fixture(autouse=True)
def package(monkeypatch, tmp_path):
    for name, source in (
        ("reasoning_gym", PACKAGE),
        ("reasoning_gym_algebra", ALGEBRA),
        ("reasoning_gym_words", WORDS),
    ):
        (tmp_path / f"{name}.py").write_text(source)
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    reasoning_gym._find_scorer.cache_clear()
    reasoning_gym._evaluates_answers.cache_clear()
    yield
    for name in ("reasoning_gym", "reasoning_gym_algebra", "reasoning_gym_words"):
        sys.modules.pop(name, None)
    reasoning_gym._find_scorer.cache_clear()
    reasoning_gym._evaluates_answers.cache_clear()


def test_a_data_set_that_evaluates_gets_formulas_only(tmp_path):
    attack = f"open('{tmp_path}/owned', 'w')"
    assert reasoning_gym.score("algebra", "2*3", {"answer": 6}) == 1.0
    assert reasoning_gym.score("algebra", attack, {"answer": 6}) is None
    assert not (tmp_path / "owned").exists()


def test_a_data_set_that_compares_gets_any_text():
    assert reasoning_gym.score("words", "it's __me__", {"answer": "it's __me__"}) == 1.0


@pytest.mark.parametrize(
    "text",
    ["__import__('os')", "x.real", "exit()", "open(0)", "'a'", "lambda: 1", "print(1)", "a;b", "é"],
)
def test_more_than_a_formula_is_seen(text):
    assert not is_formula(text)


@pytest.mark.parametrize("text", ["", "3", "2*x**2 - 4.5/y1", "sqrt(2) + pi", "(x = 3) or (x < 2)"])
def test_formulas_pass(text):
    assert is_formula(text)
