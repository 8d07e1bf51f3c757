"""What units measure, and how values change from one to another: the one home of pint."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

Factors = Sequence[tuple[str, int]]

# pint knows no money. Each currency measures something of its own: rates change.
_CURRENCIES = (
    "dollar = [usd] = USD = usd = buck",
    "cent = dollar / 100",
    "euro = [eur] = EUR = eur",
    "sterling = [gbp] = GBP = gbp",
    "pence = sterling / 100",
    "yen = [jpy] = JPY = jpy",
    "rupee = [inr] = INR = inr",
    "yuan = [cny] = CNY = cny",
)


_SHORT_IN_SMALL_LETTERS = frozenset({"kcal", "mmol"})


def find_conversion(found: Factors, wanted: Factors) -> tuple[Fraction, Fraction] | None:
    """Scale and offset that take a value in one unit to another unit.

    Args:
        found: Names of units with their powers, as written.
        wanted: As `found`.

    Returns:
        None where the two do not measure the same. A name that is no unit of measure (`apples`)
        must be in both.

    Example:
        >>> find_conversion([("feet", 1)], [("inch", 1)])
        (Fraction(12, 1), Fraction(0, 1))
    """
    if any(name == "sterling" for name, _ in (*found, *wanted)):
        found, wanted = _as_sterling(found), _as_sterling(wanted)
    return _convert(tuple(found), tuple(wanted))


def _as_sterling(factors: Factors) -> Factors:
    """Pounds beside pounds sterling are money, not mass."""
    return [("sterling" if name in ("pound", "pounds") else name, n) for name, n in factors]


@functools.lru_cache(maxsize=4096)
def _convert(found: Factors, wanted: Factors) -> tuple[Fraction, Fraction] | None:
    from pint.errors import PintError

    (source, counted), (target, also_counted) = _split(found), _split(wanted)
    if counted != also_counted:
        return None
    registry = load_registry()
    # Bits and angles both are dimensionless; their root units tell them apart.
    if registry.get_root_units(source)[1] != registry.get_root_units(target)[1]:
        return None
    try:
        zero, one = (
            registry.Quantity(Fraction(value), source).to(target).magnitude for value in (0, 1)
        )
        return Fraction(one) - Fraction(zero), Fraction(zero)
    except (PintError, TypeError):  # degrees Celsius within a product, logarithmic units
        return None


def _split(factors: Factors) -> tuple[Any, dict[str, int]]:
    """The product of those factors that are units of measure, and the other ones."""
    registry = load_registry()
    product: dict[str, int] = {}
    counted: dict[str, int] = {}
    for word, power in factors:
        name = _find_name(word)
        names = counted if name is None else product
        key = word.lower() if name is None else name
        names[key] = names.get(key, 0) + power
    units = registry.UnitsContainer({name: Fraction(power) for name, power in product.items()})
    return registry.Unit(units), counted


@functools.lru_cache(maxsize=4096)
def _find_name(word: str) -> str | None:
    """The name that pint has for a unit; None for a word that is none."""
    registry = load_registry()
    for spelling in dict.fromkeys((word, word.lower())):
        for prefix, unit, _ in registry.parse_unit_name(spelling):
            if not prefix or spelling.startswith(prefix) or _is_short(spelling):
                return prefix + unit
    return None


def _is_short(word: str) -> bool:
    """Whether a word can be a unit's symbol with a prefix: `kPa`.

    Not `cat`, a hundredth of a technical atmosphere.
    """
    return len(word) <= 2 or not word.islower() or word in _SHORT_IN_SMALL_LETTERS


@functools.cache
def load_registry() -> Any:
    """All units of pint and the currencies, in exact fractions; made when units first differ."""
    import pint

    exact: Any = Fraction  # annotated as a kind of float there
    registry = pint.UnitRegistry(non_int_type=exact)
    for currency in _CURRENCIES:
        registry.define(currency)
    return registry
