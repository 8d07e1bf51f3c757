"""Names and options of verifiers."""

from __future__ import annotations

import pytest

from verifiers.errors import UserError
from verifiers.registry import BUILT_IN, build_verifier, find_placement


def test_every_built_in_name_is_its_verifiers_name():
    for name in BUILT_IN:
        verifier = build_verifier(name, {})
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
        ("math", {"unique_box": "yes"}, "takes a bool"),
        ("math", {"rel_tol": True}, "takes a float"),
        ("numeric", {"rel_tol": -1.0}, "negative"),
        ("choice", {"num_choices": 1}, "num_choices"),
        ("exact", {"strickt": True}, "did you mean 'strict'"),
    ],
)
def test_a_wrong_name_or_option_says_what_to_do(spec, options, message):
    with pytest.raises(UserError, match=message):
        build_verifier(spec, options)
