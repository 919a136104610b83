"""Filters in Python: `col("a") >= 5`, `col("city").isin(["sf", "la"]) & ~col("b").is_null()`.

Guarantees: builds exactly the tree that the parser builds for the same words. A `ColumnBuilder` is
not a filter itself until it is compared.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from lakewright.errors import FilterError
from lakewright.expr.tree import (
    Column,
    Comparison,
    Expr,
    In,
    IsNull,
    Like,
    Literal,
    Not,
    Op,
    check_pattern,
    conjunction,
    literal_of,
)


class ColumnBuilder:
    """A column to be compared."""

    __slots__ = ("_column",)
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, *path: str) -> None:
        self._column = Column(path)

    def __repr__(self) -> str:
        return f"col({', '.join(map(repr, self._column.path))})"

    def __eq__(self, value: object) -> Expr:  # type: ignore[override]
        return self._compare(Op.EQ, value)

    def __ne__(self, value: object) -> Expr:  # type: ignore[override]
        return self._compare(Op.NE, value)

    def __lt__(self, value: object) -> Expr:
        return self._compare(Op.LT, value)

    def __le__(self, value: object) -> Expr:
        return self._compare(Op.LE, value)

    def __gt__(self, value: object) -> Expr:
        return self._compare(Op.GT, value)

    def __ge__(self, value: object) -> Expr:
        return self._compare(Op.GE, value)

    def isin(self, values: Iterable[Any]) -> Expr:
        """`column IN (values)`."""
        if isinstance(values, str | bytes):
            raise FilterError(
                "isin needs several values, not one text.", hint="Write isin([value]) or ==."
            )
        return In(self._column, tuple(literal_of(value) for value in values))

    def between(self, low: Any, high: Any) -> Expr:
        """`column BETWEEN low AND high`, both ends included."""
        return conjunction(self >= low, self <= high)

    def is_null(self) -> Expr:
        """`column IS NULL`."""
        return IsNull(self._column)

    def is_not_null(self) -> Expr:
        """`column IS NOT NULL`."""
        return Not(IsNull(self._column))

    def like(self, pattern: str) -> Expr:
        """`column LIKE 'pattern'`: `%` any text, `_` one character, `\\` escapes."""
        return Like(self._column, check_pattern(pattern))

    def startswith(self, prefix: str) -> Expr:
        """Texts that begin with exactly `prefix`."""
        escaped = prefix.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
        return Like(self._column, f"{escaped}%")

    def _compare(self, op: Op, value: object) -> Expr:
        if isinstance(value, ColumnBuilder):
            raise FilterError(
                "Filters compare columns with values, not with other columns.",
                hint="Compare two columns after reading.",
            )
        return Comparison(op, self._column, literal_of(value))


def col(name: str, *inner: str) -> ColumnBuilder:
    """The column `name`; further names go down into struct fields: `col("a", "b")` is `a.b`.

    >>> from lakewright.expr import to_sql_text
    >>> to_sql_text((col("ts") >= 5) & col("city").isin(["sf", "la"]))
    "ts >= 5 AND city IN ('sf', 'la')"
    """
    return ColumnBuilder(name, *inner)


def lit(value: Any) -> Literal:
    """`value` as a literal, for comparisons that begin with it: `lit(5) < col("a")`."""
    return literal_of(value)
