"""Filter texts: a filter is refused with `FilterError`, or means one thing.

A filter that parses must parse to the same tree from its printed text, and a filter that fits a
schema must select the same rows through Arrow's expressions as through our own evaluation; where
statistics rule rows out, there must be none.
"""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from lakewright.errors import FilterError
from lakewright.expr import (
    ColumnRange,
    bind,
    can_match,
    columns,
    evaluate,
    negation_normal,
    parse,
    to_arrow,
    to_sql_text,
)
from lakewright.testing.fuzz.corpus import Corpus, Seed
from lakewright.testing.fuzz.judging import Case, Target, demand

__all__ = ["TARGETS"]

_FILTERS: Final = (
    "n = 5 AND s LIKE 'a%' OR NOT (d > 1.5)",
    "n IN (1, 2, NULL) AND s IS NOT NULL",
    "x BETWEEN -1.25 AND 7e3 OR b",
    "day >= DATE '2024-01-31' AND at < TIMESTAMP '2024-01-31 23:59:59.999999Z'",
    "`s` <> 'it''s' AND \"n\" != -9223372036854775808",
    "r.a = 1 OR r.t = 'x' OR bin = X'00ff'",
    "tm = TIME '23:59:59' AND NOT NOT NOT b = FALSE",
    "5 < n AND TRUE OR NULL",
    "s NOT LIKE '_%x' AND n NOT IN ()",
)
_BATCH: Final = pa.record_batch(
    {
        "n": pa.array([1, None, -(2**63), 5, 2**63 - 1], pa.int64()),
        "i": pa.array([1, 2, None, -(2**31), 7], pa.int32()),
        "s": ["a", None, "abx", "it's", ""],
        "d": [1.5, None, float("nan"), -0.0, 1e300],
        "f": pa.array([1.5, None, 3.0, -0.0, 1e30], pa.float32()),
        "x": pa.array(
            [Decimal("1.25"), None, Decimal("-7.00"), Decimal(0), Decimal("99.99")],
            pa.decimal128(10, 2),
        ),
        "b": [True, None, False, True, False],
        "day": pa.array([dt.date(2024, 1, 31), None] + [dt.date(1, 1, 1)] * 3),
        "at": pa.array([0, None, 5, -5, 1_706_745_599_999_999], pa.timestamp("us", "UTC")),
        "lo": pa.array([0, None, 5, -5, 7], pa.timestamp("ms")),
        "tm": pa.array([0, None, 5, 6, 86_399_000_000], pa.time64("us")),
        "bin": [b"\x00\xff", None, b"", b"a", b"\xff"],
        "r": [{"a": 1, "t": "x"}, None, {"a": None, "t": "y"}, {"a": 2, "t": None}, None],
    }
)


def _range(name: str) -> ColumnRange:
    column = _BATCH.column(name)
    has_order = name not in ("d", "r")
    low, high = pc.min_max(column).as_py().values() if has_order else (None, None)
    return ColumnRange(low, high, column.null_count, _BATCH.num_rows)


_RANGES: Final = {name: _range(name) for name in _BATCH.schema.names}


def _seeds(corpus: Corpus) -> list[Seed]:
    del corpus
    return [Seed(f"made:filter-{n}", text.encode()) for n, text in enumerate(_FILTERS)]


def _check(case: Case) -> None:
    text = case.data.decode("utf-8", "replace")
    tree = parse(text)
    printed = to_sql_text(tree)
    demand(to_sql_text(parse(printed)) == printed, f"{printed!r} does not mean itself")
    columns(tree)
    bound = bind(tree, _BATCH.schema)
    kept = evaluate(bound, _BATCH)
    demand(len(kept) == _BATCH.num_rows, "another number of answers")
    table = pa.Table.from_batches([_BATCH])
    by_arrow = table.filter(to_arrow(bound)).num_rows
    ours = pc.sum(pc.fill_null(kept, False)).as_py() or 0
    demand(by_arrow == ours, f"Arrow keeps {by_arrow} rows, we {ours}")
    again = evaluate(bind(negation_normal(tree), _BATCH.schema), _BATCH)
    demand(pc.fill_null(again, False).equals(pc.fill_null(kept, False)), "negated, other rows")
    demand(can_match(bound, _RANGES.get) or not ours, "rows were ruled out that match")


TARGETS: Final = (
    Target(
        name="filter",
        about="texts of filters, bound to a schema and run",
        seeds=_seeds,
        check=_check,
        allowed=(FilterError,),
        unplaced=(FilterError,),
        tokens=(
            b" AND ",
            b" OR ",
            b" NOT ",
            b"(",
            b")",
            b" IN (",
            b" LIKE '",
            b" BETWEEN ",
            b" IS NULL",
            b"DATE '",
            b"TIMESTAMP '",
            b"X'",
            b"1e308",
            b"-",
            b".",
            b"'",
            b"`",
            b"NULL",
            b"9" * 40,
            "ß".encode(),
            b"(" * 200,
        ),
        share=6,
    ),
)
