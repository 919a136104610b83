"""What the writer of a log file tells about its columns is what a reader finds in it."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

import lakewright as lw
from lakewright.engine import index_records
from lakewright.engine.stored_statistics import log_file_statistics
from lakewright.metadata.verification import Difference

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("ts", pa.int64()),
        ("flag", pa.bool_()),
        ("small", pa.int32()),
        ("single", pa.float32()),
        ("double", pa.float64()),
        ("money", pa.decimal128(12, 2)),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("raw", pa.binary()),
        ("text", pa.string()),
        ("nothing", pa.string()),
        ("inner", pa.struct([("a", pa.int32()), ("b", pa.string())])),
        ("list", pa.list_(pa.int32())),
        ("map", pa.map_(pa.string(), pa.int32())),
    ]
)
INDEXED = {
    "hoodie.metadata.enable": "true",
    "hoodie.metadata.index.column.stats.enable": "true",
}


def rows(numbers: range) -> pa.Table:
    """Rows whose values have signs, gaps, NaN and letters beyond the first plane."""
    made = [
        {
            "id": f"k{n}",
            "ts": n,
            "flag": n % 2 == 0,
            "small": n - 5,
            "single": math.nan if n == 3 else n / 3,
            "double": -n / 7,
            "money": Decimal(n) / 4 - 1,
            "day": date(1969, 12, 28) + timedelta(days=n),
            "at": datetime(1969, 12, 31, tzinfo=UTC) + timedelta(hours=5 * n),
            "raw": bytes([n, 250 - n]),
            "text": None if n == 4 else "zé𝄞"[: n % 4] + str(n),
            "nothing": None,
            "inner": {"a": n, "b": None},
            "list": [n],
            "map": [("x", n)],
        }
        for n in numbers
    ]
    return pa.Table.from_pylist(made, schema=SCHEMA)


@pytest.mark.parametrize("blocks", ["avro", "parquet"])
@pytest.mark.parametrize("version", [6, 8])
def test_statistics_of_rows_on_their_way_are_those_of_the_file(
    tmp_path: Path, version: int, blocks: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = lw.Table.create(
        tmp_path / "t", schema=SCHEMA, key=["id"], ordering=["ts"], type="mor", version=version
    )
    options = {**INDEXED, "hoodie.logfile.data.block.format": blocks}
    table.upsert(rows(range(8)), options=options)
    read: list[str] = []

    def seen(storage: object, path: str, **more: object) -> object:
        read.append(path)
        return log_file_statistics(storage, path, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(index_records, "log_file_statistics", seen)
    table.upsert(rows(range(2, 7)), options=options)
    table.delete(pa.table({"id": ["k1"]}), options=options)
    assert read == [], "a log was read that its writer had told everything about"
    logs = [p for p in (tmp_path / "t").glob(".*.log.*") if not p.name.endswith(".crc")]
    assert len(logs) == 2
    found = [f for f in table.metadata.verify("column_stats") if isinstance(f, Difference)]
    assert found == []
