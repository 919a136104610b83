"""Rows in the form of the committed expectations: plain JSON values, order-free."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from typing import Any

import pyarrow as pa


def plain(value: Any) -> Any:
    """Dates and times as ISO text, decimals as text, bytes as hex, maps as lists of pairs."""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, dt.datetime):
        return value.isoformat()
    if isinstance(value, dt.date | dt.time):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    return value


def canonical(rows: list[dict[str, Any]]) -> list[str]:
    """One JSON text per row, sorted."""
    return sorted(json.dumps(r, sort_keys=True, ensure_ascii=False) for r in rows)


def table_rows(table: pa.Table) -> list[dict[str, Any]]:
    """The rows of an Arrow table as plain values."""
    return [plain(r) for r in table.to_pylist()]
