"""Filters as text: the form that the parser reads back to the same tree."""

from __future__ import annotations

import math
import re
from datetime import UTC, date, datetime
from decimal import Decimal

from lakewright.expr.tree import (
    And,
    Column,
    Comparison,
    Constant,
    Expr,
    In,
    IsNull,
    Like,
    Literal,
    Not,
    Or,
    Value,
)

KEYWORDS = frozenset({"AND", "OR", "NOT", "IN", "BETWEEN", "LIKE", "IS", "NULL", "TRUE", "FALSE"})

_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def to_sql_text(expr: Expr) -> str:
    """`expr` in the grammar of `parse`: `parse(to_sql_text(e)) == e`."""
    match expr:
        case And(operands):
            return " AND ".join(
                _grouped(o) if isinstance(o, Or) else to_sql_text(o) for o in operands
            )
        case Or(operands):
            return " OR ".join(to_sql_text(o) for o in operands)
        case Not(IsNull(column)):
            return f"{column_text(column)} IS NOT NULL"
        case Not(In(column, values)):
            return f"{column_text(column)} NOT IN ({', '.join(map(_literal, values))})"
        case Not(Like(column, pattern)):
            return f"{column_text(column)} NOT LIKE {_quoted(pattern)}"
        case Not(operand):
            return f"NOT {_grouped(operand)}"
        case Constant(value):
            return literal_text(value)
        case Comparison(op, column, literal):
            return f"{column_text(column)} {op.value} {_literal(literal)}"
        case In(column, values):
            return f"{column_text(column)} IN ({', '.join(map(_literal, values))})"
        case Like(column, pattern):
            return f"{column_text(column)} LIKE {_quoted(pattern)}"
        case IsNull(column):
            return f"{column_text(column)} IS NULL"
    raise AssertionError(f"unknown filter node {type(expr).__name__}")


def column_text(column: Column) -> str:
    """A column's path, quoted where it is not plain."""
    return ".".join(_identifier(name) for name in column.path)


def literal_text(value: Value) -> str:
    """A value as a typed literal."""
    if value is None or isinstance(value, bool):
        return {None: "NULL", True: "TRUE", False: "FALSE"}[value]
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return _float(value)
    if isinstance(value, Decimal):
        plain = format(value, "f")
        return plain if "." in plain else f"{plain}."
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, bytes):
        return f"X'{value.hex()}'"
    if isinstance(value, datetime):
        return f"TIMESTAMP '{_timestamp(value)}'"
    if isinstance(value, date):
        return f"DATE '{value.isoformat()}'"
    return f"TIME '{value.isoformat()}'"


def _literal(literal: Literal) -> str:
    return literal_text(literal.value)


def _grouped(expr: Expr) -> str:
    return f"({to_sql_text(expr)})"


def _identifier(name: str) -> str:
    if _PLAIN_NAME.fullmatch(name) and name.upper() not in KEYWORDS:
        return name
    return "`" + name.replace("`", "``") + "`"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _float(value: float) -> str:
    """With an exponent, which is what tells a double from a decimal; infinity is out of range."""
    if math.isinf(value):
        return "1e999" if value > 0 else "-1e999"
    shown = repr(value)
    return shown if "e" in shown else f"{shown}e0"


def _timestamp(value: datetime) -> str:
    if value.tzinfo is None:
        return value.isoformat(sep=" ")
    return value.astimezone(UTC).replace(tzinfo=None).isoformat(sep=" ") + "Z"
