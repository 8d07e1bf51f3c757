"""The words of LaTeX that expressions are written in, by what they do."""

from __future__ import annotations

FRACTIONS = frozenset({"frac", "dfrac", "tfrac", "cfrac"})
BINOMIALS = frozenset({"binom", "dbinom", "tbinom"})
_FUNCTION_NAMES = (
    "sin cos tan cot sec csc sinh cosh tanh coth arcsin arccos arctan arccot ln lg log exp"
)
FUNCTIONS = frozenset(_FUNCTION_NAMES.split())
MANY_ARGUMENTS = frozenset({"lcm", "gcd", "max", "min"})
INVERSES = {"sin": "arcsin", "cos": "arccos", "tan": "arctan"}
_GREEK_NAMES = """
alpha beta gamma delta epsilon varepsilon zeta eta theta vartheta iota kappa lambda mu nu xi
rho sigma tau upsilon phi varphi chi psi omega Gamma Delta Theta Lambda Xi Sigma Phi Psi
Omega ell hbar
"""
GREEK = frozenset(_GREEK_NAMES.split())
NAMED_FUNCTIONS = frozenset("fghFGH")
POLYNOMIALS = frozenset("pqPQT")
VARIABLES = "xtnz"
TIMES = frozenset({"times", "cdot", "ast"})
ROUNDING = {"lfloor": ("floor", "rfloor"), "lceil": ("ceil", "rceil")}
ACCENTS = frozenset({"overline", "bar", "hat", "widehat", "tilde", "vec", "overrightarrow"})
STARTS = FRACTIONS.union(BINOMIALS, FUNCTIONS, GREEK, ACCENTS, ROUNDING, {"sqrt", "pi", "angle"})
CLOSING = {"(": ")", "[": "]", "{": "}"}
