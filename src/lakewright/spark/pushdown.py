"""Filters that Spark offers to a Python data source, as far as they help to read less.

Guarantees: every row that passes Spark's filters passes the one returned here, so that it may skip
partitions, files and rows; Spark applies its own filters again. What cannot be translated exactly
is left to Spark: columns that Spark sees in another type than the table has, values that do not
fit, and kinds of filters this module does not know.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from lakewright.errors import FilterError
from lakewright.expr import ColumnBuilder, Expr, bind, conjunction
from lakewright.spark.schema import wire_type

__all__ = ["pushed_filter"]

_TRANSLATED: dict[str, Callable[[ColumnBuilder, Any], Expr]] = {
    "EqualTo": lambda column, value: column == value,
    "EqualNullSafe": lambda column, value: column.is_null() if value is None else column == value,
    "GreaterThan": lambda column, value: column > value,
    "GreaterThanOrEqual": lambda column, value: column >= value,
    "LessThan": lambda column, value: column < value,
    "LessThanOrEqual": lambda column, value: column <= value,
    "In": lambda column, values: column.isin(values),
    "IsNull": lambda column, _: column.is_null(),
    "IsNotNull": lambda column, _: column.is_not_null(),
    "StringStartsWith": lambda column, text: column.like(f"{_escaped(text)}%"),
    "StringEndsWith": lambda column, text: column.like(f"%{_escaped(text)}"),
    "StringContains": lambda column, text: column.like(f"%{_escaped(text)}%"),
}
"""By the class name, because Spark 4.0 does not have the classes."""


def pushed_filter(filters: Iterable[object], schema: pa.Schema) -> Expr | None:
    """The part of `filters`, all of which must hold, that lakewright understands."""
    understood = []
    for pushed in filters:
        try:
            translated = _translated(pushed, schema)
            if translated is not None:
                understood.append(bind(translated, schema))
        except FilterError:
            continue  # Spark compares types that filters here refuse to compare
    return conjunction(*understood) if understood else None


def _translated(pushed: Any, schema: pa.Schema) -> Expr | None:
    kind = type(pushed).__name__
    if kind == "Not":
        inner = _translated(pushed.child, schema)
        exact = type(pushed.child).__name__ != "EqualNullSafe"
        return None if inner is None or not exact else ~inner
    translate = _TRANSLATED.get(kind)
    if translate is None or not _same_type(pushed.attribute, schema):
        return None
    return translate(ColumnBuilder(*pushed.attribute), getattr(pushed, "value", None))


def _same_type(path: tuple[str, ...], schema: pa.Schema) -> bool:
    """Whether Spark compares the values that the table has; times and nanoseconds differ."""
    fields = {field.name: field.type for field in schema}
    for name in path[:-1]:
        if name not in fields or not pt.is_struct(fields[name]):
            return False
        fields = {field.name: field.type for field in fields[name].fields}
    kind = fields.get(path[-1])
    if kind is None:
        return False
    finer_or_equal = pt.is_timestamp(kind) and kind.unit != "ns"
    return finer_or_equal or bool(wire_type(kind, path[-1]) == kind)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
