"""Filters on batches: three-valued answers, computed on whole columns.

Guarantees: `evaluate` gives true, false or null for every row as SQL defines it, so that
`batch.filter(evaluate(expr, batch))` keeps exactly the rows that pass. Text is compared by its
UTF-8 bytes, NaN is the greatest number, -0.0 equals 0.0. No Python object per row.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakewright.errors import FilterError
from lakewright.expr.bind import bind
from lakewright.expr.coerce import is_bytes, is_text, work_type
from lakewright.expr.logic import is_bound
from lakewright.expr.text import column_text
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
    Op,
    Or,
)

COMPARE: dict[Op, Callable[[Any, Any], Any]] = {
    Op.EQ: pc.equal,
    Op.NE: pc.not_equal,
    Op.LT: pc.less,
    Op.LE: pc.less_equal,
    Op.GT: pc.greater,
    Op.GE: pc.greater_equal,
}


def evaluate(expr: Expr, batch: pa.RecordBatch) -> pa.BooleanArray:
    """True, false or null per row; a filter without types is first bound to the batch's schema."""
    if not is_bound(expr):
        expr = bind(expr, batch.schema)
    return _evaluated(expr, batch)


def _evaluated(expr: Expr, batch: pa.RecordBatch) -> pa.BooleanArray:
    match expr:
        case And(operands):
            return reduce(pc.and_kleene, (_evaluated(o, batch) for o in operands))
        case Or(operands):
            return reduce(pc.or_kleene, (_evaluated(o, batch) for o in operands))
        case Not(operand):
            return pc.invert(_evaluated(operand, batch))
        case Constant(value):
            return pa.repeat(pa.scalar(value, pa.bool_()), batch.num_rows)
        case IsNull(column):
            values = _values(batch, column)
            if pa.types.is_dictionary(values.type):
                values = values.dictionary_decode()
            return pc.is_null(values)
        case Comparison(op, column, literal):
            return _leaf(batch, column, lambda values: _compared(op, values, literal))
        case In(column, _):
            return _leaf(batch, column, lambda values: _listed(values, expr))
        case Like(column, pattern):
            return _leaf(batch, column, lambda values: pc.match_like(values, pattern))
    raise AssertionError(f"unknown filter node {type(expr).__name__}")


def _leaf(
    batch: pa.RecordBatch, column: Column, test: Callable[[pa.Array], pa.BooleanArray]
) -> pa.BooleanArray:
    """Test a column's values; those of a dictionary column once per distinct value."""
    values = _values(batch, column)
    if pa.types.is_dictionary(values.type):
        return test(_workable(values.dictionary, column)).take(values.indices)
    return test(_workable(values, column))


def _values(batch: pa.RecordBatch, column: Column) -> pa.Array:
    if batch.schema.get_field_index(column.path[0]) < 0:
        raise FilterError(
            f"The batch has no single column {column_text(column)}.",
            hint="Read the columns of the filter as well.",
            context={"column": column.name},
        )
    values = batch.column(column.path[0])
    for name in column.path[1:]:
        values = pc.struct_field(values, [name])
    return values


def _workable(values: pa.Array, column: Column) -> pa.Array:
    """Values in a type that Arrow compares; the column's own type, or one that differs in form."""
    kind = column.type
    wanted = work_type(kind)
    if values.type == wanted:
        return values
    types = pa.types
    same_meaning = (
        values.type == kind
        or (is_text(values.type) and is_text(kind))
        or (is_bytes(values.type) and is_bytes(kind))
        or (types.is_integer(values.type) and types.is_integer(kind))
    )
    if not same_meaning:
        raise FilterError(
            f"{column_text(column)} is {values.type} here, but the filter was bound to {kind}.",
            hint="Bring the batch to the schema of the filter before filtering it.",
            context={"column": column.name},
        )
    return values.cast(wanted)


def scalar(literal: Literal) -> pa.Scalar:
    """A bound literal as an Arrow scalar."""
    if literal.type is None:
        return pa.scalar(literal.value)
    return pa.scalar(literal.value, work_type(literal.type))


def _compared(op: Op, values: pa.Array, literal: Literal) -> pa.BooleanArray:
    answer = COMPARE[op](values, scalar(literal))
    if op in (Op.GT, Op.GE) and pa.types.is_floating(values.type):
        return pc.or_(answer, pc.is_nan(values))
    return answer


def _listed(values: pa.Array, expr: In) -> pa.BooleanArray:
    wanted = expr.array
    hit = pc.is_in(values.cast(wanted.type), value_set=wanted)
    unknown = pa.scalar(None, pa.bool_())
    if expr.has_null:
        return pc.if_else(hit, True, unknown)
    return pc.if_else(pc.is_valid(values), hit, unknown)
