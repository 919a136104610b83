"""Rewriting filters without changing what they select: negations, conjuncts, columns."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import pyarrow as pa

from lakewright.errors import FilterError
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
    conjunction,
    disjunction,
)


def columns_of(expr: Expr) -> Iterator[Column]:
    """Every mention of a column, in order."""
    match expr:
        case And(operands) | Or(operands):
            for operand in operands:
                yield from columns_of(operand)
        case Not(operand):
            yield from columns_of(operand)
        case Comparison() | In() | Like() | IsNull():
            yield expr.column


def columns(expr: Expr) -> frozenset[str]:
    """The top-level columns that must be read to decide `expr`."""
    return frozenset(column.path[0] for column in columns_of(expr))


def is_bound(expr: Expr) -> bool:
    """Whether every column of `expr` has the type that `bind` gives."""
    return all(column.type is not None for column in columns_of(expr))


def require_bound(expr: Expr) -> None:
    """Raise `FilterError` if `expr` is not bound."""
    if not is_bound(expr):
        raise FilterError(
            "Only a bound filter can be compiled.", hint="Call bind(expr, schema) first."
        )


def negation_normal(expr: Expr) -> Expr:
    """The same filter with NOT only directly before IN, LIKE and IS NULL.

    Exact in three-valued logic, also for NaN, because comparisons are a total order.
    """
    match expr:
        case And(operands):
            return conjunction(*(negation_normal(o) for o in operands))
        case Or(operands):
            return disjunction(*(negation_normal(o) for o in operands))
        case Not(operand):
            return _negated(operand)
    return expr


def _negated(expr: Expr) -> Expr:
    match expr:
        case And(operands):
            return disjunction(*(_negated(o) for o in operands))
        case Or(operands):
            return conjunction(*(_negated(o) for o in operands))
        case Not(operand):
            return negation_normal(operand)
        case Constant(value):
            return Constant(None if value is None else not value)
        case Comparison(op, column, literal):
            return Comparison(op.negated, column, literal)
    return Not(expr)


def split_conjuncts(expr: Expr) -> tuple[Expr, ...]:
    """Filters that all must hold for `expr` to hold; none for TRUE."""
    normal = negation_normal(expr)
    if isinstance(normal, And):
        return normal.operands
    return () if normal == Constant(True) else (normal,)


def conjuncts_over(expr: Expr, names: Collection[str]) -> Expr | None:
    """The part of `expr` that the top-level columns `names` decide alone; None if there is none.

    Every row that passes `expr` passes this part, so that it may be applied earlier.
    """
    wanted = frozenset(names)
    part = [conjunct for conjunct in split_conjuncts(expr) if columns(conjunct) <= wanted]
    return conjunction(*part) if part else None


def asked_values(expr: Expr, column: str) -> pa.Array | None:
    """Values of which a passing row has one in `column`, by one part of a bound filter.

    None if no part of the filter lists values: then any value may pass.
    """
    for conjunct in split_conjuncts(expr):
        match conjunct:
            case Comparison(Op.EQ, Column() as named, literal) if named.name == column:
                listed = [literal.value]
            case In(named, literals) if named.name == column:
                listed = [literal.value for literal in literals]
            case _:
                continue
        return pa.array([v for v in listed if v is not None], named.type)
    return None
