"""Rows of many partitions in any order, as files; planned inserts; several writers at once."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakewright.engine.base_writer import write_base_files
from lakewright.engine.partitioned_writer import (
    write_grouped,
    write_inserts,
    write_partitioned,
    write_side_by_side,
)
from lakewright.engine.row_store import collect_rows
from lakewright.engine.runner import InlineRunner, Runner, ThreadRunner
from lakewright.engine.sizing import Append, InsertPlan, SizingPolicy, plan_inserts
from lakewright.engine.write_context import PARTITION_PATH, RECORD_KEY, WriteContext, WriteToken
from lakewright.errors import FencedError, InputError
from lakewright.format.partitions import list_partitions
from lakewright.format.records.commit import WriteStat
from lakewright.runtime import ManualClock, SeededRandom
from lakewright.storage.local import LocalStorage
from lakewright.storage.memory import MemoryStorage
from lakewright.txn.markers import read_markers
from tests.engine.writing import LATER, base_of, context, data_files, incoming, shut

TOKEN = WriteToken(1, 0, 0)


def write(
    storage: Any,
    written: WriteContext,
    batches: Any,
    *,
    memory: int = 1 << 20,
    runner: Runner | None = None,
    **more: Any,
) -> list[WriteStat]:
    return write_partitioned(
        storage,
        written,
        token=TOKEN,
        batches=batches,
        random=SeededRandom(1),
        clock=ManualClock(),
        runner=runner or InlineRunner(),
        memory_bytes=memory,
        **more,
    )


def stored(storage: Any, stats: list[WriteStat]) -> list[dict[str, Any]]:
    rows = []
    for stat in stats:
        table = pq.read_table(pa.BufferReader(storage.read(stat.path)))
        assert set(table[PARTITION_PATH].to_pylist()) == {stat.partition_path}
        assert table.num_rows == stat.num_writes
        rows += table.to_pylist()
    return rows


def mixed(written: WriteContext, count: int, partitions: int) -> pa.RecordBatch:
    keys = [f"k{i:06d}" for i in range(count)]
    return incoming(written, keys, [f"p{i * 7 % partitions:04d}" for i in range(count)])


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("memory", [2_000, 1 << 24])
def test_every_partition_gets_its_rows_in_order(memory: int, threads: int, tmp_path: Path) -> None:
    storage = MemoryStorage()
    written = context(storage, bloom=None)
    rows = mixed(written, 1000, 9)
    batches = [rows.slice(i, 90) for i in range(0, 1000, 90)]
    stats = write(
        storage, written, batches, memory=memory, runner=ThreadRunner(threads), folder=str(tmp_path)
    )
    assert [s.partition_path for s in stats] == [f"p{i:04d}" for i in range(9)]
    assert list_partitions(storage) == [f"p{i:04d}" for i in range(9)]
    got = stored(storage, stats)
    assert sorted(r[RECORD_KEY] for r in got) == rows[RECORD_KEY].to_pylist()
    for stat in stats:
        keys = [r[RECORD_KEY] for r in got if r[PARTITION_PATH] == stat.partition_path]
        assert keys == sorted(keys)
    numbers = [r["_hoodie_commit_seqno"] for r in got]
    assert len(set(numbers)) == 1000
    assert list(tmp_path.iterdir()) == []


def test_files_of_different_partitions_have_different_ids() -> None:
    storage = MemoryStorage()
    written = context(storage, bloom=None)
    stats = write(storage, written, [mixed(written, 50, 5)])
    assert len({s.file_id for s in stats}) == 5
    assert all((s.file_id or "").endswith("-0") for s in stats)


def test_memory_does_not_grow_with_partitions(tmp_path: Path) -> None:
    """5 000 partitions and more rows than memory: what is held stays near the budget."""
    storage = LocalStorage(tmp_path / "table")
    written = context(storage, bloom=None)
    budget, batch_rows, batches = 4 << 20, 20_000, 16

    def rows() -> Iterator[pa.RecordBatch]:
        for b in range(batches):
            at = np.arange(b * batch_rows, (b + 1) * batch_rows)
            keys = pa.array(at).cast(pa.string())
            paths = pa.array(at * 7919 % 5000).cast(pa.string())
            yield pa.RecordBatch.from_arrays(
                [keys, paths, keys, pa.array(at)], schema=written.incoming_schema
            )

    before = pa.total_allocated_bytes()
    peak = 0

    def watched() -> Iterator[pa.RecordBatch]:
        nonlocal peak
        for batch in rows():
            yield batch
            peak = max(peak, pa.total_allocated_bytes() - before)

    tracemalloc.start()
    with collect_rows(watched(), memory_bytes=budget, folder=str(tmp_path)) as store:
        held = pa.total_allocated_bytes() - before
        _, python_peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert len(store.counts) == 5000 and sum(store.counts.values()) == batches * batch_rows
        assert store.spilled_bytes > 2 * budget
        assert peak < 2 * budget and held < budget
        assert python_peak < 40 << 20  # the index of partitions, not rows
        some = pa.Table.from_batches(list(store.rows("4711")))
        assert some.num_rows == batches * batch_rows // 5000


def test_rows_of_a_partition_can_be_read_in_parts() -> None:
    written = context(MemoryStorage())
    rows = mixed(written, 500, 3)
    with collect_rows([rows.slice(0, 200), rows.slice(200)], memory_bytes=3000) as store:
        whole = [k for b in store.rows("p0001") for k in b[RECORD_KEY].to_pylist()]
        assert len(whole) == store.counts["p0001"]
        for start, stop in ((0, 10), (10, 100), (100, None), (166, 166), (0, 10_000)):
            part = [k for b in store.rows("p0001", start, stop) for k in b[RECORD_KEY].to_pylist()]
            assert part == whole[start:stop]
        assert list(store.rows("unknown")) == []


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(["", "a", "b=1/c", "ü"]), st.integers(0, 99)), max_size=60),
    st.integers(1, 9),
    st.integers(100, 2000),
)
def test_collecting_keeps_every_row_and_the_order_within_partitions(
    rows: list[tuple[str, int]], size: int, memory: int
) -> None:
    written = context(MemoryStorage())
    keys, paths = [str(k) for _, k in rows], [p for p, _ in rows]
    batch = incoming(written, keys, paths)
    with collect_rows(
        [batch.slice(i, size) for i in range(0, len(rows), size)], memory_bytes=memory
    ) as store:
        for path in {"", "a", "b=1/c", "ü"}:
            got = [k for b in store.rows(path) for k in b[RECORD_KEY].to_pylist()]
            assert got == [k for p, k in zip(paths, keys, strict=True) if p == path]


def test_planned_inserts_fill_small_files_and_then_make_groups() -> None:
    storage = MemoryStorage()
    first = context(storage, bloom=None)
    [old] = write_base_files(
        storage,
        first,
        partition="p0000",
        file_id_prefix="old",
        token=TOKEN,
        batches=[incoming(first, ["x", "y"], "p0000")],
        clock=ManualClock(),
    )
    later = context(storage, instant=LATER, bloom=None)
    rows = mixed(later, 100, 2)
    with collect_rows([rows], memory_bytes=1 << 20) as store:
        policy = SizingPolicy(insert_auto_split=False, insert_split_size=20)
        [_, other] = plan_inserts(store.counts, {}, record_bytes=1, policy=policy)
        filled = InsertPlan("p0000", (Append(base_of(old), 30),), (20,))
        stats = write_inserts(
            storage,
            later,
            [filled, other],
            store,
            token=TOKEN,
            random=SeededRandom(2),
            clock=ManualClock(),
            runner=ThreadRunner(2),
        )
    by_partition: dict[str | None, list[int]] = {}
    for stat in stats:
        by_partition.setdefault(stat.partition_path, []).append(stat.num_inserts or 0)
    assert sorted(by_partition["p0000"]) == [20, 30]
    assert sorted(by_partition["p0001"]) == [10, 20, 20]
    [grown] = [s for s in stats if s.file_id == old.file_id]
    assert (grown.num_writes, grown.prev_commit) == (32, base_of(old).instant)
    got = stored(storage, stats)
    assert sorted(r[RECORD_KEY] for r in got) == sorted(["x", "y", *rows[RECORD_KEY].to_pylist()])
    assert len({r["_hoodie_commit_seqno"] for r in got if r["_hoodie_commit_time"] == LATER}) == 100


def test_grouped_rows_are_streamed_and_cut_where_the_partition_changes() -> None:
    storage = MemoryStorage()
    written = context(storage, bloom=None)
    paths = ["a"] * 3 + ["b"] * 2 + ["c"] * 4 + ["a"]
    rows = incoming(written, [f"k{i}" for i in range(10)], paths)
    batches = [rows.slice(0, 4), rows.slice(4, 0), rows.slice(4, 2), rows.slice(6)]
    stats = write_grouped(
        storage,
        written,
        token=TOKEN,
        batches=batches,
        random=SeededRandom(3),
        clock=ManualClock(),
    )
    assert [(s.partition_path, s.num_writes) for s in stats] == [
        ("a", 3),
        ("b", 2),
        ("c", 4),
        ("a", 1),
    ]
    got = stored(storage, stats)
    assert [r[RECORD_KEY] for r in got] == [f"k{i}" for i in range(10)]
    assert len({r["_hoodie_commit_seqno"] for r in got}) == 10


def test_several_writers_share_one_stream() -> None:
    storage = MemoryStorage()
    written = context(storage, bloom=None)
    keys = [f"k{i:05d}" for i in range(3000)]
    batches = [incoming(written, keys[i : i + 50]) for i in range(0, 3000, 50)]
    stats = write_side_by_side(
        storage,
        written,
        partition="",
        tokens=[WriteToken(0), WriteToken(1)],
        batches=iter(batches),
        random=SeededRandom(4),
        clock=ManualClock(),
        runner=ThreadRunner(2),
    )
    assert 1 <= len(stats) <= 2
    got = stored(storage, stats)
    assert sorted(r[RECORD_KEY] for r in got) == keys
    assert len({r["_hoodie_commit_seqno"] for r in got}) == 3000


@pytest.mark.parametrize("threads", [1, 2])
def test_a_fence_that_closes_stops_the_write_and_what_is_there_has_a_marker(threads: int) -> None:
    storage = MemoryStorage()
    written = context(storage, bloom=None)

    def rows() -> Iterator[pa.RecordBatch]:
        yield mixed(written, 100, 10)
        shut(storage)

    with pytest.raises(FencedError):
        write(storage, written, rows(), runner=ThreadRunner(threads))
    assert data_files(storage) == []

    again = context(storage, bloom=None)
    published = 0

    class Closing(MemoryStorage):
        def create_from(self, path: str, fill: Any) -> Any:
            nonlocal published
            published += 1
            if published == 4:
                shut(self)
            return super().create_from(path, fill)

    world = Closing()
    again = context(world, bloom=None)
    with pytest.raises(FencedError):
        write(world, again, [mixed(again, 100, 10)], runner=ThreadRunner(threads))
    left = data_files(world)
    assert len(left) <= 4
    marked = {m.data_path for m in read_markers(world, again.instant) or []}
    assert set(left) <= marked


def test_rows_that_fail_leave_no_file_and_no_scratch(tmp_path: Path) -> None:
    storage = MemoryStorage()
    written = context(storage, bloom=None)

    def rows() -> Iterator[pa.RecordBatch]:
        yield mixed(written, 1000, 10)
        yield mixed(written, 1000, 10)
        raise InputError("The rows ended early.", hint="None.")

    with pytest.raises(InputError, match="ended early"):
        write(storage, written, rows(), memory=1000, folder=str(tmp_path))
    assert data_files(storage) == [] and list(tmp_path.iterdir()) == []
