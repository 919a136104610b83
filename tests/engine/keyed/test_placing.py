"""Where the rows of a keyed write go: every key once, in the right file group."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from lakewright.engine.keyed.lookup import Hits
from lakewright.engine.keyed.placing import shares_of_buckets, shares_of_hits, unfound
from lakewright.engine.sizing import Append, InsertPlan
from lakewright.format.file_slices import BaseFile, FileGroupId, FileSlice

INSTANT = "20260101000000000"


def slice_of(partition: str, file_id: str) -> FileSlice:
    base = BaseFile(partition, f"{file_id}_0-0-0_{INSTANT}.parquet", 10, INSTANT, file_id, "0-0-0")
    return FileSlice(FileGroupId(partition, file_id), INSTANT, base, ())


def hits_of(*places: tuple[int, int, int]) -> Hits:
    codes, files, positions = zip(*places, strict=True) if places else ((), (), ())
    return Hits(np.array(codes, np.int32), np.array(files, np.int32), np.array(positions, np.int64))


def test_keys_without_a_hit_are_new_unless_they_are_left_out() -> None:
    partition_of = np.array([1, 0, 1, 0, 1], np.int32)
    left_out = np.array([False, False, True, False, False])
    fresh = unfound(hits_of((3, 0, 0)), left_out, ["a", "b"], partition_of)
    assert fresh.codes.tolist() == [1, 0, 4] and fresh.counts == {"a": 1, "b": 2}
    none = unfound(hits_of(*((k, 0, k) for k in range(5))), left_out, ["a", "b"], partition_of)
    assert len(none.codes) == 0 and none.counts == {}


def test_updates_keep_their_rows_and_new_keys_fill_small_files_first() -> None:
    slices = [slice_of("a", "f0"), slice_of("a", "f1"), slice_of("b", "g0")]
    partition_of = np.array([0, 0, 0, 1, 0, 0, 1], np.int32)
    hits = hits_of((0, 1, 7), (3, 2, 5))
    fresh = unfound(hits, np.zeros(7, np.bool_), ["a", "b"], partition_of)
    assert fresh.codes.tolist() == [1, 2, 4, 5, 6]
    base = slices[0].base
    assert base is not None
    plans = [InsertPlan("a", (Append(base, 1),), (2, 1)), InsertPlan("b", (), (1,))]
    shares = shares_of_hits(hits, slices, fresh, plans)
    told = [
        (s.partition, s.slice_ and s.slice_.group.file_id, s.updates.tolist(), s.inserts.tolist())
        for s in shares
    ]
    assert told == [
        ("a", "f0", [], [1]),
        ("a", "f1", [0], []),
        ("b", "g0", [3], []),
        ("a", None, [], [2, 4]),
        ("a", None, [], [5]),
        ("b", None, [], [6]),
    ]
    assert shares[1].positions is not None and shares[1].positions.tolist() == [7]
    assert [s.size for s in shares] == [1, 1, 1, 2, 1, 1]


def test_a_key_that_is_twice_in_a_file_is_told_once_and_in_two_files_twice() -> None:
    slices = [slice_of("a", "f0"), slice_of("a", "f1")]
    hits = hits_of((0, 0, 9), (0, 0, 3), (1, 0, 5), (0, 1, 1))
    fresh = unfound(hits, np.zeros(2, np.bool_), ["a"], np.zeros(2, np.int32))
    shares = shares_of_hits(hits, slices, fresh, [])
    assert [s.updates.tolist() for s in shares] == [[0, 1], [0]]
    assert [s.positions.tolist() for s in shares if s.positions is not None] == [[3, 5], [1]]


def test_rows_that_leave_are_removals_of_their_old_group() -> None:
    slices = [slice_of("a", "f0"), slice_of("b", "g0")]
    stay, leaving = hits_of((1, 0, 2)), hits_of((0, 0, 4), (1, 1, 6))
    fresh = unfound(stay, np.zeros(2, np.bool_), ["a", "b"], np.array([1, 0], np.int32))
    shares = shares_of_hits(stay, slices, fresh, [InsertPlan("b", (), (1,))], leaving=leaving)
    assert [
        (s.partition, s.updates.tolist(), s.removals.tolist(), s.inserts.tolist()) for s in shares
    ] == [("a", [1], [0], []), ("b", [], [1], []), ("b", [], [], [0])]


@settings(max_examples=80)
@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3)), min_size=1, max_size=12),
    st.sets(st.tuples(st.integers(0, 2), st.integers(0, 3))),
    st.data(),
)
def test_every_kept_key_is_in_the_share_of_its_bucket(
    places: list[tuple[int, int]], there: set[tuple[int, int]], data: st.DataObject
) -> None:
    partitions = ["a", "b", "c"]
    kept = data.draw(st.lists(st.sampled_from(range(len(places))), unique=True, min_size=1))
    slices: Mapping[tuple[str, int], FileSlice] = {
        (partitions[p], b): slice_of(partitions[p], f"{b:08d}-x") for p, b in there
    }
    new = {(partitions[p], b): f"{b:08d}" for p, b in places}
    shares = shares_of_buckets(
        np.array(sorted(kept), np.int64),
        np.array([p for p, _ in places], np.int32),
        partitions,
        np.array([b for _, b in places], np.int32),
        slices,
        new,
    )
    found = {}
    for share in shares:
        codes = [*share.updates.tolist(), *share.inserts.tolist()]
        assert codes == sorted(codes) and len(codes) == share.size > 0
        if share.slice_ is None:
            assert share.file_id is not None and not len(share.updates)
            bucket = int(share.file_id)
        else:
            assert not len(share.inserts)
            bucket = int(share.slice_.group.file_id[:8])
        for code in codes:
            assert code not in found
            found[code] = (share.partition, bucket)
    assert found == {code: (partitions[places[code][0]], places[code][1]) for code in kept}
