"""Binding a filter to a schema: columns found, types checked, literals in the column's own type.

Guarantees: a bound filter selects from rows of that schema exactly what the written one means, and
every leaf carries its column's type and a literal of that type (see `coerce`); a filter that does
not fit raises `FilterError` with the position in the text, the nearest column names or the form of
literal that would fit. Timestamps without zone are taken as UTC against a column with zone; the
reverse is refused, because it would be a guess. Column names are case-sensitive.
"""

from __future__ import annotations

import difflib
from dataclasses import replace
from typing import NoReturn

import pyarrow as pa

from lakewright.errors import FilterError
from lakewright.expr.coerce import MismatchError, compared, is_text, listed
from lakewright.expr.text import column_text, literal_text
from lakewright.expr.tree import (
    And,
    Column,
    Comparison,
    Constant,
    Expr,
    In,
    IsNull,
    Like,
    Not,
    Or,
    conjunction,
    disjunction,
)

_LISTED_MAX = 10


def bind(expr: Expr, schema: pa.Schema) -> Expr:
    """`expr` with types and literals of `schema`; `FilterError` if it does not fit."""
    match expr:
        case And(operands):
            return conjunction(*(bind(o, schema) for o in operands))
        case Or(operands):
            return disjunction(*(bind(o, schema) for o in operands))
        case Not(operand):
            return Not(bind(operand, schema))
        case IsNull(column):
            return IsNull(_found(column, schema))
        case Comparison():
            return _comparison(replace(expr, column=_found(expr.column, schema)))
        case In(column, values):
            return _list(In(_found(column, schema), values))
        case Like(column, pattern):
            return _pattern(Like(_found(column, schema), pattern))
    return expr


def _comparison(expr: Comparison) -> Expr:
    if expr.literal.value is None or pa.types.is_null(expr.column.type):
        return Constant(None)
    try:
        return compared(expr.op, expr.column, expr.literal)
    except MismatchError as mismatch:
        _mismatch(expr.column, mismatch)


def _list(expr: In) -> Expr:
    if pa.types.is_null(expr.column.type):
        return Constant(None)
    try:
        return listed(expr.column, expr.values)
    except MismatchError as mismatch:
        _mismatch(expr.column, mismatch)


def _pattern(expr: Like) -> Expr:
    if pa.types.is_null(expr.column.type):
        return Constant(None)
    if not is_text(expr.column.type):
        _fail(
            f"LIKE needs a text column, and {column_text(expr.column)} is {expr.column.type}",
            "Compare it with = or BETWEEN.",
            expr.column.position,
        )
    return expr


def _found(column: Column, schema: pa.Schema) -> Column:
    """`column` with its type; dictionary columns count as what they encode."""
    fields = {field.name: field.type for field in schema}
    kind: pa.DataType | None = None
    encoded = False
    for depth, name in enumerate(column.path):
        if name not in fields:
            _unknown(column, depth, list(fields))
        kind = fields[name]
        encoded = pa.types.is_dictionary(kind)
        kind = kind.value_type if encoded else kind
        last = depth == len(column.path) - 1
        if not last and not pa.types.is_struct(kind):
            inner = column_text(Column(column.path[: depth + 1]))
            _fail(
                f"{inner} is {kind} and has no fields to filter by",
                "Go down into struct columns only; quote names that contain a dot with `.",
                column.position,
            )
        fields = {} if last else {field.name: field.type for field in kind}
    return replace(column, type=kind, dictionary=encoded)


def _unknown(column: Column, depth: int, names: list[str]) -> NoReturn:
    asked = column.path[depth]
    lowered = {name.lower(): name for name in names}
    close = difflib.get_close_matches(asked.lower(), lowered, n=3, cutoff=0.6)
    nearest = [column_text(Column((*column.path[:depth], lowered[name]))) for name in close]
    if nearest:
        hint = f"Did you mean {' or '.join(nearest)}?"
    elif len(names) <= _LISTED_MAX:
        hint = f"There are: {', '.join(column_text(Column((name,))) for name in names)}."
    else:
        hint = "See the table's schema for its columns."
    shown = column_text(Column(column.path[: depth + 1]))
    _fail(f"There is no column {shown}", hint, column.position)


def _mismatch(column: Column, mismatch: MismatchError) -> NoReturn:
    literal = mismatch.literal
    _fail(
        f"{column_text(column)} is {column.type} and cannot be compared with "
        f"{literal_text(literal.value)}",
        f"Write {mismatch.fitting}.",
        literal.position or column.position,
    )


def _fail(message: str, hint: str, position: int | None) -> NoReturn:
    where = "" if position is None else f" (character {position} of the filter)"
    context = {} if position is None else {"position": position}
    raise FilterError(f"{message}{where}.", hint=hint, context=context)
