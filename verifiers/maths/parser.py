"""A strict recursive-descent reader of expressions.

Every token is used, or the text is unreadable.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from verifiers.maths.cursor import Cursor
from verifiers.maths.expressions import Apply, Expression, Number, Symbol, Unreadable
from verifiers.maths.lexer import Token
from verifiers.maths.vocabulary import (
    ACCENTS,
    BINOMIALS,
    CLOSING,
    FRACTIONS,
    FUNCTIONS,
    GREEK,
    INVERSES,
    MANY_ARGUMENTS,
    NAMED_FUNCTIONS,
    POLYNOMIALS,
    ROUNDING,
    STARTS,
    TIMES,
    VARIABLES,
)

MAX_DEPTH = 32


def parse_expression(tokens: Sequence[Token]) -> Expression:
    """Read tokens as one expression.

    Raises:
        Unreadable: They are not one, to the last token.
    """
    parser = _Parser(tokens)
    expression = parser.sum()
    if parser.place < len(tokens):
        raise Unreadable(f"cannot read {tokens[parser.place].text!r}")
    return expression


class _Parser(Cursor):
    """Reads from `tokens[place]`; each method reads what its name says."""

    def __init__(self, tokens: Sequence[Token]) -> None:
        super().__init__(tokens)
        self.depth = 0
        self.bars = 0

    def sum(self) -> Expression:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise Unreadable("nested too deeply")
        terms: list[Expression] = [self.signed_term()]
        while (sign := self.sign()) is not None:
            right = self.product()
            if sign in ("pm", "mp"):
                terms = [Apply("add", (_add(terms), Apply(sign, (right,))))]
            else:
                terms.append(right if sign == "+" else Apply("neg", (right,)))
        self.depth -= 1
        return _add(terms)

    def sign(self) -> str | None:
        if self.at("+", "-") or self.at("pm", "mp", kind="command"):
            return self.next().text
        return None

    def signed_term(self) -> Expression:
        sign = self.sign()
        term = self.product()
        return term if sign in (None, "+") else Apply("neg" if sign == "-" else sign, (term,))

    def product(self) -> Expression:
        factors: list[Expression] = [self.factor()]
        while True:
            if self.take(*TIMES, kind="command") or self.take("*"):
                if self.at("*"):
                    raise Unreadable("`**` is not mathematics")
                factors.append(self.signed_factor())
            elif self.take("/") or self.take("div", kind="command"):
                factors = [Apply("div", (_multiply(factors), self.signed_factor()))]
            elif self.starts_factor():
                factors.append(self.factor())
            else:
                return _multiply(factors)

    def signed_factor(self) -> Expression:
        return Apply("neg", (self.factor(),)) if self.take("-") else self.factor()

    def starts_factor(self) -> bool:
        """Whether what follows multiplies without a sign.

        A number does only after a power or a factorial.
        """
        token = self.peek()
        if token is None:
            return False
        match token.kind:
            case "letter":
                return True
            case "number":
                factorial = self.tokens[self.place - 1].text == "!"
                return factorial or (self.closes_power() and not token.spaced)
            case "mark":
                return token.text in ("(", "{") or (token.text == "|" and not self.bars)
            case "command":
                return token.text in STARTS
        return False

    def closes_power(self) -> bool:
        """Whether what was just read is a bracket that closed an exponent."""
        level = 0
        for place in range(self.place - 1, -1, -1):
            text = self.tokens[place].text
            level += (text in ("}", ")")) - (text in ("{", "("))
            if level == 0:
                return place < self.place - 1 and place > 0 and self.tokens[place - 1].text == "^"
        return False

    def factor(self) -> Expression:
        result = self.base()
        while True:
            if self.take("^"):
                result = self.power(result)
            elif self.take("!"):
                result = Apply("doublefactorial" if self.take("!") else "factorial", (result,))
                if self.at("!"):
                    raise Unreadable("repeated factorial")
            elif self.take("%", kind="command") or self.take("%"):
                result = Apply("percent", (result,))
            elif self.take("degree", kind="command"):
                result = Apply("degree", (result,))
            else:
                return result

    def power(self, base: Expression) -> Expression:
        if self.take("circ", kind="command"):
            return Apply("degree", (base,))
        if self.at("{") and self.at("circ", kind="command", offset=1) and self.at("}", offset=2):
            self.place += 3
            return Apply("degree", (base,))
        negative = self.take("-")
        exponent = self.argument()
        while self.take("^"):
            exponent = Apply("pow", (exponent, self.argument()))
        return Apply("pow", (base, Apply("neg", (exponent,)) if negative else exponent))

    def argument(self) -> Expression:
        """What a command or an exponent applies to: a group, or the single thing that follows."""
        return self.group() if self.at("{") else self.base()

    def group(self) -> Expression:
        opening = self.next().text
        bars, self.bars = self.bars, 0
        inner = self.sum()
        self.expect(CLOSING[opening])
        self.bars = bars
        return inner

    def base(self) -> Expression:
        token = self.peek()
        if token is None:
            raise Unreadable("ends too early")
        match token.kind:
            case "number":
                return self.number()
            case "letter":
                return self.symbol()
            case "mark" if token.text in CLOSING:
                return self.group()
            case "mark" if token.text == "|":
                return self.absolute()
            case "command":
                return self.command()
        raise Unreadable(f"cannot read {token.text!r}")

    def number(self) -> Expression:
        token = self.next()
        assert token.number is not None
        whole = token.number
        fraction = (
            self.mixed_part() if whole.value.denominator == 1 and whole.places is None else None
        )
        return whole if fraction is None else Number(whole.value + fraction)

    def mixed_part(self) -> Fraction | None:
        r"""The proper fraction of a mixed number: `\frac{1}{2}`, or `1/2` after a space."""
        start = self.place
        if self.take(*FRACTIONS, kind="command"):
            try:
                upper, lower = self.fraction_arguments()
            except Unreadable:
                self.place = start
                return None
        elif (
            (first := self.peek()) is not None
            and first.number is not None
            and first.spaced
            and self.at("/", offset=1)
            and (third := self.peek(2)) is not None
            and third.number is not None
        ):
            self.place += 3
            upper, lower = first.number, third.number
        else:
            return None
        if (
            isinstance(upper, Number)
            and isinstance(lower, Number)
            and upper.value.denominator == lower.value.denominator == 1
            and 0 < upper.value < lower.value
        ):
            return upper.value / lower.value
        self.place = start
        return None

    def symbol(self) -> Expression:
        name = self.next().text
        if name == "C" and self.at("_") and (chosen := self.combination()):
            return chosen
        name += self.decoration()
        if self.at("(") and (name[0] in NAMED_FUNCTIONS or self.at_polynomial(name)):
            return Apply(f"@{name}", (self.group(),))
        return Symbol(name)

    def at_polynomial(self, name: str) -> bool:
        """Whether a name and the bracket after it are `P(x)`, not the product `P(1 + r)`."""
        variable = self.at(*VARIABLES, kind="letter", offset=1) and self.at(")", offset=2)
        return name[0] in POLYNOMIALS and variable

    def decoration(self) -> str:
        """Subscript and primes of a symbol, as part of its name."""
        name = ""
        while True:
            if self.take("'") or self.take("prime", kind="command"):
                name += "'"
            elif self.at("^") and self.at("*", offset=1):
                self.place += 2
                name += "*"
            elif self.at("^") and self.at("prime", kind="command", offset=1):
                self.place += 2
                name += "'"
            elif self.at("_") and "_" not in name:
                self.place += 1
                name += "_" + self.subscript()
            else:
                return name

    def subscript(self) -> str:
        if not self.take("{"):
            return self.next().text
        parts = []
        while not self.take("}"):
            token = self.next()
            if token.text in ("{", "_", "^"):
                raise Unreadable("a subscript within a subscript")
            parts.append(token.text)
        return "".join(parts)

    def combination(self) -> Expression | None:
        """`C_n^k`, read as a binomial coefficient."""
        start = self.place
        self.place += 1
        try:
            upper = self.argument()
            if self.take("^"):
                return Apply("binom", (upper, self.argument()))
        except Unreadable:
            pass
        self.place = start
        return None

    def absolute(self) -> Expression:
        self.expect("|")
        self.bars += 1
        inner = self.sum()
        self.expect("|")
        self.bars -= 1
        return Apply("abs", (inner,))

    def command(self) -> Expression:  # noqa: C901, PLR0911 - one case for each family of commands
        name = self.next().text
        if name in FRACTIONS:
            return Apply("div", self.fraction_arguments())
        if name in BINOMIALS:
            return Apply("binom", (self.argument(), self.argument()))
        if name == "sqrt":
            return self.root()
        if name in MANY_ARGUMENTS:
            return Apply(name, self.list_of_arguments())
        if name in FUNCTIONS:
            return self.function(name)
        if name in ROUNDING:
            return self.rounded(*ROUNDING[name])
        if name == "pi":
            return Symbol("pi")
        if name == "infty":
            return Symbol("oo")
        if name in GREEK:
            return Symbol(name + self.decoration())
        if name in ACCENTS:
            return Symbol(f"{name} {self.letters()}" + self.decoration())
        if name == "angle":
            return Symbol(f"angle {self.letters()}")
        if name in ("lvert", "vert", "|"):
            raise Unreadable("norms are not read")
        raise Unreadable(f"unknown command {name!r}")

    def rounded(self, op: str, closing: str) -> Expression:
        bars, self.bars = self.bars, 0
        inner = self.sum()
        self.expect(closing, kind="command")
        self.bars = bars
        return Apply(op, (inner,))

    def letters(self) -> str:
        """The letters that an accent or the sign of an angle stands over or before."""
        braced = self.take("{")
        name = ""
        while self.at_letter():
            name += self.next().text
        if not name:
            raise Unreadable("an accent over no letter")
        if braced:
            self.expect("}")
        return name

    def at_letter(self) -> bool:
        token = self.peek()
        return token is not None and token.kind == "letter"

    def fraction_arguments(self) -> tuple[Expression, Expression]:
        r"""Arguments of `\frac`; digits without braces are one each, as TeX takes them.

        `\frac12`.
        """
        token = self.peek()
        if token is not None and token.number is not None and len(token.text) > 1:
            if len(token.text) != 2 or not token.text.isdigit():
                raise Unreadable("a fraction of digits without braces")
            self.place += 1
            return Number(Fraction(int(token.text[0]))), Number(Fraction(int(token.text[1])))
        upper = self.fraction_argument()
        return upper, self.fraction_argument()

    def fraction_argument(self) -> Expression:
        token = self.peek()
        if token is not None and token.number is not None:
            if len(token.text) != 1:
                raise Unreadable("a fraction of digits without braces")
            self.place += 1
            return token.number
        return self.argument()

    def root(self) -> Expression:
        degree: Expression = Number(Fraction(2))
        if self.take("["):
            degree = self.sum()
            self.expect("]")
        return Apply("root", (self.argument(), degree))

    def list_of_arguments(self) -> tuple[Expression, ...]:
        r"""`(a, b)`, or `\{a, b\}` after a maximum."""
        kind = "command" if self.at("{", kind="command") else "mark"
        self.expect("{" if kind == "command" else "(", kind=kind)
        arguments = [self.sum()]
        while self.take(","):
            arguments.append(self.sum())
        self.expect("}" if kind == "command" else ")", kind=kind)
        return tuple(arguments)

    def function(self, name: str) -> Expression:
        base: Expression | None = None
        if name == "log" and self.take("_"):
            base = self.argument()
        exponent = None
        if self.take("^"):
            sign = self.take("-")
            exponent = self.argument()
            exponent = Apply("neg", (exponent,)) if sign else exponent
            if exponent == Apply("neg", (Number(Fraction(1)),)):
                name, exponent = _invert(name), None
        argument = self.group() if self.at("(", "{", "[") else self.bare_argument()
        if name == "lg":
            name, base = "log", Number(Fraction(10))
        result: Expression = Apply(name, (argument,) if base is None else (argument, base))
        return result if exponent is None else Apply("pow", (result, exponent))

    def bare_argument(self) -> Expression:
        r"""`\sin 2x`: factors that follow each other, up to the next sign or function."""
        factors: list[Expression] = [self.signed_factor()]
        while (
            (token := self.peek()) is not None
            and self.starts_factor()
            and not (token.kind == "command" and token.text in FUNCTIONS)
            and token.text != "("
        ):
            factors.append(self.factor())
        return _multiply(factors)


def _invert(name: str) -> str:
    r"""The function that `\sin^{-1}` stands for."""
    if name not in INVERSES:
        raise Unreadable("an inverse function or a power")
    return INVERSES[name]


def _add(terms: list[Expression]) -> Expression:
    return terms[0] if len(terms) == 1 else Apply("add", tuple(terms))


def _multiply(factors: list[Expression]) -> Expression:
    return factors[0] if len(factors) == 1 else Apply("mul", tuple(factors))
