"""From a verifier's name and options to the verifier."""

from __future__ import annotations

import difflib
import importlib
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from verifiers.errors import UserError
from verifiers.plugin import FunctionVerifier
from verifiers.protocol import Placement, Verifier

# Imported only when named: `code` needs Docker's client, the others need nothing heavy.
BUILT_IN: Mapping[str, str] = {
    "choice": "verifiers.choice:ChoiceVerifier",
    "code": "verifiers.code:CodeVerifier",
    "exact": "verifiers.exact:ExactVerifier",
    "math": "verifiers.maths.verifier:MathVerifier",
    "numeric": "verifiers.numeric:NumericVerifier",
}


def build_verifier(spec: str, options: Mapping[str, Any]) -> Verifier:
    """Build a verifier.

    Args:
        spec: A built-in name, `path/to/file.py:function` or `package.module:function`.
        options: Keyword arguments of that verifier.

    Raises:
        UserError: No such verifier, or no such option.
    """
    if ":" in spec:
        _check_options(spec, FunctionVerifier, {"spec": spec, **options})
        return FunctionVerifier(spec, **options)
    verifier_class = _find_class(spec)
    _check_options(spec, verifier_class, options)
    return verifier_class(**options)


def find_placement(spec: str) -> Placement:
    """Where a verifier runs, found without building it.

    Raises:
        UserError: No such verifier.
    """
    return FunctionVerifier.placement if ":" in spec else _find_class(spec).placement


def _find_class(name: str) -> Any:
    if name not in BUILT_IN:
        nearest = difflib.get_close_matches(name, BUILT_IN, n=2)
        hint = f"; did you mean {' or '.join(nearest)}?" if nearest else ""
        raise UserError(
            f"there is no verifier {name!r}{hint} Built in are {', '.join(BUILT_IN)}; your own "
            "function is named "
            "as `path/to/file.py:function` or `package.module:function`"
        )
    module, _, attribute = BUILT_IN[name].partition(":")
    return getattr(importlib.import_module(module), attribute)


def _check_options(spec: str, build: Callable[..., Any], options: Mapping[str, Any]) -> None:
    known = inspect.signature(getattr(build, "OPTIONS", build)).parameters
    for option in options:
        if option not in known:
            nearest = difflib.get_close_matches(option, known, n=1)
            hint = f"; did you mean {nearest[0]!r}?" if nearest else ""
            names = ", ".join(name for name in known if name != "spec")
            raise UserError(
                f"verifier {spec!r} has no option {option!r}{hint} Its options are {names}"
            )
