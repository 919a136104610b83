"""W1: snapshot read of a merge-on-read table, whole, three columns, and as a stream."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from bench.data import MorTable, build

THREE = ["id", "ts", "d1"]


def _path(params: dict[str, Any]) -> Path:
    return build(MorTable(**params["table"]))


def _columns(params: dict[str, Any]) -> list[str] | None:
    return THREE if params.get("columns") == 3 else None


def floor(params: dict[str, Any]) -> Callable[[], object]:
    """The physical floor: decode the base files' columns, read the bytes of the logs."""
    path, columns = _path(params), _columns(params)
    bases, logs = sorted(path.glob("*.parquet")), sorted(path.glob(".*.log.*"))

    def call() -> object:
        tables = [pq.read_table(b, columns=columns) for b in bases]
        bytes_read = sum(len(log.read_bytes()) for log in logs)
        return len(tables) + bytes_read

    return call


def ours(params: dict[str, Any]) -> Callable[[], object]:
    """lakewright, whole result."""
    import lakewright as lw

    path, columns = _path(params), _columns(params)
    return lambda: lw.Table.open(path).scan(columns=columns).to_arrow()


def ours_warm(params: dict[str, Any]) -> Callable[[], object]:
    """lakewright, whole result, in a process that has read the table before."""
    read = ours(params)
    read()
    return read


def ours_stream(params: dict[str, Any]) -> Callable[[], object]:
    """lakewright, batches counted and dropped."""
    import lakewright as lw

    path, columns = _path(params), _columns(params)
    return lambda: sum(b.num_rows for b in lw.Table.open(path).scan(columns=columns).to_batches())


def hudi(params: dict[str, Any]) -> Callable[[], object]:
    """The Rust reader, whole result."""
    from hudi import HudiReadOptions, HudiTableBuilder

    path, columns = _path(params), _columns(params)

    def call() -> object:
        table = HudiTableBuilder.from_base_uri(str(path.resolve())).build()
        options = HudiReadOptions()
        if columns:
            options = options.with_projection(columns)
        return pa.Table.from_batches(table.read(options))

    return call


CONTENDERS = {
    "floor": floor,
    "ours": ours,
    "ours_warm": ours_warm,
    "ours_stream": ours_stream,
    "hudi": hudi,
}


def check(result: object) -> str:
    """Row count and an order-free hash of every column; nothing for the floor."""
    if isinstance(result, int):
        return ""
    if not isinstance(result, pa.Table):
        return ""
    names = sorted(result.column_names)
    frame = pl.from_arrow(result.select(names))
    assert isinstance(frame, pl.DataFrame)
    frame = frame.with_columns(pl.col(pl.Datetime).dt.epoch("us")) if "at" in names else frame
    sums = frame.select(pl.all().hash(seed=7).cast(pl.UInt64).sum()).row(0)
    return f"{result.num_rows}:{hash(tuple(int(s or 0) & (2**63 - 1) for s in sums)) & 0xFFFFFFFF}"
