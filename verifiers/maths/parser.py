"""A strict recursive-descent reader of sums, products, powers and groups.

Every token is used, or the text is unreadable.
"""

from __future__ import annotations

from collections.abc import Sequence

from verifiers.maths.commands import read_command
from verifiers.maths.cursor import Cursor
from verifiers.maths.expressions import Apply, Expression, Number, Symbol, Unreadable
from verifiers.maths.lexer import Token
from verifiers.maths.names import read_decoration
from verifiers.maths.vocabulary import (
    CLOSING,
    FUNCTIONS,
    NAMED_FUNCTIONS,
    POLYNOMIALS,
    STARTS,
    TIMES,
    VARIABLES,
)
from verifiers.maths.written_fractions import read_mixed_part

MAX_DEPTH = 32


def parse_expression(tokens: Sequence[Token]) -> Expression:
    """Read tokens as one expression.

    Raises:
        Unreadable: They are not one, to the last token.
    """
    parser = Parser(tokens)
    expression = parser.sum()
    if parser.place < len(tokens):
        raise Unreadable(f"cannot read {tokens[parser.place].text!r}")
    return expression


class Parser(Cursor):
    """Reads from `tokens[place]`; each method reads what its name says.

    Args:
        tokens: What is to be one expression.
    """

    def __init__(self, tokens: Sequence[Token]) -> None:
        super().__init__(tokens)
        self.depth = 0
        self.bars = 0

    def sum(self) -> Expression:
        """Terms with signs between them."""
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
        """A sign that comes next."""
        if self.at("+", "-") or self.at("pm", "mp", kind="command"):
            return self.next().text
        return None

    def signed_term(self) -> Expression:
        """A product with or without a sign before it."""
        sign = self.sign()
        term = self.product()
        return term if sign in (None, "+") else Apply("neg" if sign == "-" else sign, (term,))

    def product(self) -> Expression:
        """Factors that follow each other, with or without a sign of multiplication or division."""
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
        """A factor with or without a minus before it."""
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
        """The smallest thing that comes next, with the powers and marks behind it."""
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
        """A base with the exponent that comes next; a small circle there makes it degrees."""
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
        """What stands in the brackets that come next."""
        return self.enclosed(CLOSING[self.next().text])

    def enclosed(self, closing: str, kind: str = "mark") -> Expression:
        """What stands before a closing bracket, which is then behind."""
        bars, self.bars = self.bars, 0
        inner = self.sum()
        self.expect(closing, kind=kind)
        self.bars = bars
        return inner

    def base(self) -> Expression:
        """A number, a symbol, a group or a command, without what stands behind it."""
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
                return read_command(self)
        raise Unreadable(f"cannot read {token.text!r}")

    def number(self) -> Expression:
        """A number, whole and fraction together where it is mixed."""
        token = self.next()
        assert token.number is not None
        whole = token.number
        is_whole = whole.value.denominator == 1 and whole.places is None
        fraction = read_mixed_part(self) if is_whole else None
        return whole if fraction is None else Number(whole.value + fraction)

    def symbol(self) -> Expression:
        """A symbol, or the value of a function that has one for its name."""
        name = self.next().text
        if name == "C" and self.at("_") and (chosen := self.combination()):
            return chosen
        name += read_decoration(self)
        if self.at("(") and (name[0] in NAMED_FUNCTIONS or self.at_polynomial(name)):
            return Apply(f"@{name}", (self.group(),))
        return Symbol(name)

    def at_polynomial(self, name: str) -> bool:
        """Whether a name and the bracket after it are `P(x)`, not the product `P(1 + r)`."""
        variable = self.at(*VARIABLES, kind="letter", offset=1) and self.at(")", offset=2)
        return name[0] in POLYNOMIALS and variable

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
        """What stands between two bars."""
        self.expect("|")
        self.bars += 1
        inner = self.sum()
        self.expect("|")
        self.bars -= 1
        return Apply("abs", (inner,))

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


def _add(terms: list[Expression]) -> Expression:
    return terms[0] if len(terms) == 1 else Apply("add", tuple(terms))


def _multiply(factors: list[Expression]) -> Expression:
    return factors[0] if len(factors) == 1 else Apply("mul", tuple(factors))
