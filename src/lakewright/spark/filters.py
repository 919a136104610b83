"""Filters as Spark columns, for the part of a read that Spark's own Parquet scan does.

Guarantees: the column is true for exactly the rows that pass the bound filter, and false or null
for the others, whatever the session's time zone, ANSI mode or parser settings are. Literals are
given in the column's own type, so that Spark pushes the comparison down into the files.

What Spark pushes down is decided there by statistics and dictionaries, which may not know of NaN
and take -0.0 for less than 0.0. Comparisons that NaN passes therefore say so, which keeps them out
of the files, and a zero stands for both.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime, time
from decimal import Decimal
from functools import reduce
from operator import and_, eq, ge, gt, le, lt, ne, or_
from typing import Any

import pyarrow as pa
import pyarrow.types as pt
from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as F  # noqa: N812 - how Spark's users write it

from lakewright.expr import Expr, negation_normal
from lakewright.expr.tree import (
    And,
    Column,
    Comparison,
    Constant,
    In,
    IsNull,
    Like,
    Literal,
    Not,
    Op,
    Or,
)
from lakewright.spark.schema import spark_type

__all__ = ["column_of", "spark_filter"]

_COMPARE: dict[Op, Callable[[Any, Any], Any]] = {
    Op.EQ: eq,
    Op.NE: ne,
    Op.LT: lt,
    Op.LE: le,
    Op.GT: gt,
    Op.GE: ge,
}
_NAN_PASSES = (Op.GT, Op.GE, Op.NE)


def spark_filter(expr: Expr) -> SparkColumn:
    """A bound filter as a Spark column."""
    return _compiled(negation_normal(expr))


def column_of(*path: str) -> SparkColumn:
    """A column, or a field inside of struct columns, whatever characters its name has."""
    return F.col(".".join("`" + name.replace("`", "``") + "`" for name in path))


def _compiled(expr: Expr) -> SparkColumn:
    match expr:
        case And(operands):
            return reduce(and_, map(_compiled, operands))
        case Or(operands):
            return reduce(or_, map(_compiled, operands))
        case Constant(value):
            return F.lit(value).cast("boolean")
        case IsNull(column):
            return column_of(*column.path).isNull()
        case Not(IsNull(column)):
            return column_of(*column.path).isNotNull()
        case Comparison(op, column, literal):
            return _compared(op, column, literal)
        case In(column, values):
            return _listed(column, values, hit=True)
        case Not(In(column, values)):
            return _listed(column, values, hit=False)
        case Like(column, pattern):
            return column_of(*column.path).like(pattern)
        case Not(Like(column, pattern)):
            return ~column_of(*column.path).like(pattern)
    raise AssertionError(f"unknown filter node {type(expr).__name__}")


def _compared(op: Op, column: Column, literal: Literal) -> SparkColumn:
    tested, value = column_of(*column.path), literal.value
    if not pt.is_floating(column.type):
        compared: SparkColumn = _COMPARE[op](tested, _value(column, literal))
        return compared
    if value == 0:
        if op is Op.EQ:
            return _zero(tested)
        value = -0.0 if op is Op.GE else 0.0
    compared = _COMPARE[op](tested, _value(column, replace(literal, value=value)))
    return compared | F.isnan(tested) if op in _NAN_PASSES else compared


def _zero(tested: SparkColumn) -> SparkColumn:
    return (tested >= F.lit(-0.0)) & (tested <= F.lit(0.0))


def _listed(column: Column, values: tuple[Literal, ...], *, hit: bool) -> SparkColumn:
    tested, floating = column_of(*column.path), pt.is_floating(column.type)
    if not values:  # Spark takes null IN () for false, and NOT of it for true
        return F.when(tested.isNotNull(), F.lit(not hit))
    zero = floating and any(literal.value == 0 for literal in values)
    others = [v for v in values if not (zero and v.value == 0)]
    parts = [tested.isin([_value(column, literal) for literal in others])] if others else []
    found = reduce(or_, [*parts, _zero(tested)] if zero else parts)
    if hit:
        return found
    nan_passes = floating and not any(literal.value is None for literal in values)
    return ~found | F.isnan(tested) if nan_passes else ~found


def _value(column: Column, literal: Literal) -> SparkColumn:
    """A bound literal in the type that Spark reads the column as."""
    value = literal.value
    kind = pa.float64() if isinstance(value, float) else column.type
    target = spark_type(kind, column.name)
    if isinstance(value, datetime):
        return F.expr(_moment(value)).cast(target)
    if isinstance(value, date):
        return F.expr(f"DATE '{value.isoformat()}'").cast(target)
    if isinstance(value, time):
        return F.lit(_ticks(value, column.type)).cast(target)
    if isinstance(value, Decimal):
        return F.lit(format(value, "f")).cast(target)
    if isinstance(value, bytes):
        return F.lit(bytearray(value))
    return F.lit(value).cast(target)


def _moment(value: datetime) -> str:
    """As text for Spark's parser, because its conversion of Python's values shifts old dates."""
    if value.tzinfo is None:
        return f"TIMESTAMP_NTZ '{value.isoformat(sep=' ')}'"
    utc = value.astimezone(UTC).replace(tzinfo=None)
    return f"TIMESTAMP_LTZ '{utc.isoformat(sep=' ')}Z'"


def _ticks(value: time, kind: pa.DataType) -> int:
    return int(pa.scalar(value, kind).value)
