"""Units of measure as they are written after a number."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from verifiers.maths.measures import find_conversion

MULTIPLIERS: Mapping[str, int] = {
    "dozen": 12, "hundred": 100, "thousand": 10**3, "million": 10**6, "billion": 10**9,
    "trillion": 10**12,
}  # fmt: skip
# Letters that after a number and a space are a unit even outside of a text command.
_SYMBOLS = """
mm cm dm km m nm um in ft yd mi mg g kg t lb oz lbs ms s sec min h hr hrs ml mL dL l L gal qt
mph kph km/h N kN J kJ MJ cal kcal W kW MW V mV kV mA Hz kHz MHz GHz Pa kPa MPa atm mol mmol
eV keV MeV rad deg rpm cms kms kgs
"""
SYMBOLS = frozenset(_SYMBOLS.split())
# Single letters that are units only within a text command after a number.
_LETTERS_IN_TEXT = frozenset("NJWVAKCF")
_WORDS = """
dollar usd buck cent euro yen rupee meter metre inch foot feet yard mile gram kilo kilogram ton
tonne pound ounce second minute hour day week month year liter litre gallon degree acre mole
newton joule watt volt ohm pascal hertz kelvin
"""
_KNOWN_WORDS = frozenset(_WORDS.split())
# Words that change what a number says, so that a text with one of them is not a unit.
_WORDS_OF_DOUBT = """
and or not no nor but to of at if is are was than then plus minus times over under about
maybe sure unsure perhaps probably approximately either else half third thirds quarter
quarters fourth fourths fifth fifths tenth tenths hundredth hundredths thousandth
thousandths zero one two three four five six seven eight nine ten eleven twelve twenty
percent percentage more less least most mod base point negative positive wrong correct true
false for all any every each real integer integers infinity pi
"""
_NOT_UNITS = frozenset(_WORDS_OF_DOUBT.split())
_POWERS: Mapping[str, int] = {"square": 2, "sq": 2, "squared": 2, "cubic": 3, "cu": 3, "cubed": 3}
# A unit that is not named says as much as none.
_NAMELESS = frozenset({"unit", "units"})
_SPELLINGS: Mapping[str, str] = {
    "C": "degC", "degC": "degC", "celsius": "degC", "centigrade": "degC",
    "F": "degF", "degF": "degF", "fahrenheit": "degF",
    "deg": "degree", "rad": "radian", "kilo": "kilogram", "cms": "cm", "kms": "km", "kgs": "kg",
}  # fmt: skip
_VOWEL = re.compile(r"[aeiou]")
_WORD = re.compile(r"[a-zA-Zµμ]+")
_EXPONENT = re.compile(r"\^\{?(-?[0-9])\}?")
_PLURAL = re.compile(r"(?<=ch)es$|(?<=sh)es$|(?<=x)es$|(?<=ss)es$|(?<![su])s$")
MAX_WORDS = 4


@dataclass(frozen=True, slots=True)
class Unit:
    """A product of units.

    Attributes:
        factors: Names as written, of words the singular, with their powers; sorted.
    """

    factors: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Conversion:
    """How a value changes from one unit to another: multiplied, then moved."""

    scale: Fraction = Fraction(1)
    offset: Fraction = Fraction(0)


DEGREE = Unit((("degree", 1),))
RADIAN = Unit((("radian", 1),))
SAME = Conversion()


def convert(
    found: Unit | None, wanted: Unit | None, *, missing_is_same: bool = True, change: bool = True
) -> Conversion | None:
    """How a value in one unit becomes one in another; None when the units do not agree.

    Args:
        found: Unit of the value.
        wanted: The other unit.
        missing_is_same: Whether a unit that only one side has is passed over.
        change: Whether units that measure the same agree; otherwise only equal ones do.
    """
    if found == wanted:
        return SAME
    if found is None or wanted is None:
        return SAME if missing_is_same else None
    conversion = find_conversion(found.factors, wanted.factors)
    if conversion is None:
        return None
    converted = Conversion(*conversion)
    return converted if change or converted == SAME else None  # `cm` and `centimetres` are equal


def read_unit(text: str) -> tuple[Unit | None, int] | None:
    """The unit that a text names and the multiplier before it (`million`).

    Or None when it names none.

    Example:
        >>> read_unit("square feet")
        (Unit(factors=(('feet', 2),)), 1)
        >>> read_unit("not sure") is None
        True
    """
    text = text.strip().rstrip(".")
    half = re.fullmatch(r"([apAP])\.?\s?[mM]\.?", text)
    if half:
        return Unit(((f"{half[1].lower()}. m.", 1),)), 1
    if not re.fullmatch(r"[a-zA-Zµμ .^0-9/{}*-]+", text):
        return None
    text = re.sub(r"(?<=[a-zA-Z])\.", "", text)  # sq. ft.
    words = re.findall(r"[a-zA-Zµμ]+|\^\{?-?\d+\}?|/|[^\sa-zA-Z*]+", text)
    if len(words) > 2 * MAX_WORDS:
        return None
    # Before another word `in` is no inch.
    if any(word == "in" and _WORD.match(after) for word, after in itertools.pairwise(words)):
        return None
    return _combine(words)


def _combine(  # noqa: C901 - one case for each part of a unit's spelling
    words: list[str],
) -> tuple[Unit | None, int] | None:
    factors: dict[str, int] = {}
    multiplier, sign, ahead, last = 1, 1, 1, ""
    last_was_per = False
    for word in words:
        plain = word.lower()
        last_was_per = plain in ("per", "/")
        if plain in MULTIPLIERS:
            multiplier *= MULTIPLIERS[plain]
        elif last_was_per:
            sign = -1
        elif plain in _POWERS and plain.endswith("d") and last:
            factors[last] *= _POWERS[plain]
        elif plain in _POWERS:
            ahead = _POWERS[plain]
        elif word[0] == "^":
            exponent = _EXPONENT.fullmatch(word)
            if not last or exponent is None:
                return None
            factors[last] *= int(exponent[1])
        elif _WORD.fullmatch(word) and plain not in _NOT_UNITS:
            last = _normalize(word)
            if last in ("degC", "degF"):
                factors.pop("degree", None)
            factors[last] = factors.get(last, 0) + sign * ahead
            ahead = 1
        else:
            return None
    if len(factors) > MAX_WORDS or ahead != 1 or (sign < 0 and last_was_per):
        return None
    named = {name: power for name, power in factors.items() if name not in _NAMELESS}
    return (Unit(tuple(sorted(named.items()))) if named else None), multiplier


def is_plain_word(text: str) -> bool:
    """Whether letters outside a text command are a word for a unit: `dollars`, `apples`."""
    plural = len(text) > 3 and text.islower() and text.endswith("s") and bool(_VOWEL.search(text))
    return plural or text.lower() in _KNOWN_WORDS


def is_symbol(text: str) -> bool:
    """Whether letters that stand after a number and a space can be a unit's symbol.

    `cm`, not `x`.
    """
    return text in SYMBOLS


def is_letter_in_text(text: str) -> bool:
    r"""Whether a letter in a text command after a number is a unit: `5 \text{ N}`."""
    return text in _LETTERS_IN_TEXT or text in SYMBOLS


def _normalize(word: str) -> str:
    """One spelling for a word in the plural or with a capital; symbols stay as they are."""
    if word in _SPELLINGS or word in SYMBOLS:
        return _SPELLINGS.get(word, word)
    if len(word) <= 3 and not word.islower():
        return word
    word = word.lower()
    if word in _SPELLINGS or len(word) <= 3:
        return _SPELLINGS.get(word, word)
    stem = _PLURAL.sub("", word)
    return _SPELLINGS.get(stem, stem)
