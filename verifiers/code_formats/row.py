"""A row in a published shape: its fields, with errors that name them, and what is read from it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from verifiers.errors import UserError


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeRow:
    """What a row says, in our terms.

    Attributes:
        prompt: The task as a model is to see it: text, or chat messages.
        reference: The tests, as the `code` verifier reads them (docs/sandbox.md).
        id: The row's own identity; None where it has none.
        solution: A whole program that is known to be right; None where the row has none.
    """

    prompt: str | Sequence[Mapping[str, str]]
    reference: Mapping[str, Any]
    id: str | None = None
    solution: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeFormat:
    """A published shape.

    Attributes:
        name: How a configuration and the command line call it.
        columns: A row that has all of these is taken for one of this shape.
        bulky: Columns that the tests and the solution are read from: nobody needs them again.
        read: Reads a row.
    """

    name: str
    columns: tuple[str, ...]
    bulky: tuple[str, ...]
    read: Callable[[Fields], CodeRow]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fields:
    """The fields of one row.

    Attributes:
        row: The row.
        place: Where it stands, as `file:line`.
        format: Name of its format.
        time_limit_factor: Multiplies the time limit that the row states.
        path: Where in the row this object stands; empty for the row itself.
    """

    row: Mapping[str, Any]
    place: str
    format: str
    time_limit_factor: float = 1.0
    path: tuple[str, ...] = ()

    def error(self, name: str, problem: str) -> UserError:
        """What to raise because of a field."""
        return UserError(
            f"{self.place}: field {'.'.join((*self.path, name))!r} {problem}. Correct the row, or "
            f"name the format that it has (it was read as `format: {self.format}`; "
            "docs/code_data.md shows them)."
        )

    def value(self, name: str) -> Any:
        """A field that must be there.

        Raises:
            UserError: It is missing or null.
        """
        if self.row.get(name) is None:
            raise self.error(name, f"is missing; the fields are {', '.join(self.row) or 'none'}")
        return self.row[name]

    def text(self, name: str) -> str:
        """A field that must be a text.

        Raises:
            UserError: It is not.
        """
        value = self.value(name)
        if not isinstance(value, str):
            raise self.error(name, f"must be a text, not {describe(value)}")
        return value

    def optional_text(self, name: str) -> str | None:
        """As `text`, or None where there is none or it is empty."""
        return self.text(name) if self.row.get(name) else None

    def parsed(self, name: str) -> Any:
        """A field that is JSON, or was JSON before the file's reader parsed it.

        Raises:
            UserError: It is missing, or a text that is no JSON.
        """
        value = self.value(name)
        return self.parse(name, value) if isinstance(value, str) else value

    def parse(self, name: str, text: str) -> Any:
        """JSON in a field.

        Raises:
            UserError: It is none.
        """
        try:
            return json.loads(text)
        except (ValueError, RecursionError) as error:
            raise self.error(name, f"is not JSON ({error}): {text[:60]!r}") from error

    def object(self, name: str) -> Fields:
        """A field that must be an object, or the JSON of one; its own fields.

        Raises:
            UserError: It is not.
        """
        return self.inside(name, self.parsed(name))

    def inside(self, name: str, value: Any) -> Fields:
        """The fields of an object that stands in the field `name`.

        Raises:
            UserError: It is no object.
        """
        if not isinstance(value, Mapping):
            raise self.error(name, f"must be an object, not {describe(value)}")
        return Fields(
            row=value,
            place=self.place,
            format=self.format,
            time_limit_factor=self.time_limit_factor,
            path=(*self.path, name),
        )

    def list(self, name: str) -> Sequence[Any]:
        """A field that must be a list, or the JSON of one.

        Raises:
            UserError: It is not.
        """
        value = self.parsed(name)
        if not isinstance(value, (list, tuple)):
            raise self.error(name, f"must be a list, not {describe(value)}")
        return value

    def texts(self, name: str) -> Sequence[str]:
        """A field that must be a list of texts, or the JSON of one.

        Raises:
            UserError: It is not.
        """
        values = self.list(name)
        for index, value in enumerate(values):
            if not isinstance(value, str):
                raise self.error(f"{name}[{index}]", f"must be a text, not {describe(value)}")
        return values

    def pairs(self, first: str, second: str) -> list[tuple[Any, Any]]:
        """Two lists of the same length, item by item.

        Raises:
            UserError: One is no list, or they differ in length.
        """
        ours, theirs = self.list(first), self.list(second)
        if len(ours) != len(theirs):
            raise self.error(second, f"has {len(theirs)} items, but {first!r} has {len(ours)}")
        return list(zip(ours, theirs, strict=True))

    def identity(self, *names: str) -> str | None:
        """The first of these fields that is there, as a text."""
        return next((str(self.row[name]) for name in names if self.row.get(name) is not None), None)


def describe(value: Any) -> str:
    """A value of a wrong kind, for a message."""
    return f"{type(value).__name__} ({value!r:.60})"
