"""Bring the many spellings of one answer to one LaTeX spelling, without changing what it says."""

# ruff: noqa: RUF001 - the look-alikes are what this file is about

from __future__ import annotations

import re

_UNICODE = str.maketrans(
    {
        **{chr(code): chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F)},  # full-width forms
        **dict.fromkeys("\u200b\u200c\u200d\u2060\ufeff\u00ad\u061c\u200e\u200f", ""),
        **dict.fromkeys("\u00a0\u2002\u2003\u2005\u2009\u200a\u202f\u3000", " "),
        **dict.fromkeys("−–—‐‑‒", "-"),
        **dict.fromkeys("×✕", "\\times "),
        **dict.fromkeys("·⋅∙", "\\cdot "),
        "÷": "\\div ",
        "∕": "/",
        "⁄": "/",
        "±": "\\pm ",
        "∓": "\\mp ",
        "∞": "\\infty ",
        "≤": "\\le ",
        "⩽": "\\le ",
        "≥": "\\ge ",
        "⩾": "\\ge ",
        "≠": "\\ne ",
        "≈": "\\approx ",
        "≡": "\\equiv ",
        "∈": "\\in ",
        "∪": "\\cup ",
        "∩": "\\cap ",
        "∅": "\\emptyset ",
        "ℝ": "\\mathbb{R}",
        "ℤ": "\\mathbb{Z}",
        **dict.fromkeys("°º", "^\\circ "),
        "℃": "^\\circ C",
        "℉": "^\\circ F",
        "¢": "\\text{ cents}",
        "€": "\\euro ",
        "£": "\\pounds ",
        "¥": "\\yen ",
        "₹": "\\rupee ",
        "…": "\\ldots ",
        "′": "'",
        "’": "'",
        "⟨": "\\langle ",
        "⟩": "\\rangle ",
        "½": "\\frac{1}{2}",
        "⅓": "\\frac{1}{3}",
        "⅔": "\\frac{2}{3}",
        "¼": "\\frac{1}{4}",
        "¾": "\\frac{3}{4}",
        "⅕": "\\frac{1}{5}",
        "⅖": "\\frac{2}{5}",
        "⅗": "\\frac{3}{5}",
        "⅘": "\\frac{4}{5}",
        "⅙": "\\frac{1}{6}",
        "⅚": "\\frac{5}{6}",
        "⅛": "\\frac{1}{8}",
        "⅜": "\\frac{3}{8}",
        "⅝": "\\frac{5}{8}",
        "⅞": "\\frac{7}{8}",
        **{
            char: f"\\{name} "
            for name, char in zip(
                [
                    "alpha",
                    "beta",
                    "gamma",
                    "delta",
                    "epsilon",
                    "theta",
                    "lambda",
                    "mu",
                    "pi",
                    "rho",
                    "sigma",
                    "tau",
                    "phi",
                    "omega",
                ],
                "αβγδεθλμπρστφω",
                strict=True,
            )
        },
        **{char: f"_{digit}" for digit, char in enumerate("₀₁₂₃₄₅₆₇₈₉")},
    }
)
_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺ⁿ", "0123456789-+n")
_SUPERSCRIPT_RUN = re.compile("[⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺ⁿ]+")
_ROOT_OF_RUN = re.compile(r"√\s*(\d+(?:\.\d+)?|[a-zA-Z])")

_INVISIBLE = re.compile(
    r"\\(?:left|right|[bB]igg?[lrm]?|displaystyle|textstyle|limits|nolimits|hfill)(?![a-zA-Z])\s*"
    r"|\\!|[\x00-\x08\x0b-\x1f\x7f]"
)
_NORMS = re.compile(r"\\[lr]?vert(?![a-zA-Z])")
_SIZES = re.compile(
    r"\\(?:tiny|scriptsize|small|normalsize|large|Large|LARGE|huge|Huge)(?![a-zA-Z])\s*"
)
# `0.333\ldots`, `0.1454545...`: digits that repeat to the end of what is written.
_DOTS = re.compile(r"\.(\d{3,60})\s*(?:\\[lc]?dots(?![a-zA-Z])|\.\.\.)")
# Its time grows with the cube of the length, which the line above bounds.
_REPETITION = re.compile(r"(\d*?)(\d+?)\2{2,}")
_OVER = re.compile(r"\{?([^{}]*)\\(over|choose)(?![a-zA-Z])([^{}]*)\}?")
_OVER_COMMANDS = {"over": "frac", "choose": "binom"}
_NAMED_POINT = re.compile(r"[A-Z]'?\s*(\([^()]*[,;][^()]*\))")
_OPEN_INTERVAL = re.compile(r"(?:\]|\[|\()([^\[\]]*[,;][^\[\]]*)(?:\[|\]|\))")
_LEAD_SIGN = re.compile(r"^\s*(?:\\(?:therefore|Rightarrow|implies)(?![a-zA-Z])|=(?!=))\s*")
_COMPARISON = re.compile(r"<=|>=|(?<=\s)!=(?=\s)")  # `5!=120` is a factorial
_COMPARISONS = {"<=": "\\le ", ">=": "\\ge ", "!=": "\\ne "}
_PRIMES = re.compile(r"\^\s*(?:\{((?:\s*\\prime)+)\s*\}|\\prime(?![a-zA-Z]))")
_FONT_SWITCHES = re.compile(
    r"\\(?:(?:bf|it|sf|tt|boldmath)(?![a-zA-Z])|rm(?![a-zA-Z])(?!\s*\{))\s*"
)
_OLD_FONTS = re.compile(r"\{\\(?:bf|it|rm|sf|tt)\s+([^{}]*)\}")
_TICKS = re.compile(r"\s*\\(?:checkmark|blacksquare|square|Box|qed)(?![a-zA-Z])\s*$")
_TEMPERATURE = re.compile(
    r"(?:\^\s*(?:\\circ|\{\s*\\circ\s*\})|\\degree)\s*"
    r"(?:\\(?:text|mathrm|textrm|rm)\s*\{\s*([CF])\s*\}|([CF]))$"
)
_SPACES = re.compile(r"(?<!\\)\\(?:[,;: ]|(?:quad|qquad|enspace|thinspace)(?![a-zA-Z]))|~|\s+")
_WRAPPER = re.compile(
    r"\\(?:mathbf|boldsymbol|bm|mathit|mathsf|mathnormal|underline|boxed|fbox|"
    r"textcolor\{[^{}]*\}|color\{[^{}]*\})\s*\{([^{}]*)\}"
)
_BRACED_SYMBOL = re.compile(r"(?<![a-zA-Z])\{([a-zA-Z])\}(?=_)")
_COLOR = re.compile(r"\\color\{[^{}]*\}")
_THOUSANDS = re.compile(r"(?<![\d.])\d{1,3}(?:(?:\\,|\{,\}|,\\!|\\!|\\ )\s*\d{3})+(?![\d])")
_SPACED_THOUSANDS = re.compile(r"[-+]?\d{1,3}(?: \d{3})+(?:\.\d+)?")
_PLAIN_THOUSANDS = re.compile(
    r"(?P<before>[^\d,(\[{]*)"
    r"(?P<number>\d{1,3}(?:,\d{3})+)"
    r"(?P<after>(?:\.\d+)?(?:[^\d,]|\^\d|\{\d\})*)"
)
_LEAD_IN = re.compile(
    r"(?:\\text\{|)\s*(?:so |thus |hence |therefore,? )?(?:the |my |our )?"
    r"(?:final |correct )?answer\s*(?:is|:|=)\s*:?\s*(\}?)",
    re.IGNORECASE,
)
_WRAPS = (
    ("$$", "$$"),
    ("$", "$"),
    ("\\(", "\\)"),
    ("\\[", "\\]"),
    ("**", "**"),
    ("*", "*"),
    ("`", "`"),
    ("__", "__"),
)


def clean(text: str) -> str:
    """One spelling for spaces, wrappers, Unicode forms, digit groups and sizes, in linear time."""
    text = _SUPERSCRIPT_RUN.sub(lambda m: f"^{{{m.group().translate(_SUPERSCRIPTS)}}}", text)
    text = _ROOT_OF_RUN.sub(r"\\sqrt{\1}", text).replace("√", "\\sqrt ")
    text = text.translate(_UNICODE)
    text = _THOUSANDS.sub(lambda m: re.sub(r"\D", "", m.group()), text)
    text = _INVISIBLE.sub("", text)
    for _ in range(4):  # wrappers within wrappers
        text, count = _WRAPPER.subn(r"{\1}", text)
        if not count:
            break
    text = _BRACED_SYMBOL.sub(r"\1", _COLOR.sub("", text))
    text = _TICKS.sub("", _SIZES.sub("", _NORMS.sub("|", text)))
    text = text.replace("\\lbrace", "\\{").replace("\\rbrace", "\\}").replace("{:}", ":")
    text = _FONT_SWITCHES.sub("", _OLD_FONTS.sub(r"\\text{\1}", text))
    text = _COMPARISON.sub(lambda m: _COMPARISONS[m.group()], text)
    text = _PRIMES.sub(lambda m: "'" * (m[1] or "p").count("p"), text)
    text = _strip_lead_in(_SPACES.sub(" ", text))
    text = _LEAD_SIGN.sub("", _strip_wraps(text))
    text = _TEMPERATURE.sub(lambda m: f" \\text{{deg{m[1] or m[2]}}}", text)
    text = _DOTS.sub(_write_period, text)
    if over := _OVER.fullmatch(text):
        text = f"\\{_OVER_COMMANDS[over[2]]}{{{over[1]}}}{{{over[3]}}}"
    if point := _NAMED_POINT.fullmatch(text):
        text = point[1]
    text = _close_outward(text)
    if _SPACED_THOUSANDS.fullmatch(text):
        text = text.replace(" ", "")
    plain = _PLAIN_THOUSANDS.fullmatch(text)
    if plain:
        text = plain["before"] + plain["number"].replace(",", "") + plain["after"]
    return _strip_doubled_parentheses(text)


def _write_period(match: re.Match[str]) -> str:
    found = _REPETITION.fullmatch(match[1])
    return f".{found[1]}\\overline{{{found[2]}}}" if found else match[0]


def _close_outward(text: str) -> str:
    """`]1, 2]` to `(1, 2]`: brackets that turn away from an interval leave its end out."""
    match = _OPEN_INTERVAL.fullmatch(text)
    if match is None or (text[0] != "]" and text[-1] != "["):
        return text
    return f"{'(' if text[0] == ']' else text[0]}{match[1]}{')' if text[-1] == '[' else text[-1]}"


def _strip_lead_in(text: str) -> str:
    match = _LEAD_IN.match(text.lstrip())
    return text.lstrip()[match.end() :] if match else text


def _strip_wraps(text: str) -> str:
    while True:
        before = text
        text = text.strip()
        if not text.endswith(("\\.", "...")):
            text = text.rstrip(".;, ")
        if text.endswith("\\\\"):
            text = text[:-2]
        elif text.endswith("\\") and not text.endswith("\\\\"):
            text = text[:-1]
        for left, right in _WRAPS:
            inner = text[len(left) : -len(right)]
            if (
                len(text) > len(left) + len(right)
                and text.startswith(left)
                and text.endswith(right)
                and not inner.endswith("\\")
                and not re.search(rf"(?<!\\){re.escape(left)}", inner)
            ):
                text = inner
        if text == before:
            return text


def _strip_doubled_parentheses(text: str) -> str:
    """`((x))` to `(x)`, however deep; a single pair may be a tuple and stays."""
    closes: dict[int, int] = {}
    stack: list[int] = []
    for place, char in enumerate(text):
        if char == "(":
            stack.append(place)
        elif char == ")" and stack:
            closes[stack.pop()] = place
    start, end = 0, len(text) - 1
    while closes.get(start) == end and closes.get(start + 1) == end - 1:
        start, end = start + 1, end - 1
    return text[start : end + 1]
