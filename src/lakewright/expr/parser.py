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
from typing import NoReturn

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
_DIGITS_MAX = 80
_OPERATORS = {op.value: op for op in Op} | {"==": Op.EQ, "<>": Op.NE}
_FORMS = {
    "DATE": "DATE '2024-01-31'",
    "TIME": "TIME '23:59:59.999999'",
    "TIMESTAMP": "TIMESTAMP '2024-01-31 23:59:59.999999Z'",
    "X": "X'00ff'",
}


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

    def _fail(self, message: str, hint: str) -> NoReturn:
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
        if literal.value is not None and not isinstance(literal.value, bool):
            self._fail("A comparison was expected", "Compare a column with a value.")
        return Constant(literal.value)

    def _about(self, column: Column) -> Expr:
        """What follows a column."""
        if self._next.kind is Kind.OPERATOR:
            op = _OPERATORS[self._take().text]
            return Comparison(op, column, self._literal())
        if self._taken(Kind.KEYWORD, "IS"):
            negated = self._taken(Kind.KEYWORD, "NOT")
            self._need(Kind.KEYWORD, "NULL")
            return Not(IsNull(column)) if negated else IsNull(column)
        negated = self._taken(Kind.KEYWORD, "NOT")
        if self._taken(Kind.KEYWORD, "IN"):
            expr: Expr = In(column, self._list())
        elif self._taken(Kind.KEYWORD, "BETWEEN"):
            low = self._literal()
            self._need(Kind.KEYWORD, "AND")
            high = self._literal()
            expr = conjunction(Comparison(Op.GE, column, low), Comparison(Op.LE, column, high))
        elif self._taken(Kind.KEYWORD, "LIKE"):
            expr = Like(column, self._pattern())
        elif negated:
            self._fail("IN, BETWEEN or LIKE was expected", "Write NOT before the whole condition.")
        else:
            expr = Comparison(Op.EQ, column, Literal(True, column.position))
        return Not(expr) if negated else expr

    def _list(self) -> tuple[Literal, ...]:
        self._need(Kind.MARK, "(")
        if self._taken(Kind.MARK, ")"):
            return ()
        values = [self._literal()]
        while self._taken(Kind.MARK, ","):
            values.append(self._literal())
        self._need(Kind.MARK, ")")
        return tuple(values)

    def _pattern(self) -> str:
        if self._next.kind is not Kind.STRING:
            self._fail("A quoted pattern was expected", "Write LIKE 'prefix%'.")
        token = self._take()
        return check_pattern(token.text, token.position)

    def _starts_column(self) -> bool:
        token = self._next
        if token.kind is Kind.NAME:
            return not self._is_typed_literal()
        return token.kind is Kind.QUOTED

    def _is_typed_literal(self) -> bool:
        """DATE, TIME, TIMESTAMP and X are names, unless a text follows them."""
        token, after = self._next, self._tokens[self._at + 1]
        word = token.text.upper()
        return word in _FORMS and after.kind is Kind.STRING and (after.adjacent or word != "X")

    def _column(self) -> Column:
        position = self._next.position
        path = [self._take().text]
        while self._taken(Kind.MARK, "."):
            if self._next.kind not in (Kind.NAME, Kind.QUOTED, Kind.KEYWORD):
                self._fail("A field name was expected", "Quote unusual names with `.")
            token = self._take()
            # A keyword after a dot is a name; tokens keep only its capitals.
            start = token.position - 1
            as_written = self._text[start : start + len(token.text)]
            path.append(as_written if token.kind is Kind.KEYWORD else token.text)
        return Column(tuple(path), position)

    def _literal(self) -> Literal:
        token = self._next
        if token.kind is Kind.NAME and self._is_typed_literal():
            return self._typed_literal()
        if token.kind is Kind.STRING:
            return Literal(self._take().text, token.position)
        if token.kind is Kind.KEYWORD and token.text in ("TRUE", "FALSE", "NULL"):
            value = {"TRUE": True, "FALSE": False, "NULL": None}[self._take().text]
            return Literal(value, token.position)
        if token.kind in (Kind.NAME, Kind.QUOTED):
            self._fail("A value was expected and not a name", "Write text in single quotes.")
        signed = self._taken(Kind.MARK, "+", "-")
        if not signed and token.kind is not Kind.NUMBER:
            self._fail("A value was expected", "Write a number or 'text'.")
        return Literal(self._number(negative=token.text == "-"), token.position)

    def _number(self, *, negative: bool) -> Value:
        if self._next.kind is not Kind.NUMBER:
            self._fail("A number was expected", "Write digits after the sign.")
        after = self._tokens[self._at + 1]
        if after.adjacent and after.kind in (Kind.NAME, Kind.KEYWORD):
            self._fail("A number runs into a name", "Put a space between them, or quote the name.")
        if len(self._next.text) > _DIGITS_MAX:
            self._fail("The number is too long", f"Use at most {_DIGITS_MAX} characters.")
        text = ("-" if negative else "") + self._take().text
        if "e" in text.lower():
            return float(text)
        return Decimal(text) if "." in text else int(text)

    def _typed_literal(self) -> Literal:
        kind, content = self._take(), self._take()
        word = kind.text.upper()
        value = _typed_value(word, content.text)
        if value is None:
            form = _FORMS[word]
            fail(self._text, content.position, f"{content.text!r} is no {word}", f"Write {form}.")
        return Literal(value, kind.position)


def _typed_value(word: str, content: str) -> Value:
    """The value of a typed literal; None if it is malformed."""
    if word == "DATE":
        return parse_date(content)
    if word == "TIME":
        return parse_time(content)
    if word == "TIMESTAMP":
        return parse_timestamp(content)
    try:
        return bytes.fromhex(content) if " " not in content else None
    except ValueError:
        return None
