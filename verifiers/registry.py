"""From a verifier's name and options to the verifier."""

from __future__ import annotations

import difflib
import importlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from types import NoneType
from typing import Any, get_args

from verifiers.errors import UserError
from verifiers.plugin import FunctionVerifier
from verifiers.protocol import Placement, Scope, Verifier

# Imported only when named: `code` needs Docker's client, the others need nothing heavy.
BUILT_IN: Mapping[str, str] = {
    "choice": "verifiers.choice:ChoiceVerifier",
    "code": "verifiers.code:CodeVerifier",
    "composite": "verifiers.composite:CompositeVerifier",
    "countdown": "verifiers.countdown:CountdownVerifier",
    "exact": "verifiers.exact:ExactVerifier",
    "format": "verifiers.format:FormatVerifier",
    "ifeval": "verifiers.ifeval:IfevalVerifier",
    "json_schema": "verifiers.json_schema:JsonSchemaVerifier",
    "length": "verifiers.length:LengthVerifier",
    "math": "verifiers.maths.verifier:MathVerifier",
    "numeric": "verifiers.numeric:NumericVerifier",
    "reasoning_gym": "verifiers.reasoning_gym:ReasoningGymVerifier",
    "regex": "verifiers.regex:RegexVerifier",
}
ENTRY_POINT_GROUP = "verigrad.verifiers"
# Other annotations (choices, lists) are for the verifier itself to check.
PLAIN_KINDS = frozenset({bool, int, float, str, NoneType})
VERIFIER_ATTRIBUTES = (
    *("version", "placement", "scope", "label", "prepare", "verify"),
    *("verify_batch", "averify", "examples", "close"),
)


def build_verifier(spec: str, options: Mapping[str, Any]) -> Verifier:
    """Build a verifier.

    Args:
        spec: A built-in name, a name that an installed package gives in its entry points of the
            group `verigrad.verifiers`, `path/to/file.py:function` or `package.module:function`.
        options: Keyword arguments of that verifier.

    Raises:
        UserError: No such verifier, no such option, or a value of the wrong kind.
    """
    found = _find(spec)
    if isinstance(found, str):
        _check_options(spec, FunctionVerifier, {"spec": found, **options})
        return FunctionVerifier(found, **options)
    _check_options(spec, found, options)
    return found(**options)


def find_placement(spec: str) -> Placement:
    """Where a verifier runs, found without building it.

    Raises:
        UserError: No such verifier.
    """
    found = _find(spec)
    return FunctionVerifier.placement if isinstance(found, str) else found.placement


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifierPlan:
    """What a fleet must know of a verifier before it is built where it judges.

    Attributes:
        scope: Whether it judges submissions or whole groups.
        concurrency: What it judges at the same time in one worker.
    """

    scope: Scope
    concurrency: int


def plan_verifier(spec: str, options: Mapping[str, Any]) -> VerifierPlan:
    """How a verifier with these options wants to be called.

    Raises:
        UserError: As `build_verifier`.
    """
    verifier = build_verifier(spec, options)
    verifier.close()
    return VerifierPlan(scope=verifier.scope, concurrency=find_concurrency(verifier))


def find_concurrency(verifier: Verifier) -> int:
    """How many submissions a verifier judges at the same time; 1 where it does not say."""
    return getattr(verifier, "concurrency", 1)


def _find(spec: str) -> Any:
    """The class of a verifier, or where its function is, as `module:function`."""
    if ":" in spec:
        return spec
    installed = _find_installed()
    if spec in installed:
        return _load_installed(installed[spec])
    if spec in BUILT_IN:
        module, _, attribute = BUILT_IN[spec].partition(":")
        return getattr(importlib.import_module(module), attribute)
    known = [*BUILT_IN, *installed]
    nearest = difflib.get_close_matches(spec, known, n=2)
    hint = f"; did you mean {' or '.join(nearest)}?" if nearest else ""
    also = f"; installed packages add {', '.join(installed)}" if installed else ""
    raise UserError(
        f"there is no verifier {spec!r}{hint} Built in are {', '.join(BUILT_IN)}{also}; your own "
        "function is named as `path/to/file.py:function` or `package.module:function`"
    )


def _find_installed() -> dict[str, EntryPoint]:
    """Entry points of installed packages by name; nothing of theirs is imported.

    Raises:
        UserError: Two verifiers have one name.
    """
    installed: dict[str, EntryPoint] = {}
    for point in entry_points(group=ENTRY_POINT_GROUP):
        other = BUILT_IN.get(point.name)
        if point.name in installed and installed[point.name].value != point.value:
            other = _describe(installed[point.name])
        if other is not None:
            raise UserError(
                f"two verifiers have the name {point.name!r}: {_describe(point)} and {other}; "
                "uninstall the package, or have it give its verifier another name"
            )
        installed[point.name] = point
    return installed


def _load_installed(point: EntryPoint) -> Any:
    try:
        loaded = point.load()
    except Exception as error:
        raise UserError(
            f"importing the verifier {_describe(point)} failed: {type(error).__name__}: {error}"
        ) from error
    if inspect.isroutine(loaded):
        return f"{point.module}:{point.attr}"
    missing = [name for name in VERIFIER_ATTRIBUTES if not hasattr(loaded, name)]
    if missing or not isinstance(loaded, type):
        raise UserError(
            f"{_describe(point)} is no verifier: it is neither a function nor a class with "
            f"{', '.join(VERIFIER_ATTRIBUTES)} (derive it from verifiers.protocol.Verifier, which "
            "has what most verifiers need of them)"
        )
    return loaded


def _describe(point: EntryPoint) -> str:
    package = f" of the package {point.dist.name}" if point.dist else ""
    return f"{point.value}{package}"


def _check_options(spec: str, build: Callable[..., Any], options: Mapping[str, Any]) -> None:
    known = _read_parameters(getattr(build, "OPTIONS", build))
    for option, value in options.items():
        if option not in known:
            nearest = difflib.get_close_matches(option, known, n=1)
            hint = f"; did you mean {nearest[0]!r}?" if nearest else ""
            names = ", ".join(name for name in known if name != "spec")
            raise UserError(
                f"verifier {spec!r} has no option {option!r}{hint} Its options are {names}"
            )
        kinds = get_args(known[option].annotation) or (known[option].annotation,)
        if PLAIN_KINDS.issuperset(kinds) and not _is_of(value, kinds):
            wanted = " or ".join("null" if kind is NoneType else kind.__name__ for kind in kinds)
            raise UserError(
                f"option {option!r} of the verifier {spec!r} is {value!r}; it takes {wanted}"
            )


def _read_parameters(build: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(build, eval_str=True).parameters
    except NameError:  # a package's annotations that only its type checker sees
        return inspect.signature(build).parameters


def _is_of(value: object, kinds: tuple[type, ...]) -> bool:
    if isinstance(value, bool):
        return bool in kinds
    return isinstance(value, kinds) or (isinstance(value, int) and float in kinds)
