"""The filter grammar.

    filter    := and { OR and }             and := not { AND not }        not := NOT not | unit
    unit      := '(' filter ')' | predicate
    predicate := column ( op literal | [NOT] IN '(' [literal {',' literal}] ')'
                        | [NOT] BETWEEN literal AND literal | [NOT] LIKE text | IS [NOT] NULL | )
               | literal op column | TRUE | FALSE | NULL
    column    := name { '.' name }          name := plain | `quoted` | "quoted"
    op        := = == != <> < <= > >=
    literal   := [+-] number | 'text' | TRUE | FALSE | NULL | DATE 'y-m-d' | TIME 'h:m:s[.f]'
               | TIMESTAMP 'y-m-d[ h:m:s[.ffffff]][Z|+hh:mm]' | X'hex'

A number with an exponent is a double, with a point a decimal, otherwise an integer. Keywords are
not case-sensitive, column names are. A column alone means `column = TRUE`. Guarantees: ends in
linear time and bounded depth; every error names the position and what was expected there.
"""

from __future__ import annotations

from decimal import Decimal

from lakewright.errors import FilterError
from lakewright.expr.lexer import Kind, Token, fail, tokens
from lakewright.expr.moments import parse_date, parse_time, parse_timestamp
from lakewright.expr.tree import (
    Column,
    Comparison,
    Constant,
    Expr,
    In,
    IsNull,
    Like,
    Literal,
    Not,
    Op,
    Value,
    check_pattern,
    conjunction,
    disjunction,
)

_DEPTH_MAX = 100
_DIGITS_MAX = 100
_OPERATORS = {op.value: op for op in Op} | {"==": Op.EQ, "<>": Op.NE}
_TYPED = ("DATE", "TIME", "TIMESTAMP", "X")


def parse(text: str) -> Expr:
    """The filter that `text` says; `FilterError` with the position if it says none.

    >>> parse("city = 'sf' and ts >= 5") == parse("ts>=5 AND `city`='sf'")
    False
    >>> parse("a BETWEEN 1 AND 2") == parse("a >= 1 AND a <= 2")
    True
    """
    return _Parser(text).whole()


class _Parser:
    """A cursor over the tokens of one text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = tokens(text)
        self._at = 0
        self._depth = 0

    def whole(self) -> Expr:
        expr = self._or()
        if self._next.kind is not Kind.END:
            self._fail("AND, OR or the end was expected", "Join conditions with AND or OR.")
        return expr

    @property
    def _next(self) -> Token:
        return self._tokens[self._at]

    def _take(self) -> Token:
        token = self._tokens[self._at]
        self._at += token.kind is not Kind.END
        return token

    def _taken(self, kind: Kind, *words: str) -> bool:
        """Take the next token if it is one of `words`."""
        found = self._next.kind is kind and self._next.text in words
        self._at += found
        return found

    def _need(self, kind: Kind, word: str) -> None:
        if not self._taken(kind, word):
            self._fail(f"{word} was expected", "Check the grammar of the filter.")

    def _fail(self, message: str, hint: str) -> Exception:
        fail(self._text, self._next.position, message, hint)

    def _or(self) -> Expr:
        operands = [self._and()]
        while self._taken(Kind.KEYWORD, "OR"):
            operands.append(self._and())
        return disjunction(*operands)

    def _and(self) -> Expr:
        operands = [self._not()]
        while self._taken(Kind.KEYWORD, "AND"):
            operands.append(self._not())
        return conjunction(*operands)

    def _not(self) -> Expr:
        self._depth += 1
        if self._depth > _DEPTH_MAX:
            self._fail("The filter is nested too deeply", f"Use at most {_DEPTH_MAX} levels.")
        if self._taken(Kind.KEYWORD, "NOT"):
            expr: Expr = Not(self._not())
        elif self._taken(Kind.MARK, "("):
            expr = self._or()
            self._need(Kind.MARK, ")")
        else:
            expr = self._predicate()
        self._depth -= 1
        return expr

    def _predicate(self) -> Expr:
        if self._starts_column():
            return self._about(self._column())
        literal = self._literal()
        if self._next.kind is Kind.OPERATOR:
            op = _OPERATORS[self._take().text]
            if not self._starts_column():
                self._fail("A column was expected", "Compare a column with a value.")
            return Comparison(op.mirrored, self._column(), literal)
        if literal.value is None or isinstance(literal.value, bool):
            return Constant(literal.value)
        return self._never("A comparison was expected", "Compare a column with a value.")

    def _never(self, message: str, hint: str) -> Expr:
        raise self._fail(message, hint)
