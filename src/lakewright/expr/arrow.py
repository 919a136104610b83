"""Bound filters as `pyarrow.compute.Expression`, for Arrow's own scanners.

Guarantees: the expression is true for exactly the rows that pass the filter; where the filter is
unknown, the expression is null or false, which scanners treat alike. Arrow may prune row groups by
it: comparisons that NaN passes say so, because Parquet statistics do not know of NaN.
"""

from __future__ import annotations

from functools import reduce
from operator import and_, or_

import pyarrow as pa
import pyarrow.compute as pc

from lakewright.expr.coerce import work_type
from lakewright.expr.evaluate import COMPARE, scalar
from lakewright.expr.logic import negation_normal, require_bound
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
    Op,
    Or,
)


def to_arrow(expr: Expr) -> pc.Expression:
    """A bound filter as an Arrow expression; `FilterError` if it is not bound."""
    require_bound(expr)
    return _expression(negation_normal(expr))


def _expression(expr: Expr) -> pc.Expression:
    match expr:
        case And(operands):
            return reduce(and_, map(_expression, operands))
        case Or(operands):
            return reduce(or_, map(_expression, operands))
        case Constant(value):
            return pc.scalar(value is True)
        case IsNull(column):
            return pc.field(*column.path).is_null()
        case Not(IsNull(column)):
            return pc.field(*column.path).is_valid()
        case Comparison(op, column, literal):
            values = _values(column)
            answer = COMPARE[op](values, pc.scalar(scalar(literal)))
            nan_passes = op in (Op.GT, Op.GE) and pa.types.is_floating(column.type)
            return answer | pc.is_nan(values) if nan_passes else answer
        case In(column, _):
            return pc.is_in(_values(column, list_=expr), options=_options(expr))
        case Not(In(column, _) as listed):
            if listed.has_null:
                return pc.scalar(False)
            values = _values(column, list_=listed)
            return pc.field(*column.path).is_valid() & ~pc.is_in(values, options=_options(listed))
        case Like(column, pattern):
            return pc.match_like(_values(column), pattern)
        case Not(Like(column, pattern)):
            return ~pc.match_like(_values(column), pattern)
    raise AssertionError(f"unknown filter node {type(expr).__name__}")


def _options(expr: In) -> pc.SetLookupOptions:
    return pc.SetLookupOptions(value_set=expr.array)


def _values(column: Column, *, list_: In | None = None) -> pc.Expression:
    """The column, cast where Arrow lacks the comparison for its own type."""
    field = pc.field(*column.path)
    wanted = work_type(column.type) if list_ is None else list_.array.type
    return field if wanted == column.type and not column.dictionary else field.cast(wanted)
