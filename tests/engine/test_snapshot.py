"""Pinning a snapshot while the table moves below it."""

from __future__ import annotations

import builtins
from pathlib import Path

import pyarrow as pa
import pytest

import lakewright as lw
from lakewright.engine.snapshot import load_snapshot
from lakewright.errors import ConflictError, NotFoundError, TableNotFoundError
from lakewright.runtime.clock import ManualClock, SystemClock
from lakewright.storage.base import ObjectInfo
from lakewright.storage.local import LocalStorage
from lakewright.storage.resolve import open_storage
from tests.fixtures import SHARED_ABSENT, shared_tables, unpack

TABLES = {t.id: t for t in shared_tables()}
pytestmark = pytest.mark.skipif(not TABLES, reason=SHARED_ABSENT)


class Switching(LocalStorage):
    """A table whose properties change each time its timeline is listed."""

    versions: builtins.list[bytes]

    def list(self, path: str = "") -> builtins.list[ObjectInfo]:
        listed = super().list(path)
        self._switch()
        return listed

    def names(self, path: str = "") -> builtins.list[str]:
        names = super().names(path)
        self._switch()
        return names

    def _switch(self) -> None:
        if self.versions:
            self.replace(".hoodie/hoodie.properties", self.versions.pop(0))


def both_layouts(tmp_path: Path) -> tuple[Switching, bytes, bytes]:
    """A version 6 table with an (empty) version 8 timeline beside its own."""
    shared = next(t for i, t in TABLES.items() if i.startswith("cow_v6_complexkeygen"))
    path = unpack(shared, tmp_path)
    (path / ".hoodie" / "timeline").mkdir()
    six = (path / ".hoodie" / "hoodie.properties").read_bytes()
    eight = six.replace(b"hoodie.table.version=6", b"hoodie.table.version=8").replace(
        b"hoodie.timeline.layout.version=1", b"hoodie.timeline.layout.version=2"
    )
    assert eight != six
    storage = Switching(path)
    storage.versions = []
    return storage, six, eight


def test_a_switch_while_the_timeline_is_listed_restarts_the_open(tmp_path: Path) -> None:
    storage, _, eight = both_layouts(tmp_path)
    storage.versions = [eight]
    snapshot = load_snapshot(storage, clock=ManualClock(), use_metadata_table=False)
    assert snapshot.properties.version.layout_version == 2
    assert snapshot.timeline.instants == ()


def test_endless_switching_is_a_retryable_conflict(tmp_path: Path) -> None:
    storage, six, eight = both_layouts(tmp_path)
    storage.versions = [eight, six] * 10
    with pytest.raises(ConflictError) as caught:
        load_snapshot(storage, clock=ManualClock(), use_metadata_table=False)
    assert caught.value.retryable


def test_a_folder_that_is_no_table_is_told_apart(tmp_path: Path) -> None:
    with pytest.raises(TableNotFoundError):
        load_snapshot(open_storage(tmp_path), clock=ManualClock())


def test_a_snapshot_that_was_cleaned_before_its_files_were_listed_is_not_read_as_less(
    tmp_path: Path,
) -> None:
    table = lw.Table.create(
        tmp_path / "t", schema=pa.schema([("id", pa.string()), ("n", pa.int64())]), key=["id"]
    )
    storage = LocalStorage(tmp_path / "t")
    quiet = {"hoodie.metadata.enable": "false", "hoodie.clean.automatic": "false"}
    for n in range(3):
        table.upsert(pa.table({"id": ["a", "b"], "n": [n, n]}), options=quiet)
        if n == 0:
            old = load_snapshot(storage, clock=SystemClock())
    cleaned = table.services.clean.run({"hoodie.clean.commits.retained": "1"})
    assert cleaned.files_deleted
    [slice_] = old.live_slices()  # its listing is made here
    assert slice_.base is not None
    with pytest.raises(NotFoundError):
        storage.read(slice_.base.path)
    [now] = load_snapshot(storage, clock=SystemClock()).live_slices()
    assert now.base is not None and now.base.name != slice_.base.name
