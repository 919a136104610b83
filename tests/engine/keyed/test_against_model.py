"""Histories of keyed writes on tables of every shape, compared with a model after every step."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakewright.engine.write_result import WriteResult
from tests.engine.keyed.model import Counts, Model, Place
from tests.engine.keyed.positions import misplaced_rows
from tests.engine.keyed.tables import BUCKETS, FLAG, QuickTable, Shape, new_table, rows
from tests.format.java_hash import slow_bucket

KEYS = ("k0", "k1", "k2", "k3", "k4")
PARTS = ("a", "b")
GLOBAL = ("GLOBAL_SIMPLE", "GLOBAL_BLOOM", "RECORD_INDEX")
INDEXES = ("SIMPLE", "BLOOM", *GLOBAL, "BUCKET")
NEWER = ("RECORD_LEVEL_INDEX",)
Row = dict[str, Any]


class History:
    """One table and its model, step by step."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.table: QuickTable = new_table(shape)
        self.model = Model(shape)
        self.numbers = count()
        self.log: list[str] = []

    def row(self, key: str, part: str, ts: int, deleted: bool | None) -> Row:
        return {"id": key, "p": part, "ts": ts, "v": next(self.numbers), FLAG: deleted}

    def _bucket_there(self, places: Sequence[Place]) -> dict[Place, bool]:
        if not self.shape.is_bucket:
            return {}
        listing = self.table.snapshot().opened.listing
        groups = self.table.snapshot().view(listing.files(listing.partitions())).groups
        there = {(g.partition, int(g.file_id[:8])) for g in groups}
        return {p: (p[0], slow_bucket(p[1], ["id"], BUCKETS)) in there for p in places}

    def upsert(self, given: list[Row]) -> None:
        self.log.append(f"upsert {given}")
        there = self._bucket_there([(self.model.path(row), row["id"]) for row in given])
        data = rows(self.shape, [tuple(row.values()) for row in given])
        result = self.table.upsert(data, options=self.shape.options)
        assert result.instant is not None
        rewritten = self.table.base_keys(result.instant)
        self._compare(result, self.model.upsert(given, result.instant, rewritten, there))

    def delete(self, places: list[Place]) -> None:
        self.log.append(f"delete {places}")
        paths = [(part if self.shape.partitioned else "", key) for part, key in places]
        there = self._bucket_there(paths)
        keys = pa.table({"id": [k for _, k in places], "p": [p for p, _ in places]})
        if not self.shape.partitioned:
            keys = keys.select(["id"])
        result = self.table.delete(keys, options=self.shape.options)
        self._deleted(result, paths, there)

    def delete_where(self, least: int, key: str) -> None:
        self.log.append(f"delete where ts < {least} or id = {key}")
        chosen = [
            place
            for place in self.model.cells
            if (seen := self.model.seen(place)) is not None
            and seen.row is not None
            and (seen.row["ts"] < least or seen.row["id"] == key)
        ]
        there = self._bucket_there(chosen)
        where = f"ts < {least} or id = '{key}'"
        result = self.table.delete(where=where, options=self.shape.options)
        self._deleted(result, chosen, there)

    def _deleted(self, result: WriteResult, places: list[Place], there: dict[Place, bool]) -> None:
        assert result.instant is not None
        rewritten = self.table.base_keys(result.instant)
        self._compare(result, self.model.delete(places, rewritten, there))

    def append(self, given: list[Row]) -> None:
        """Rows of keys that are nowhere."""
        known = {key for _, key in self.model.cells}
        fresh = [row for row in given if row["id"] not in known]
        fresh = list({row["id"]: {**row, FLAG: None} for row in fresh}.values())
        if not fresh or self.shape.is_bucket:
            return
        self.log.append(f"append {fresh}")
        data = rows(self.shape, [tuple(row.values()) for row in fresh])
        options = {k: v for k, v in self.shape.options.items() if "index.type" not in k}
        result = self.table.append(data, options=options)
        assert result.instant is not None and result.inserted == len(fresh)
        self.model.append(fresh, result.instant, self.table.base_keys(result.instant))
        self._check()

    def _compare(self, result: WriteResult, counts: Counts) -> None:
        assert result.instant is not None
        wrong = misplaced_rows(self.table, result.instant)
        assert wrong == [], f"positions of other rows: {wrong}"
        told = Counts(result.inserted, result.updated, result.deleted, result.ignored)
        assert told == counts, f"{told} instead of {counts}"
        self._check()

    def _check(self) -> None:
        found = self.table.scan().to_arrow()
        seen = []
        for row in found.to_pylist():
            path = row.get("_hoodie_partition_path")
            assert row.get("_hoodie_record_key", row["id"]) == row["id"]
            values = [row[name] for name in self.shape.schema.names]
            seen.append((path, row.get("_hoodie_commit_time"), *values))
        expected = self.model.content()
        assert sorted(seen, key=repr) == expected, f"{seen} instead of {expected}"
        keys = [row[2] if self.shape.is_global else row[2:4] for row in seen]
        assert len(keys) == len(set(keys))
        assert not self.table.timeline.pending().instants


@st.composite
def shapes(draw: st.DrawFn) -> Shape:
    version = draw(st.sampled_from([6, 8]))
    merging = draw(st.sampled_from(["event", "commit", "payload"][: 3 if version == 6 else 2]))
    index = draw(st.sampled_from((*INDEXES, *(NEWER if version == 8 else ()))))
    meta = (
        True
        if index.endswith(("BLOOM", "RECORD_INDEX", *NEWER))
        else draw(st.sampled_from([True, True, False]))
    )
    return Shape(
        type=draw(st.sampled_from(["cow", "mor"])),
        version=version,
        index=index,
        partitioned=draw(st.sampled_from([True, True, False])),
        merging=merging,
        ordering=draw(st.sampled_from([pa.int64(), pa.int32()])),
        meta=meta,
        small_files=draw(st.booleans()),
        moves=draw(st.booleans()) if index in GLOBAL else True,
        parquet_logs=draw(st.sampled_from([False, False, True])),
    )


KEY = st.sampled_from(KEYS)
PLACE = st.tuples(st.sampled_from(PARTS), KEY)
ROW = st.tuples(
    KEY,
    st.sampled_from(PARTS),
    st.integers(0, 3),
    st.sampled_from([None, None, None, False, True]),
)
BATCH = st.lists(ROW, min_size=1, max_size=6)
STEP = st.one_of(
    st.tuples(st.just("upsert"), BATCH),
    st.tuples(st.just("upsert"), BATCH),
    st.tuples(st.just("append"), BATCH),
    st.tuples(st.just("delete"), st.lists(PLACE, min_size=1, max_size=4)),
    st.tuples(st.just("where"), st.tuples(st.integers(0, 2), KEY)),
)
HISTORY = st.lists(STEP, min_size=1, max_size=6)


def play(shape: Shape, steps: list[tuple[str, Any]]) -> None:
    history = History(shape)
    for verb, given_ in steps:
        try:
            if verb == "upsert":
                history.upsert([history.row(*row) for row in given_])
            elif verb == "append":
                history.append([history.row(*row) for row in given_])
            elif verb == "delete":
                history.delete(given_)
            else:
                history.delete_where(*given_)
        except BaseException as error:
            error.add_note("\n".join([str(shape), *history.log]))
            raise


@settings(max_examples=40)
@given(shapes(), HISTORY)
def test_a_table_holds_what_the_rules_of_merging_say(
    shape: Shape, steps: list[tuple[str, Any]]
) -> None:
    play(shape, steps)


@pytest.mark.slow
@settings(max_examples=3000)
@given(shapes(), HISTORY)
def test_many_histories_agree_with_the_model(shape: Shape, steps: list[tuple[str, Any]]) -> None:
    play(shape, steps)
