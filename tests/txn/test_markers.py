"""Markers: ours, and those of Hudi's timeline server."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakewright.errors import FormatError
from lakewright.storage.memory import MemoryStorage
from lakewright.txn.markers import (
    Marker,
    MarkerType,
    create_marker,
    delete_markers,
    marker_folder,
    read_markers,
)

T = "20250101000000000"
PARTITIONS = st.sampled_from(["", "a", "a/b", "x,y", "ü/€", "MARKERS0"])
NAMES = st.sampled_from([f"f-0_0-1-2_{T}.parquet", f".f-0_{T}.log.1_0-1-2"])
MARKERS = st.builds(Marker, PARTITIONS, NAMES, st.sampled_from(MarkerType))


@given(st.sets(MARKERS, min_size=1, max_size=6))
def test_markers_come_back_as_they_were_left(markers: set[Marker]) -> None:
    storage = MemoryStorage()
    for marker in markers:
        create_marker(storage, T, marker)
        create_marker(storage, T, marker)
    assert set(read_markers(storage, T) or ()) == markers
    delete_markers(storage, T)
    assert read_markers(storage, T) is None


@given(st.lists(MARKERS, min_size=1, max_size=6, unique=True), st.integers(0, 5))
def test_markers_of_the_timeline_server_are_read_also_after_its_restart(
    markers: list[Marker], joined: int
) -> None:
    """A restart joins old lines by commas, which partitions may hold too."""
    storage = MemoryStorage()
    texts = [m.text for m in markers]
    lines = [",".join(texts[:joined]), *texts[joined:]]
    storage.replace(f"{marker_folder(T)}/MARKERS.type", b"TIMELINE_SERVER_BASED")
    storage.replace(f"{marker_folder(T)}/MARKERS3", "\n".join(lines).encode())
    assert set(read_markers(storage, T) or ()) == set(markers)


@given(st.sets(MARKERS, min_size=1, max_size=6))
def test_the_checksums_that_hadoop_leaves_beside_markers_are_no_markers(
    markers: set[Marker],
) -> None:
    storage = MemoryStorage()
    for marker in markers:
        create_marker(storage, T, marker)
        folder, _, name = f"{marker_folder(T)}/{marker.text}".rpartition("/")
        storage.replace(f"{folder}/.{name}.crc", b"crc\0")
    assert set(read_markers(storage, T) or ()) == markers


def test_an_instant_without_a_marker_folder_has_no_markers_but_not_none_of_them() -> None:
    assert read_markers(MemoryStorage(), T) is None


def test_a_name_that_is_no_marker_is_refused() -> None:
    with pytest.raises(FormatError, match="not the name of a marker"):
        Marker.parse("a/f.parquet.marker.NONSENSE")
