"""Units of measure as they are written after a number."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

# name -> (what it measures, how many of that quantity's base unit)
_SCALES: Mapping[str, tuple[str, Fraction]] = {
    **{
        name: ("length", Fraction(value))
        for name, value in {
            "mm": "1/1000", "cm": "1/100", "dm": "1/10", "m": "1", "km": "1000", "in": "0.0254",
            "ft": "0.3048", "yd": "0.9144", "mi": "1609.344", "nm": "1/1000000000",
        }.items()
    },
    **{
        name: ("mass", Fraction(value))
        for name, value in {
            "mg": "1/1000000", "g": "1/1000", "kg": "1", "t": "1000", "lb": "0.45359237",
            "oz": "0.028349523125",
        }.items()
    },
    **{
        name: ("time", Fraction(value))
        for name, value in {
            "ms": "1/1000", "s": "1", "min": "60", "h": "3600", "day": "86400", "week": "604800",
        }.items()
    },
    **{
        name: ("money", Fraction(value)) for name, value in {"dollar": "1", "cent": "1/100"}.items()
    },
    **{
        name: ("volume", Fraction(value))
        for name, value in {"ml": "1/1000", "l": "1"}.items()
    },
    **{
        name: ("angle", Fraction(value))
        for name, value in {"degree": "1", "arcminute": "1/60"}.items()
    },
}  # fmt: skip
_ALIASES: Mapping[str, str] = {
    alias: name
    for name, aliases in {
        "mm": "millimeter millimetre", "cm": "centimeter centimetre", "dm": "decimeter decimetre",
        "m": "meter metre", "km": "kilometer kilometre", "in": "inch inche", "ft": "foot feet",
        "yd": "yard", "mi": "mile", "mg": "milligram", "g": "gram", "kg": "kilogram kilo",
        "t": "ton tonne", "lb": "pound", "oz": "ounce", "ms": "millisecond", "s": "second sec",
        "min": "minute", "h": "hour hr", "day": "day", "week": "week", "dollar": "dollar usd buck",
        "cent": "cent", "ml": "milliliter millilitre", "l": "liter litre", "degree": "degree deg",
    }.items()
    for alias in aliases.split()
}  # fmt: skip
MULTIPLIERS: Mapping[str, int] = {
    "dozen": 12, "hundred": 100, "thousand": 10**3, "million": 10**6, "billion": 10**9,
    "trillion": 10**12,
}  # fmt: skip
# Words that change what a number says, so that a text with one of them is not a unit.
_WORDS_OF_DOUBT = """
and or not no nor but to of in at if is are was than then plus minus times over under about
maybe sure unsure perhaps probably approximately either else half third thirds quarter
quarters fourth fourths fifth fifths tenth tenths hundredth hundredths thousandth
thousandths zero one two three four five six seven eight nine ten eleven twelve twenty
percent percentage more less least most mod base point negative positive wrong correct true
false for all any every each real integer integers infinity pi
"""
_NOT_UNITS = frozenset(_WORDS_OF_DOUBT.split())
_POWERS: Mapping[str, int] = {"square": 2, "sq": 2, "squared": 2, "cubic": 3, "cubed": 3}
_VOWEL = re.compile(r"[aeiou]")
_WORD = re.compile(r"[a-zA-Z]+")
MAX_WORDS = 4


@dataclass(frozen=True, slots=True)
class Unit:
    """A product of named units.

    Attributes:
        factors: Names with their powers, sorted.
    """

    factors: tuple[tuple[str, int], ...]

    @property
    def measure(self) -> tuple[tuple[tuple[str, int], ...], Fraction] | None:
        """Its dimension and scale, None when a factor is not a physical unit."""
        dimension: dict[str, int] = {}
        scale = Fraction(1)
        for name, power in self.factors:
            if name not in _SCALES:
                return None
            quantity, size = _SCALES[name]
            times = 1
            if quantity == "volume":  # a litre is a thousandth of a cubic metre
                quantity, size, times = "length", size / 1000, 3
            scale *= size**power
            dimension[quantity] = dimension.get(quantity, 0) + times * power
        return tuple(sorted((q, p) for q, p in dimension.items() if p)), scale


DEGREE = Unit((("degree", 1),))


def read_unit(text: str) -> tuple[Unit | None, int] | None:
    """The unit that a text names and the multiplier before it (`million`).

    Or None when it names none.

    Example:
        >>> read_unit("square feet")
        (Unit(factors=(('ft', 2),)), 1)
        >>> read_unit("not sure") is None
        True
    """
    text = text.strip().rstrip(".").lower()
    half = re.fullmatch(r"([ap])\.?\s?m\.?", text)
    if half:
        return Unit(((half[1] + "m", 1),)), 1
    if not re.fullmatch(r"[a-z .^0-9/{}-]+", text):
        return None
    words = re.findall(r"[a-z]+|\^\{?-?\d+\}?|/|[^\sa-z]+", text)
    if len(words) > 2 * MAX_WORDS:
        return None
    return _combine(words)


def _combine(words: list[str]) -> tuple[Unit | None, int] | None:
    factors: dict[str, int] = {}
    multiplier, sign, ahead, last = 1, 1, 1, ""
    last_was_per = False
    for word in words:
        last_was_per = word in ("per", "/")
        if word in MULTIPLIERS:
            multiplier *= MULTIPLIERS[word]
        elif last_was_per:
            sign = -1
        elif word in _POWERS and (word.endswith("d") or word == "cubed") and last:
            factors[last] *= _POWERS[word]
        elif word in _POWERS:
            ahead = _POWERS[word]
        elif word[0] == "^":
            if not last or abs(power := int(word.strip("^{}"))) > 9:
                return None
            factors[last] *= power
        elif _WORD.fullmatch(word) and word not in _NOT_UNITS:
            last = _singular(word)
            factors[last] = factors.get(last, 0) + sign * ahead
            ahead = 1
        else:
            return None
    if len(factors) > MAX_WORDS or ahead != 1 or (sign < 0 and last_was_per):
        return None
    return (Unit(tuple(sorted(factors.items()))) if factors else None), multiplier


def is_plain_word(text: str) -> bool:
    """Whether letters outside a text command are a word for a unit: `dollars`, `apples`."""
    plural = len(text) > 3 and text.islower() and text.endswith("s") and bool(_VOWEL.search(text))
    return plural or text.lower() in _ALIASES


def is_symbol(text: str) -> bool:
    """Whether letters that stand after a number and a space can be a unit's symbol.

    `cm`, not `x`.
    """
    return text in _SCALES or text == "L"


def _singular(word: str) -> str:
    if word in _SCALES:
        return word
    stem = word[:-1] if word.endswith("s") and not word.endswith("ss") and len(word) > 2 else word
    return _ALIASES.get(stem, _ALIASES.get(word, stem))
