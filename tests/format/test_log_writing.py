"""Blocks that are written: byte for byte those of real logs, and what goes in comes out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakewright.codec.avro.arrow_types import from_arrow
from lakewright.codec.avro.schema import to_json
from lakewright.codec.parquet import read_columns
from lakewright.codec.parquet_writer import ParquetPolicy
from lakewright.errors import FormatError
from lakewright.format.block_rows import avro_rows, open_parquet_block
from lakewright.format.file_names import parse_log_file
from lakewright.format.log_block import BlockType, HeaderKey, LogBlock, read_blocks
from lakewright.format.log_content import delete_rows, record_positions
from lakewright.format.log_writing import BlockPositions, BlockWriter
from lakewright.format.version import TableVersion
from tests.corpus import CommittedTable, committed_tables

INSTANT = "20260101000000000"
BASE = "20251231000000000"
LARGE = 1 << 30
ROWS = pa.schema([("_hoodie_record_key", pa.string()), ("n", pa.int64()), ("t", pa.string())])
SCHEMA = to_json(from_arrow(ROWS, name="r", namespace="hoodie.r"))


# ---- real blocks -------------------------------------------------------------------------------

TABLES = [t for t in committed_tables() if t.type == "mor" or "change" in t.name]


def real_blocks(table: CommittedTable, folder: Path) -> Iterator[LogBlock]:
    root = table.unpack(folder)
    for file in sorted(p for p in root.rglob(".*") if p.is_file()):
        if parse_log_file(file.name) is not None and ".hoodie" not in file.parts:
            yield from read_blocks(file.read_bytes(), path=file.name)


def written_again(block: LogBlock, version: int) -> bytes:
    """The block that our writer makes of its rows."""
    writer = BlockWriter(
        block.instant or "", block.schema, TableVersion.of(version), partial=block.is_partial
    )
    told = record_positions(block)
    positions = None
    if told is not None:
        assert told.base_instant is not None
        positions = BlockPositions(told.base_instant, told.positions)
    if block.type is BlockType.DELETE:
        gone = delete_rows(block)
        assert gone.unordered.all()
        return writer.deletes(gone.keys, gone.partitions, None, positions)
    rows = avro_rows([block])
    if block.type is BlockType.CDC_DATA:
        return writer.changes(rows)
    (made,) = writer.rows(rows, positions, max_bytes=LARGE)
    return made


@pytest.mark.parametrize("table", TABLES, ids=lambda t: t.name)
def test_blocks_of_real_logs_are_written_as_they_are(table: CommittedTable, tmp_path: Path) -> None:
    """Only the order of the headers is our own: Hudi's is that of a hash map."""
    kinds = (BlockType.AVRO_DATA, BlockType.DELETE, BlockType.CDC_DATA)
    for real in real_blocks(table, tmp_path):
        if real.type not in kinds:
            continue
        data = written_again(real, min(table.table_version, 8))
        (ours,) = read_blocks(data, path=real.path)
        assert bytes(ours.content) == bytes(real.content)
        assert ours.headers == real.headers and len(data) == real.length


# ---- rows --------------------------------------------------------------------------------------


def batch(values: list[tuple[str, int | None, str | None]]) -> pa.RecordBatch:
    columns = list(zip(*values, strict=True)) or [()] * 3
    return pa.RecordBatch.from_arrays(
        [pa.array(list(c), f.type) for c, f in zip(columns, ROWS, strict=True)], schema=ROWS
    )


def rows_of(block: LogBlock) -> list[dict[str, Any]]:
    if block.type is BlockType.PARQUET_DATA:
        found: list[dict[str, Any]] = read_columns(open_parquet_block(block), path="").to_pylist()
    else:
        found = avro_rows([block]).to_pylist()
    return found


VALUES = st.lists(
    st.tuples(
        st.text(max_size=5),
        st.none() | st.integers(-(2**63), 2**63 - 1),
        st.none() | st.text(max_size=30),
    ),
    max_size=20,
)


@settings(max_examples=60)
@given(
    VALUES, st.booleans(), st.booleans(), st.sampled_from([6, 8]), st.integers(1, 400), st.data()
)
def test_rows_come_out_as_they_went_in(
    values: list[tuple[str, int | None, str | None]],
    parquet: bool,
    placed: bool,
    version: int,
    max_bytes: int,
    data: st.DataObject,
) -> None:
    policy = ParquetPolicy() if parquet else None
    writer = BlockWriter(INSTANT, SCHEMA, TableVersion.of(version), policy)
    given_rows = batch(values)
    order = np.arange(len(values))
    positions = None
    if placed:
        size = len(values)
        at = data.draw(st.lists(st.integers(0, 2**33), min_size=size, max_size=size, unique=True))
        positions = BlockPositions(BASE, np.array(at, np.int64))
        order = np.argsort(positions.positions)
    made = b"".join(writer.rows(given_rows, positions, max_bytes=max_bytes))
    blocks = read_blocks(made, path="x") if made else []
    found = [row for block in blocks for row in rows_of(block)]
    assert found == given_rows.take(pa.array(order)).to_pylist()
    expected = {HeaderKey.INSTANT_TIME: INSTANT, HeaderKey.SCHEMA: SCHEMA}
    told = []
    for block in blocks:
        assert block.type is (BlockType.PARQUET_DATA if parquet else BlockType.AVRO_DATA)
        assert expected.items() <= block.headers.items()
        assert not any(type_ is BlockType.CORRUPT for type_ in [block.type])
        at_block = record_positions(block)
        assert (at_block is not None) == (placed and version == 8)
        if at_block is not None:
            assert at_block.base_instant == BASE
            assert len(at_block.positions) == len(rows_of(block))
            told += at_block.positions.tolist()
        else:
            assert block.headers.keys() == expected.keys()
    if positions is not None and version == 8:
        assert told == sorted(positions.positions.tolist())


def test_blocks_stay_below_their_size_but_hold_a_row_at_least() -> None:
    values = [(f"k{i}", i, "x" * 100) for i in range(50)]
    writer = BlockWriter(INSTANT, SCHEMA, TableVersion.of(8))
    counts = {}
    for limit in (1, 1000, LARGE):
        made = b"".join(writer.rows(batch(values), None, max_bytes=limit))
        counts[limit] = [len(rows_of(block)) for block in read_blocks(made, path="x")]
    assert counts[1] == [1] * 50 and counts[LARGE] == [50]
    assert sum(counts[1000]) == 50 and 5 <= len(counts[1000]) <= 10


# ---- deletes -----------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [6, 8])
@pytest.mark.parametrize(
    "ordering",
    [
        None,
        pa.array([3, 1, None], pa.int64()),
        pa.array([3, 0, None], pa.int32()),
        pa.array([1.5, -2.0, None], pa.float64()),
        pa.array(["b", "a", None]),
        pa.array([19_000, 1, None], pa.int32()).cast(pa.date32()),
        pa.array([5_000_000, 1, None], pa.timestamp("us", "UTC")),
    ],
    ids=lambda a: "none" if a is None else str(a.type),
)
def test_deletes_come_out_with_their_ordering(version: int, ordering: pa.Array | None) -> None:
    writer = BlockWriter(INSTANT, SCHEMA, TableVersion.of(version))
    keys, paths = pa.array(["k1", "k2", "k3"]), pa.array(["a", "a", "b"])
    positions = BlockPositions(BASE, np.array([9, 4, 7]))
    (block,) = read_blocks(writer.deletes(keys, paths, ordering, positions), path="x")
    gone = delete_rows(block)
    order = [1, 2, 0] if version == 8 else [0, 1, 2]
    assert gone.keys.to_pylist() == [f"k{i + 1}" for i in order]
    assert gone.partitions.to_pylist() == [paths[i].as_py() for i in order]
    if ordering is None:
        assert gone.unordered.all()
    else:
        values = [ordering[i].as_py() for i in order]
        told = gone.ordering_as(ordering.type).to_pylist()
        assert [v or None for v in told] == [v or None for v in values]
        int_zero = [pa.types.is_int32(ordering.type) and v == 0 for v in values]
        assert gone.unordered.tolist() == [
            v is None or z for v, z in zip(values, int_zero, strict=True)
        ]
    told_positions = record_positions(block)
    if version == 8:
        assert told_positions is not None and told_positions.positions.tolist() == [4, 7, 9]
    else:
        assert told_positions is None


def test_partial_rows_are_marked_and_only_where_readers_know_them() -> None:
    writer = BlockWriter(INSTANT, SCHEMA, TableVersion.of(8), partial=True)
    made = b"".join(writer.rows(batch([("k", 1, None)]), None, max_bytes=LARGE))
    assert read_blocks(made, path="x")[0].is_partial
    with pytest.raises(FormatError, match="partial") as refused:
        BlockWriter(INSTANT, SCHEMA, TableVersion.of(6), partial=True)
    assert refused.value.hint
