"""References beyond the own grammar (sums, integrals, limits, ...).

Read and compared by sympy in a worker process.
"""

from __future__ import annotations

import re

from verifiers.maths.cleanup import clean
from verifiers.maths.expressions import Unreadable
from verifiers.maths.finding import Finding
from verifiers.maths.lexer import tokenize
from verifiers.maths.parser import parse_expression
from verifiers.verdict import Reason

_CALCULUS = re.compile(r"\\(?:sum|prod|i*int|oint|lim|lfloor|lceil)(?![a-zA-Z])|\\frac\s*\{d\}")


def needs_sympy(text: str) -> bool:
    """Whether a text has operators that only sympy reads here."""
    return _CALCULUS.search(text) is not None


def check_formula(text: str) -> None:
    """Read a reference and work it out, as a comparison will; runs in a worker.

    Raises:
        Unreadable: sympy does not read all of it as one expression.
    """
    _read(text)


def compare_formulas(gold: str, prediction: str) -> Finding:
    """Compare two formulas; runs in a worker.

    Raises:
        Unreadable: The reference is not one expression to sympy.
    """
    reference = _read(gold)
    try:
        if not needs_sympy(prediction):
            # sympy's reader forgives what the strict one does not, such as two numbers side by side
            parse_expression(tokenize(clean(prediction)))
        found = _read(prediction)
    except Unreadable:
        return Finding(False, Reason.UNPARSED)
    if reference.free_symbols != found.free_symbols:
        return Finding(False, Reason.DIFFERENT)
    same = reference == found or (reference - found).simplify() == 0
    return Finding.of(same, Reason.EQUAL_SYMBOLIC)


def _read(text: str):  # noqa: ANN202 - sympy is imported in workers only
    from latex2sympy2_extended import latex2sympy
    from latex2sympy2_extended.latex2sympy2 import ConversionConfig
    from sympy import Expr

    config = ConversionConfig(lowercase_symbols=False)
    try:
        value = latex2sympy(clean(text), normalization_config=None, conversion_config=config)
    except Exception as error:  # its parser raises plain Exception
        raise Unreadable(str(error).partition("\n")[0]) from error
    if not isinstance(value, Expr):
        raise Unreadable(f"a {type(value).__name__} is not compared as a formula")
    return value.doit()
