"""Filters: one grammar and one tree for `where`, compiled to Arrow and to statistics pruning.

Text (`parse`) and Python (`col`) build the same frozen tree; `bind` fits it to a schema; `evaluate`
runs it on a batch, `to_arrow` gives it to Arrow, `can_match` and `keep_mask` decide by statistics
what need not be read.
"""

from __future__ import annotations

from lakewright.expr.arrow import to_arrow
from lakewright.expr.bind import bind
from lakewright.expr.builder import ColumnBuilder, col, lit
from lakewright.expr.evaluate import evaluate
from lakewright.expr.logic import columns, conjuncts_over, negation_normal, split_conjuncts
from lakewright.expr.parser import parse
from lakewright.expr.prune import ColumnRange, RangeColumns, can_match, keep_mask
from lakewright.expr.text import to_sql_text
from lakewright.expr.tree import Expr, conjunction, disjunction

__all__ = [
    "ColumnBuilder",
    "ColumnRange",
    "Expr",
    "RangeColumns",
    "bind",
    "can_match",
    "col",
    "columns",
    "conjunction",
    "conjuncts_over",
    "disjunction",
    "evaluate",
    "keep_mask",
    "lit",
    "negation_normal",
    "parse",
    "split_conjuncts",
    "to_arrow",
    "to_sql_text",
]
