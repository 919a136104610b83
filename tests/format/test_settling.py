"""Reading a timeline whose newest files are still being written."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakewright.engine.snapshot import load_snapshot
from lakewright.errors import CorruptFileError
from lakewright.format.file_slices import FileGroupId
from lakewright.format.instant_times import LOCAL_ZONE, time_ms
from lakewright.format.settling import WAIT_S_MAX
from lakewright.format.view_inputs import load_pending_compactions
from lakewright.runtime.clock import ManualClock
from lakewright.storage.local import LocalStorage
from tests.corpus import CommittedTable, committed_tables

PENDING = [t for t in committed_tables() if "pending_compaction" in t.name]


class Writer(ManualClock):
    """A clock on which somebody finishes a file while others sleep."""

    def __init__(self, file: Path, data: bytes, sleeps: int) -> None:
        self.file, self.data, self.left, self.waited_s = file, data, sleeps, 0.0
        requested_ms = time_ms(file.name.partition(".")[0], zone=LOCAL_ZONE)
        assert requested_ms is not None
        super().__init__(requested_ms + 1000)

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        self.waited_s += seconds
        self.left -= 1
        if self.left == 0:
            self.file.write_bytes(self.data)


def plan_file(table: Path) -> Path:
    """The plan of the one compaction, which is taken back to requested."""
    folder = table / ".hoodie"
    timeline = folder / "timeline" if (folder / "timeline").exists() else folder
    (file,) = timeline.glob("*.compaction.requested")
    for later in timeline.glob(file.name.partition(".")[0] + "*"):
        if later != file:
            later.unlink()
    return file


def planned(table: Path, clock: ManualClock) -> dict[FileGroupId, str]:
    storage = LocalStorage(table)
    snapshot = load_snapshot(storage, clock=clock, use_metadata_table=False)
    return load_pending_compactions(storage, snapshot.properties, snapshot.timeline)


@pytest.mark.parametrize("table", PENDING, ids=lambda t: t.name)
@pytest.mark.parametrize("part", [0.0, 0.5], ids=["empty", "cut"])
def test_a_plan_that_is_being_written_is_waited_for(
    table: CommittedTable, part: float, tmp_path: Path
) -> None:
    path = table.unpack(tmp_path)
    file = plan_file(path)
    whole = file.read_bytes()
    expected = planned(path, ManualClock())
    file.write_bytes(whole[: int(len(whole) * part)])
    assert expected and planned(path, Writer(file, whole, sleeps=3)) == expected


@pytest.mark.parametrize("table", PENDING, ids=lambda t: t.name)
def test_nobody_waits_long_for_a_dead_writer(table: CommittedTable, tmp_path: Path) -> None:
    path = table.unpack(tmp_path)
    file = plan_file(path)
    whole = file.read_bytes()
    for left, outcome in ((b"", {}), (whole[:-9], None)):
        file.write_bytes(left)
        clock = Writer(file, whole, sleeps=-1)
        if outcome is None:
            with pytest.raises(CorruptFileError, match=r"compaction\.requested"):
                planned(path, clock)
        else:
            assert planned(path, clock) == outcome
        assert 0 < clock.waited_s < 2 * WAIT_S_MAX


@pytest.mark.parametrize("table", PENDING, ids=lambda t: t.name)
def test_old_files_are_not_waited_for(table: CommittedTable, tmp_path: Path) -> None:
    path = table.unpack(tmp_path)
    file = plan_file(path)
    clock = Writer(file, file.read_bytes(), sleeps=1)
    clock.advance(3600)
    file.write_bytes(b"")
    assert planned(path, clock) == {}
    assert clock.waited_s == 0
