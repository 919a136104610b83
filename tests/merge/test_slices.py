"""Whole slices: the engine's classes against plain models, however the log is cut into batches."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakewright.format.version import TableVersion
from lakewright.merge import (
    LogVersions,
    MergeConfig,
    MergeContext,
    MergerRegistry,
    Phase,
    RecordMerger,
    fold,
    names,
)
from tests.merge.model import carried, fold_pairs, plain_slice
from tests.merge.slices import KEY, Gone, Row, Version, batch_of, read_slice

MODE = "hoodie.record.merge.mode"
ORDERING = "hoodie.table.ordering.fields"
LONG = pa.int64()


def _schema(ts: pa.DataType = LONG) -> pa.Schema:
    return pa.schema(
        [
            ("_hoodie_commit_time", pa.string()),
            (KEY, pa.string()),
            ("ts", ts),
            ("seq", pa.int64()),
            ("name", pa.string()),
            ("count", pa.int32()),
            ("tags", pa.list_(pa.string())),
            ("_hoodie_is_deleted", pa.bool_()),
        ]
    )


def _table(
    properties: Mapping[str, str],
    *,
    version: int = 9,
    ts: pa.DataType = LONG,
    defaults: Mapping[str, object] | None = None,
) -> tuple[RecordMerger, MergeContext]:
    config = MergeConfig.from_properties(TableVersion.of(version), properties)
    ctx = config.context(_schema(ts), Phase.LOG, defaults=defaults)
    return MergerRegistry().resolve(config), ctx


KEYS = st.sampled_from(["a", "b", "c"])
SMALL = st.integers(-1, 3)


def _values(ts: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {
            "_hoodie_commit_time": st.sampled_from(["001", "002", "003"]),
            KEY: KEYS,
            "ts": ts,
            "seq": SMALL,
            "name": st.sampled_from([None, "x", "y", "?"]),
            "count": st.sampled_from([None, 0, 7]),
            "tags": st.sampled_from([None, [], ["t"]]),
            "_hoodie_is_deleted": st.sampled_from([None, False, False, True]),
        }
    )


def _gone(width: int) -> st.SearchStrategy[Gone]:
    ordering = st.none() | st.tuples(*[SMALL] * width) if width else st.none()
    return st.builds(Gone, KEYS, ordering)


def _log(
    width: int, ts: st.SearchStrategy[Any] = SMALL, *, partial: bool = False
) -> st.SearchStrategy[list[Version]]:
    row = _values(ts).map(Row)
    choices: list[st.SearchStrategy[Any]] = [row, row, _gone(width)]
    if partial:
        choices.append(_values(ts).flatmap(_partial))
    return st.lists(st.one_of(*choices), max_size=12)


def _partial(values: dict[str, Any]) -> st.SearchStrategy[Row]:
    optional = ["seq", "name", "count", "tags"]
    always = frozenset({KEY, "_hoodie_commit_time", "ts"})

    def cut(chosen: set[str]) -> Row:
        columns = always | chosen
        return Row({k: v for k, v in values.items() if k in columns}, columns)

    return st.sets(st.sampled_from(optional)).map(cut)


def _base(ts: st.SearchStrategy[Any] = SMALL) -> st.SearchStrategy[list[dict[str, Any]]]:
    alive = _values(ts).map(lambda row: row | {"_hoodie_is_deleted": False})
    return st.lists(alive, max_size=5)


def _blocks(log: Sequence[Version], cut: Callable[[int], bool]) -> list[list[Version]]:
    """Neighbours of one kind as one block, cut where told."""
    blocks: list[list[Version]] = []
    for _, group in groupby(enumerate(log), key=lambda item: _kind(item[1])):
        block: list[Version] = []
        for place, version in group:
            if block and cut(place):
                blocks.append(block)
                block = []
            block.append(version)
        blocks.append(block)
    return blocks


def _kind(version: Version) -> object:
    return ("row", version.columns) if isinstance(version, Row) else "gone"


def _padded(rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> list[dict[str, Any]]:
    return batch_of(rows, schema).to_pylist()


@settings(max_examples=40, deadline=None)
@given(base=_base(), log=_log(1), every=st.integers(1, 4))
def test_event_time_equals_the_plain_fold(
    base: list[dict[str, Any]], log: list[Version], every: int
) -> None:
    merger, ctx = _table({MODE: "EVENT_TIME_ORDERING", ORDERING: "ts"})
    rows = read_slice(merger, ctx, base, _blocks(log, lambda i: i % every == 0), base_batches=2)
    assert rows == _padded(plain_slice(base, log, ["ts"]), ctx.schema)


@settings(max_examples=30, deadline=None)
@given(base=_base(st.none() | SMALL), log=_log(1, st.none() | SMALL))
def test_event_time_on_an_int_column_takes_zero_for_the_default(
    base: list[dict[str, Any]], log: list[Version]
) -> None:
    merger, ctx = _table({MODE: "EVENT_TIME_ORDERING", ORDERING: "ts"}, ts=pa.int32())
    rows = read_slice(merger, ctx, base, _blocks(log, lambda _: False))
    expected = plain_slice(base, log, ["ts"], zero_is_default=True)
    assert rows == _padded(expected, ctx.schema)


@settings(max_examples=30, deadline=None)
@given(base=_base(), log=_log(2))
def test_event_time_by_two_fields_equals_the_plain_fold(
    base: list[dict[str, Any]], log: list[Version]
) -> None:
    merger, ctx = _table({MODE: "EVENT_TIME_ORDERING", ORDERING: "ts,seq"})
    rows = read_slice(merger, ctx, base, _blocks(log, lambda _: False))
    assert rows == _padded(plain_slice(base, log, ["ts", "seq"]), ctx.schema)


@settings(max_examples=30, deadline=None)
@given(base=_base(), log=_log(0), every=st.integers(1, 4))
def test_commit_time_equals_the_plain_fold_whatever_the_ordering_field(
    base: list[dict[str, Any]], log: list[Version], every: int
) -> None:
    expected = plain_slice(base, log, [], commit_time=True)
    for properties in ({}, {ORDERING: "ts"}):
        merger, ctx = _table({MODE: "COMMIT_TIME_ORDERING"} | properties)
        assert not ctx.ordering_columns
        rows = read_slice(merger, ctx, base, _blocks(log, lambda i: i % every == 0))
        assert rows == _padded(expected, ctx.schema)


@settings(max_examples=30, deadline=None)
@given(base=_base(), log=_log(0))
def test_event_time_without_ordering_field_behaves_like_commit_time(
    base: list[dict[str, Any]], log: list[Version]
) -> None:
    merger, ctx = _table({MODE: "EVENT_TIME_ORDERING"})
    rows = read_slice(merger, ctx, base, _blocks(log, lambda _: False))
    # Two commit-time deletes in a row are one; everything else is the latest version.
    expected = plain_slice(base, log, [], commit_time=True)
    assert rows == _padded(expected, ctx.schema)


RULES = [
    pytest.param(9, {MODE: "EVENT_TIME_ORDERING", ORDERING: "ts"}, id="event-time"),
    pytest.param(
        9,
        {
            MODE: "EVENT_TIME_ORDERING",
            ORDERING: "ts",
            "hoodie.table.partial.update.mode": "IGNORE_DEFAULTS",
        },
        id="event-time-ignore-defaults",
    ),
    pytest.param(
        9,
        {
            MODE: "EVENT_TIME_ORDERING",
            ORDERING: "ts",
            "hoodie.table.partial.update.mode": "FILL_UNAVAILABLE",
            "hoodie.record.merge.property.hoodie.write.partial.update.unavailable.value": "?",
        },
        id="event-time-fill-unavailable",
    ),
    pytest.param(
        9,
        {MODE: "COMMIT_TIME_ORDERING", "hoodie.table.partial.update.mode": "IGNORE_DEFAULTS"},
        id="commit-time-ignore-defaults",
    ),
]
RULES += [
    pytest.param(
        version,
        {"hoodie.compaction.payload.class": payload, "hoodie.table.precombine.field": "ts"}
        | ({MODE: "CUSTOM"} if version > 6 else {}),
        id=f"{names.short_name(payload)}-v{version}",
    )
    for version in (6, 8)
    for payload in (
        names.OVERWRITE_WITH_LATEST,
        names.DEFAULT_PAYLOAD,
        names.EVENT_TIME_PAYLOAD,
        names.FIRST_VALUE,
        names.REVERSE_ORDER,
        names.OVERWRITE_NON_DEFAULTS,
        names.PARTIAL_UPDATE,
        names.AVRO_PAYLOAD,
    )
]


@pytest.mark.parametrize(("version", "properties"), RULES)
@settings(max_examples=8, deadline=None)
@given(base=_base(), log=_log(1), every=st.integers(1, 4))
def test_engine_equals_asking_the_merger_pair_by_pair(
    version: int,
    properties: dict[str, str],
    base: list[dict[str, Any]],
    log: list[Version],
    every: int,
) -> None:
    merger, ctx = _table(properties, version=version, defaults={"count": 0})
    if not ctx.ordering_columns:
        log = [Gone(v.key) if isinstance(v, Gone) else v for v in log]
    rows = read_slice(merger, ctx, base, _blocks(log, lambda i: i % every == 0), base_batches=3)
    expected = [row for row in fold_pairs(merger, ctx, base, log) if _lives(row, base, merger)]
    assert rows == _padded(expected, ctx.schema)


def _lives(row: Mapping[str, Any], base: Sequence[Mapping[str, Any]], merger: Any) -> bool:
    """Log-only rows that are deletes by their content are not emitted."""
    stored = any(row[KEY] == other[KEY] for other in base)
    flagged = merger.deletes.flag and bool(row.get("_hoodie_is_deleted"))
    return stored or not flagged


@pytest.mark.parametrize("mode", ["EVENT_TIME_ORDERING", "COMMIT_TIME_ORDERING"])
@settings(max_examples=40, deadline=None)
@given(base=_base(), log=_log(1, partial=True), every=st.integers(1, 4))
def test_partial_rows_merge_as_pair_by_pair(
    mode: str, base: list[dict[str, Any]], log: list[Version], every: int
) -> None:
    merger, ctx = _table({MODE: mode, ORDERING: "ts"})
    if not ctx.ordering_columns:
        log = [Gone(v.key) if isinstance(v, Gone) else v for v in log]
    rows = read_slice(merger, ctx, base, _blocks(log, lambda i: i % every == 0), base_batches=2)
    expected = [row for row in fold_pairs(merger, ctx, base, log) if _lives(row, base, merger)]
    assert rows == _padded(expected, ctx.schema)


@settings(max_examples=10, deadline=None)
@given(base=_base(), log=_log(1, partial=True))
def test_held_batches_give_the_same_result(
    tmp_path_factory: pytest.TempPathFactory, base: list[dict[str, Any]], log: list[Version]
) -> None:
    folder = tmp_path_factory.mktemp("held")
    spilled: list[Path] = []

    def hold(rows: pa.RecordBatch) -> pa.RecordBatch:
        path = folder / f"{len(spilled)}.arrow"
        spilled.append(path)
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, rows.schema) as writer:
            writer.write_batch(rows)
        return pa.ipc.open_file(pa.memory_map(str(path))).get_batch(0)

    merger, ctx = _table({MODE: "EVENT_TIME_ORDERING", ORDERING: "ts"})
    blocks = _blocks(log, lambda _: False)
    assert read_slice(merger, ctx, base, blocks, hold=hold) == read_slice(merger, ctx, base, blocks)


@settings(max_examples=30, deadline=None)
@given(triple=st.lists(_values(SMALL).map(Row), min_size=3, max_size=4))
def test_event_time_merging_of_rows_and_ordered_deletes_is_associative(triple: list[Row]) -> None:
    merger, ctx = _table({MODE: "EVENT_TIME_ORDERING", ORDERING: "ts"})
    versions = [Row(dict(row.values) | {KEY: "a"}) for row in triple]
    left: Version = versions[0]
    for version in versions[1:]:
        left = carried(merger, ctx, left, version)
    right: Version = versions[-1]
    for version in reversed(versions[:-1]):
        right = carried(merger, ctx, version, right)
    assert left == right


def test_only_the_first_of_equal_base_keys_meets_the_log_also_across_calls() -> None:
    merger, ctx = _table({MODE: "COMMIT_TIME_ORDERING"})
    rows = [{KEY: key, "ts": place} for place, key in enumerate("abab")]
    log = [Row({KEY: "a", "ts": 10}), Gone("b")]
    expected = [(("a"), 10), ("a", 2), ("b", 3)]
    for batches in (1, 2, 4):
        result = read_slice(merger, ctx, rows, [[v] for v in log], base_batches=batches)
        assert [(row[KEY], row["ts"]) for row in result] == expected


def test_a_base_batch_without_hits_passes_unchanged() -> None:
    merger, ctx = _table({MODE: "COMMIT_TIME_ORDERING"})
    versions = LogVersions(ctx, merger)
    versions.add_rows(batch_of([{KEY: "z", "ts": 1}], ctx.schema))
    state = versions.finish()
    base = batch_of([{KEY: "a"}, {KEY: "b"}], ctx.schema)
    codes = state.locate(pa.chunked_array([base.column(KEY)]))
    assert codes.tolist() == [-1, -1]
    assert state.apply(base, codes) is base
    assert state.size == 1 and state.keys.to_pylist() == ["z"]
    assert [batch.num_rows for batch in state.remaining(10)] == [1]


def test_an_empty_log_changes_nothing() -> None:
    merger, ctx = _table({MODE: "EVENT_TIME_ORDERING", ORDERING: "ts"})
    state = LogVersions(ctx, merger).finish()
    base = batch_of([{KEY: "a"}, {KEY: None}], ctx.schema)
    assert state.apply(base, state.locate(base.column(KEY))) is base
    assert list(state.remaining(10)) == []


def test_log_only_rows_come_in_order_of_first_appearance_in_bounded_batches() -> None:
    merger, ctx = _table({MODE: "COMMIT_TIME_ORDERING"})
    versions = LogVersions(ctx, merger)
    versions.add_rows(batch_of([{KEY: k, "ts": 1} for k in "cabd"], ctx.schema))
    versions.add_rows(batch_of([{KEY: k, "ts": 2} for k in "bc"], ctx.schema))
    batches = list(versions.finish().remaining(3))
    assert [batch.num_rows for batch in batches] == [3, 1]
    rows = pa.Table.from_batches(batches).select([KEY, "ts"]).to_pylist()
    assert [(r[KEY], r["ts"]) for r in rows] == [("c", 2), ("a", 1), ("b", 2), ("d", 1)]


def test_nested_ordering_fields_reach_deletes_and_rows() -> None:
    schema = pa.schema([(KEY, pa.string()), ("meta", pa.struct([("ts", pa.int64())]))])
    config = MergeConfig.from_properties(
        TableVersion.of(9), {MODE: "EVENT_TIME_ORDERING", ORDERING: "meta.ts"}
    )
    ctx = config.context(schema, Phase.LOG)
    versions = LogVersions(ctx, MergerRegistry().resolve(config))
    rows = [{KEY: "a", "meta": {"ts": 5}}, {KEY: "b", "meta": {"ts": 5}}]
    versions.add_rows(batch_of(rows, schema))
    versions.add_deletes(
        pa.array(["a", "b"]), [pa.array([4, 6])], pa.array([False, False]).to_numpy(False)
    )
    state = versions.finish()
    base = batch_of([{KEY: "b", "meta": {"ts": 9}}], schema)
    assert state.apply(base, state.locate(base.column(KEY))).to_pylist() == base.to_pylist()
    assert [r for b in state.remaining(9) for r in b.to_pylist()] == [rows[0]]


def test_keys_beyond_32_bit_offsets_are_kept_as_large_strings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fold, "_OFFSET_LIMIT", 0)
    merger, ctx = _table({MODE: "EVENT_TIME_ORDERING", ORDERING: "ts"})
    base = [{KEY: key, "ts": 5} for key in "abc"]
    blocks = [[Row({KEY: "a", "ts": 6})], [Gone("b", (7,)), Gone("c", (1,))], [Row({KEY: "d"})]]
    rows = read_slice(merger, ctx, base, blocks)
    assert [(row[KEY], row["ts"]) for row in rows] == [("a", 6), ("c", 5), ("d", None)]


@pytest.mark.slow
def test_speed_of_a_slice_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    """500 000 base rows of 20 columns, 100 000 log rows: milliseconds of processor time."""
    base, log = _wide_rows(500_000, shuffled=True), _wide_rows(600_000, shuffled=False)
    log = log.take(pa.array(np.random.default_rng(1).integers(0, 600_000, 100_000)))
    lines = []
    for mode in ("EVENT_TIME_ORDERING", "COMMIT_TIME_ORDERING"):
        config = MergeConfig.from_properties(TableVersion.of(9), {MODE: mode, ORDERING: "ts"})
        start = time.process_time()
        ctx = config.context(base.schema, Phase.LOG)
        versions = LogVersions(ctx, MergerRegistry().resolve(config))
        for first in range(0, log.num_rows, 16_384):
            versions.add_rows(log.slice(first, 16_384))
        state = versions.finish()
        reduced = time.process_time()
        codes = state.locate(base.column(KEY))
        located = time.process_time()
        for first in range(0, base.num_rows, 65_536):
            state.apply(base.slice(first, 65_536), codes[first : first + 65_536])
        rest = sum(batch.num_rows for batch in state.remaining(65_536))
        done = time.process_time()
        spans = [reduced - start, located - reduced, done - located]
        lines.append(f"{mode}: reduce, locate, apply = {[round(s * 1e3) for s in spans]} ms")
        assert rest == state.size - np.count_nonzero(codes >= 0)
    with capsys.disabled():
        sys.stdout.write("\n" + "\n".join(lines) + "\n")


def _wide_rows(size: int, *, shuffled: bool) -> pa.RecordBatch:
    rng = np.random.default_rng(size)
    ids = rng.permutation(size) if shuffled else np.arange(size)
    columns: dict[str, pa.Array] = {KEY: pa.array([f"{i:036d}" for i in ids.tolist()])}
    columns["ts"] = pa.array(rng.integers(0, 2**40, size))
    for k in range(6):
        columns[f"n{k}"] = pa.array(rng.integers(0, 2**40, size), mask=rng.random(size) < 0.05)
        columns[f"d{k}"] = pa.array(rng.random(size))
    for k in range(6):
        texts = pa.array([f"text {i}" for i in range(2 ** (3 * k))])
        columns[f"t{k}"] = texts.take(pa.array(rng.integers(0, len(texts), size)))
    return pa.RecordBatch.from_pydict(columns)
