"""The way from test code to a program that runs elsewhere: requests out, answers in."""

from __future__ import annotations

import builtins
import json
import sys
from collections.abc import Callable, Collection, Iterator
from typing import Any, NoReturn

from sandbox.container import large_values, library_values, values
from sandbox.container.stubs import OF_CAPITAL, OF_CLASS, Large, Object, Stub, Unsupported

TEST_FILE = "tests.py"
# What test code reads of one iterator of the program, at most; it may have no end.
MAX_ITEMS = 100_000
_SEQUENCES = {"list": list, "tuple": tuple}


class Broken(BaseException):
    """The program's answer cannot be read. Not for test code to catch."""


class Link:
    """The way to the program.

    Args:
        ask: Sends a request and waits for the answer: its tag and its payload.
        in_place: Lines of the test code on which a call's value is not used.
        copy_back: Whether every call's arguments come back.
        classes: What the test uses as classes of the program.
    """

    def __init__(
        self,
        ask: Callable[[str], tuple[str, str]],
        *,
        in_place: Collection[int] = (),
        copy_back: bool = False,
        classes: Collection[str] = (),
    ) -> None:
        self._ask = ask
        self._classes = frozenset(classes)
        self._in_place = frozenset(in_place)
        self._copy_back = copy_back
        self._readers = {
            values.OPAQUE: self._read_object,
            values.ITERATOR: self._read_iterator,
            large_values.LARGE: self._read_large,
            library_values.ARRAY: lambda body: library_values.read_array(body, self._decode),
        }
        self.num_answers = 0
        self.raised: BaseException | None = None
        self.fatal: BaseException | None = None

    def call(self, target: str | int, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """Call the program's function of that name, or the object of that number."""
        caller = sys._getframe(2)  # noqa: SLF001 (the line is what tells a statement)
        bare = caller.f_lineno in self._in_place and caller.f_code.co_filename == TEST_FILE
        back = bool(arguments) and (self._copy_back or bare)
        answer = self.request("call", target, arguments, keywords, back=back)
        for original, changed in zip(arguments, answer["arguments"] or (), strict=False):
            _copy_back(original, self._decode(changed))
        value = self._decode(answer["value"])
        if type(value) is Object and isinstance(target, str):
            made_by = OF_CLASS * (target in self._classes) | OF_CAPITAL * target[:1].isupper()
            object.__setattr__(value, "_made_by", made_by)
        return value

    def ask_object(self, verb: str, number: str | int, *arguments: Any) -> Any:
        """Ask something else of an object: an attribute, an item, its length, its text."""
        return self._decode(self.request(verb, number, arguments, {})["value"])

    def request(
        self,
        verb: str,
        target: str | int,
        arguments: tuple[Any, ...],
        keywords: dict[str, Any],
        *,
        back: bool = False,
    ) -> dict[str, Any]:
        """Make one request; raises what the program raised."""
        request = {
            "do": verb,
            "target": target,
            "args": [values.encode(one, keeper=self) for one in arguments],
            "kwargs": {key: values.encode(one, keeper=self) for key, one in keywords.items()},
            "back": back,
        }
        tag, payload = self._ask(json.dumps(request, separators=(",", ":")))
        self.num_answers += 1
        try:
            answer = json.loads(payload)
            if tag == "V":
                return {"value": answer["value"], "arguments": answer["arguments"]}
            error = self.read_exception(answer)
        except (ValueError, TypeError, KeyError, RecursionError) as unreadable:
            self.end(Broken(f"unreadable answer: {unreadable!r}"[:200]))
        self.raised = error
        raise error

    def read_exception(self, answer: dict[str, Any]) -> BaseException:
        """An exception of the class that test code expects: the built-in one, or one of its name.

        Its `__init__` is not called: it may want arguments that are not known.
        """
        base = getattr(builtins, str(answer["base"]), Exception)
        if not (isinstance(base, type) and issubclass(base, BaseException)):
            raise TypeError("not an exception class")
        if issubclass(base, BaseExceptionGroup):
            base = Exception
        kind = base
        if answer["kind"] != base.__name__:
            kind = type(str(answer["kind"]), (base,), {})
        return kind.__new__(kind, *self._decode(answer["arguments"]))

    def end(self, error: BaseException) -> NoReturn:
        """End the test for good, whatever its code catches."""
        self.fatal = self.fatal or error
        raise self.fatal

    def keep(self, value: Any) -> Any:
        """See `values.Keeper`: what test code passes must be a value, or come from the program."""
        if type(value) not in (Object, Large, Stub):
            self.end(Unsupported(f"the test passes a {type(value).__name__} to the program"))
        return value._name if type(value) is Stub else value._number  # noqa: SLF001

    def iterator(self, value: Iterator[Any], depth: int) -> list[Any]:
        """See `values.Keeper`."""
        items = library_values.first_items(value)
        if items is None:
            self.end(Unsupported("the test passes an iterator that is too long to the program"))
        return [[values.encode(one, depth, self) for one in items], None, None]

    def _decode(self, payload: Any) -> Any:
        try:
            return values.decode(payload, self._readers)
        except (ValueError, RecursionError) as error:
            self.end(Broken(f"unreadable value: {error}"[:200]))

    def _read_object(self, body: Any) -> Object:
        kind, truth, number = (*body, None)[:3]
        if number is not None and type(number) is not int:
            raise ValueError("not the number of an object")
        return Object(self, str(kind), truth is not False, number)

    def _read_large(self, body: Any) -> Large:
        kind, found, number = body
        return Large(self, _SEQUENCES[kind], str(found), int(number))

    def _read_iterator(self, body: Any) -> Iterator[Any]:
        return _iterate(self, body)


def _iterate(link: Link, body: Any) -> Iterator[Any]:
    num_items = 0
    while True:
        items, rest, error = body
        num_items += len(items)
        if num_items > MAX_ITEMS:
            link.end(Broken(f"an iterator with more than {MAX_ITEMS} items"))
        yield from [link._decode(one) for one in items]  # noqa: SLF001
        if error is not None:
            link.raised = link.read_exception(json.loads(error))
            raise link.raised
        if rest is None:
            return
        body = link.request("more", rest, (), {})["value"]


def _copy_back(original: Any, changed: Any) -> None:
    """Change an argument as the program has changed its copy, item by item where that is enough."""
    if type(original) is not type(changed):
        return
    match original:
        case list() if len(original) == len(changed):
            for index, item in enumerate(original):
                original[index] = _changed_item(item, changed[index])
        case dict() if list(original) == list(changed):
            for key, item in original.items():
                original[key] = _changed_item(item, changed[key])
        case list() | bytearray():
            original[:] = changed
        case dict() | set():
            original.clear()
            original.update(changed)
        case _ if type(original).__name__ == library_values.ARRAY:
            original[...] = changed  # an array cannot change its shape in place
        case _ if hasattr(original, "extend"):  # a deque
            original.clear()
            original.extend(changed)


def _changed_item(old: Any, new: Any) -> Any:
    """The item itself where it can be changed, so that other names for it see the change too."""
    if type(old) is type(new) and isinstance(old, (list, dict, set)):
        _copy_back(old, new)
        return old
    return new
