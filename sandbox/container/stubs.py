"""Stand-ins, for test code, of a program that runs elsewhere.

A stand-in never compares itself, and hands on no operand of a comparison: only what the test calls
the program with leaves this process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NoReturn, Protocol

from sandbox.container import large_values

# What is known of who made an object.
OF_CLASS, OF_CAPITAL = 1, 2


class Unsupported(BaseException):
    """The test needs more of the program than values. Not for test code to catch."""


class Way(Protocol):
    """The way to the program; `Link` is the one."""

    def call(self, target: str | int, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """Call the program's function of that name, or the object of that number."""
        ...

    def ask_object(self, verb: str, number: str | int, *arguments: Any) -> Any:
        """Ask something else of an object: an attribute, an item, its length, its text."""
        ...

    def end(self, error: BaseException) -> NoReturn:
        """End the test for good, whatever its code catches."""
        ...


class Stub:
    """A function, or class, of the program."""

    __slots__ = ("__name__", "_link", "_name")

    def __init__(self, link: Way, name: str) -> None:
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

    def __init__(self, link: Way, kind: str, truth: bool, number: int | None) -> None:
        self._link: Way
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

    def __init__(self, link: Way, kind: type, found: str, number: int) -> None:
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
