"""What the adapters of all hosts share: texts in and out, and a host's function called by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from verifiers.errors import UserError

# How trainers call the column of the reference answer; here it is mapped by the data set.
GOLD_NAMES = frozenset({"answer", "reference", "solution", "ground_truth", "target"})


def read_completion(completion: Any) -> str:
    """The text of a completion: a string, or the last assistant turn of a list of messages.

    Raises:
        UserError: It is neither.
    """
    if isinstance(completion, str):
        return completion
    if isinstance(completion, Sequence):
        for message in reversed(completion):
            if isinstance(message, Mapping) and message.get("role") == "assistant":
                return _read_content(message.get("content"))
        return ""
    raise UserError(
        f"a completion is a {type(completion).__name__}; it must be text or a list of chat messages"
    )


def _read_content(content: Any) -> str:
    if content is None:  # a turn with nothing but tool calls
        return ""
    if isinstance(content, str):
        return content
    return "".join(part.get("text", "") for part in content if part.get("type") == "text")


def read_prompt(prompt: Any) -> str | tuple[Mapping[str, str], ...]:
    """A prompt as a problem holds it."""
    if isinstance(prompt, str):
        return prompt
    return tuple(
        {"role": message["role"], "content": _read_content(message["content"])}
        for message in prompt or ()
    )


def write_messages(prompt: Any) -> Any:
    """A problem's prompt as other trainers have it: text, or a list of messages."""
    return prompt if isinstance(prompt, str) else [dict(message) for message in prompt]


def write_completion(completion: str, prompt: Any) -> Any:
    """A completion as other trainers have it: of the same form as its prompt."""
    return completion if isinstance(prompt, str) else [{"role": "assistant", "content": completion}]


class ForeignSignature:
    """Which columns a host's function wants beside what its host always gives.

    Args:
        function: The host's function.
        supplied: Names that the adapter fills.
        unknown: Names that only the host itself could fill, with the reason.
        spec: For messages.

    Raises:
        UserError: The function cannot do without a value that only its own trainer has.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        supplied: frozenset[str],
        unknown: Mapping[str, str],
        spec: str,
    ) -> None:
        self._names: dict[str, bool] = {}
        self.takes_rest = False
        for name, parameter in inspect.signature(function).parameters.items():
            if parameter.kind is parameter.VAR_KEYWORD:
                self.takes_rest = True
            if parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
                continue
            required = parameter.default is parameter.empty
            if name in unknown:
                if required:
                    raise UserError(
                        f"verifier {spec} needs {name!r}, and {unknown[name]}; give it a default"
                    )
                continue
            self._names[name] = required
        self._supplied = supplied

    def keep(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Those of the values that the function takes."""
        return {
            name: value for name, value in values.items() if self.takes_rest or name in self._names
        }

    def declare(
        self, ours: Sequence[str], *, optional: Sequence[str] = (), takes_rest: bool = False
    ) -> inspect.Signature:
        """The signature of the plain function that stands for the host's.

        Args:
            ours: Values of a submission that the adapter uses.
            optional: Columns that the adapter uses where a row has them.
            takes_rest: Whether the adapter uses all columns even where the function does not.
        """
        columns = {
            name: required and name not in GOLD_NAMES
            for name, required in self._names.items()
            if name not in self._supplied and name not in ours
        }
        columns |= dict.fromkeys(optional, False)
        parameter, by_name = inspect.Parameter, inspect.Parameter.KEYWORD_ONLY
        parameters = [parameter(name, by_name) for name in ours]
        parameters += [
            parameter(name, by_name, default=parameter.empty if required else None)
            for name, required in columns.items()
        ]
        if takes_rest or self.takes_rest:
            parameters.append(parameter("columns", parameter.VAR_KEYWORD))
        return inspect.Signature(parameters)

    def name_golds(self, answer: Any, columns: Mapping[str, Any]) -> dict[str, Any]:
        """The reference under each of its names; a row's own column of such a name counts first."""
        return self.keep({name: columns.get(name, answer) for name in GOLD_NAMES})
