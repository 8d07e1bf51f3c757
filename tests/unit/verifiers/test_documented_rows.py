"""The rows and options that docs/verifiers.md shows."""

from __future__ import annotations

import importlib
import inspect
import json
import re
from pathlib import Path

import pytest
import yaml

from verifiers.problem import Problem
from verifiers.registry import BUILT_IN, build_verifier

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "verifiers.md").read_text()
ROWS = [json.loads(text) for text in re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)]
SHARED_OPTIONS = {"extraction", "allow_truncated"}
OPTIONS = {
    name: options
    for text in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    for name, options in yaml.safe_load(text).get("verifiers", {}).items()
}
SECTIONS = re.findall(r"\n### `(\w+)`\n", PAGE)


def test_every_built_in_verifier_is_in_the_table():
    assert [name for name in BUILT_IN if f"\n| `{name}` |" not in PAGE] == []


def test_every_short_verifier_shows_a_row():
    shown = {row["verifier"] for row in ROWS}
    assert shown == set(SECTIONS)


@pytest.mark.parametrize("row", ROWS, ids=[row["verifier"] for row in ROWS])
def test_a_row_that_is_shown_can_be_judged(row):
    name = row["verifier"]
    if name == "reasoning_gym":
        pytest.importorskip("reasoning_gym", reason="the extra reasoning-gym is not installed")
    options = {"minimum": 1} if name == "length" else OPTIONS.get(name, {})
    verifier = build_verifier(name, options)
    columns = {key: value for key, value in row.items() if key not in ("prompt", "answer")}
    verifier.prepare(
        Problem(
            id="p",
            prompt=row["prompt"],
            verifier=name,
            reference=row["answer"],
            source="docs/verifiers.md",
            columns=columns,
        )
    )
    verifier.close()


@pytest.mark.parametrize("name", SECTIONS)
def test_every_option_is_in_its_verifiers_section(name):
    module, _, attribute = BUILT_IN[name].partition(":")
    verifier_class = getattr(importlib.import_module(module), attribute)
    section = PAGE.partition(f"\n### `{name}`\n")[2].partition("\n##")[0]
    options = inspect.signature(verifier_class).parameters.keys() - SHARED_OPTIONS
    assert [option for option in options if f"`{option}`" not in section] == []
