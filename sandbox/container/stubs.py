"""Stand-ins, for test code, of a program that runs elsewhere.

A stand-in never compares itself, and hands on no operand of a comparison: only what the test calls
the program with leaves this process.
"""

from __future__ import annotations

import builtins
import json
import sys
from collections.abc import Callable, Collection, Iterator
from typing import Any, NoReturn

from sandbox.container import large_values, library_values, values

TEST_FILE = "tests.py"
# What test code reads of one iterator of the program, at most; it may have no end.
MAX_ITEMS = 100_000
# What is known of who made an object.
OF_CLASS, OF_CAPITAL = 1, 2


class Unsupported(BaseException):
    """The test needs more of the program than values. Not for test code to catch."""


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


class Stub:
    """A function, or class, of the program."""

    __slots__ = ("__name__", "_link", "_name")

    def __init__(self, link: Link, name: str) -> None:
        self._link = link
        self._name = self.__name__ = name

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        """Call it."""
        return self._link.call(self._name, arguments, keywords)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._link.ask_object("attribute", self._name, name)

    def __instancecheck__(self, instance: Any) -> bool:
        self._link.end(Unsupported(f"the test looks for instances of {self._name}"))

    def __subclasscheck__(self, subclass: Any) -> bool:
        self._link.end(Unsupported(f"the test looks for subclasses of {self._name}"))

    def __mro_entries__(self, bases: Any) -> tuple[type, ...]:
        self._link.end(Unsupported(f"the test derives from {self._name}"))

    def __repr__(self) -> str:
        return f"<{self._name} of the program>"


class Object:
    """An object of the program that is no value: equal to nothing, and without order.

    Where the test uses the program's function as a class, and so has made the object, comparing or
    computing with it ends the test: what the class would have answered cannot be asked without
    telling the program what is expected. Elsewhere an object is no more than a wrong value.
    """

    __slots__ = ("_kind", "_link", "_made_by", "_number", "_truth")

    def __init__(self, link: Link, kind: str, truth: bool, number: int | None) -> None:
        self._link: Link
        self._kind: str
        self._made_by: int
        parts = {"kind": kind, "link": link, "made_by": 0, "number": number, "truth": truth}
        for name, value in parts.items():
            object.__setattr__(self, f"_{name}", value)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._ask("attribute", name)

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        """Call it."""
        return self._link.call(self._known(), arguments, keywords)

    def __getitem__(self, key: Any) -> Any:
        return self._ask("item", key)

    def __len__(self) -> int:
        return self._ask("length")

    def __iter__(self) -> Iterator[Any]:
        return self._ask("iterate")

    def __str__(self) -> str:
        return self._ask("text")

    def __repr__(self) -> str:
        return self._ask("repr")

    def __bool__(self) -> bool:
        return self._truth

    def __hash__(self) -> int:
        return id(self)

    def __eq__(self, other: object) -> bool:
        if self._is_instance(other) and other is not None:
            self._unsupported("==")
        return False

    def _is_instance(self, other: object = None) -> bool:
        """Whether the object was made of a class, for all that can be known here.

        A name with a capital tells a class only where two such objects meet: no function that a
        test compares to values can leave the test so.
        """
        both = type(other) is Object
        made = self._made_by | (other._made_by if both else 0)  # noqa: SLF001
        return bool(made & OF_CLASS) or (both and bool(made & OF_CAPITAL))

    def _known(self) -> int:
        if self._number is None:
            raise TypeError(f"a {self._kind} that cannot cross")
        return self._number

    def _ask(self, verb: str, *arguments: Any) -> Any:
        return self._link.ask_object(verb, self._known(), *arguments)

    def _unsupported(self, operation: str) -> NoReturn:
        self._link.end(Unsupported(f"the test uses {operation} on a {self._kind} of the program"))


def _operation(name: str) -> Callable[..., Any]:
    def operate(self: Object, *operands: Any) -> Any:
        if self._is_instance(*operands[:1]):
            self._unsupported(name)
        return NotImplemented

    return operate


def _refusal(name: str) -> Callable[..., Any]:
    def refuse(self: Object, *_operands: Any) -> Any:
        if self._is_instance():
            self._unsupported(name)
        raise TypeError(f"a {self._kind} of the program has no {name}")

    return refuse


_OPERATORS = (
    "add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor",
    "lshift", "rshift",
)  # fmt: skip
_ORDER = ("lt", "le", "gt", "ge")
_OTHERS = (
    "abs", "neg", "pos", "invert", "int", "float", "index", "contains", "setitem", "delitem",
    "enter", "exit",
)  # fmt: skip
for _name in (*_OPERATORS, *(f"r{_one}" for _one in _OPERATORS), *_ORDER):
    setattr(Object, f"__{_name}__", _operation(f"__{_name}__"))
for _name in _OTHERS:
    setattr(Object, f"__{_name}__", _refusal(f"__{_name}__"))
Object.__setattr__ = _refusal("assignment to an attribute")


class Large(Object):
    """A list or tuple of the program that is too large to cross; compared by its digest."""

    __slots__ = ("_class", "_digest")

    def __init__(self, link: Link, kind: type, found: str, number: int) -> None:
        super().__init__(link, kind.__name__, True, number)
        object.__setattr__(self, "_class", kind)
        object.__setattr__(self, "_digest", found)

    @property
    def __class__(self) -> type:  # type: ignore[override]  # an instance for all who ask
        return self._class

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        if type(other) is Large:
            return other._digest == self._digest
        if type(other) is not self._class or not large_values.is_large(other):
            return False
        try:
            return large_values.digest(other) == self._digest
        except ValueError:  # it holds what no large value of the program holds
            return False


_SEQUENCES = {"list": list, "tuple": tuple}


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
