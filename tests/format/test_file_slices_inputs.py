"""What the file-system view reads from the timeline's files."""

from __future__ import annotations

import pyarrow as pa
import pytest

from lakewright.errors import NotFoundError
from lakewright.format import view_inputs
from lakewright.format.file_slices import FileGroupId
from lakewright.format.partitions import ListedFile
from lakewright.format.records.commit import CommitMetadata
from lakewright.format.records.plans import CompactionOperation, CompactionPlan
from lakewright.format.table_properties import TableProperties
from lakewright.format.timeline import load_timeline
from lakewright.format.version import TableVersion
from lakewright.format.view_inputs import (
    CompletionTimes,
    block_visibility,
    load_pending_compactions,
    load_pending_log_compactions,
    load_replaced,
    load_view,
)
from lakewright.storage.memory import MemoryStorage

T = [f"202501010000000{n:02d}" for n in range(1, 10)]


class Table:
    """A table whose timeline is written file by file."""

    def __init__(self, version: int) -> None:
        self.version = TableVersion.of(version)
        self.storage = MemoryStorage()
        self.properties = TableProperties(
            {"hoodie.table.name": "t", "hoodie.table.version": str(version)}
        )

    def file(self, name: str, data: bytes = b"") -> None:
        self.storage.create_if_absent(f"{self.properties.timeline_folder}/{name}", data)

    def completed(self, requested: str, action: str, completion: str, data: bytes = b"") -> None:
        stamp = f"_{completion}" if self.version.completion_time_in_name else ""
        self.file(f"{requested}{stamp}.{action}", data)

    def plan(self, requested: str, action: str, *groups: tuple[str | None, str]) -> None:
        operations = [
            CompactionOperation(base_instant_time=T[0], file_id=f, partition_path=p)
            for p, f in groups
        ]
        self.file(
            f"{requested}.{action}.requested",
            CompactionPlan(operations=operations).write(self.version),
        )

    def replace(self, requested: str, completion: str, replaced: dict[str, list[str]]) -> None:
        metadata = CommitMetadata(partition_to_replace_file_ids=replaced)
        self.completed(requested, "replacecommit", completion, metadata.write(self.version))


@pytest.fixture(params=[6, 8])
def table(request: pytest.FixtureRequest) -> Table:
    return Table(request.param)


def test_pending_plans_name_their_file_groups(table: Table) -> None:
    table.completed(T[0], "deltacommit", T[1])
    table.plan(T[2], "compaction", ("p", "f"), (None, "g"))
    table.file(f"{T[2]}.compaction.inflight")
    table.plan(T[3], "logcompaction", ("p", "h"))
    timeline = load_timeline(table.storage, table.properties)
    found = load_pending_compactions(table.storage, table.properties, timeline)
    assert found == {FileGroupId("p", "f"): T[2], FileGroupId("", "g"): T[2]}
    logs = load_pending_log_compactions(table.storage, table.properties, timeline)
    assert logs == {FileGroupId("p", "h"): T[3]}


def test_completed_plans_are_not_read(table: Table) -> None:
    table.file(f"{T[2]}.compaction.requested", b"not a plan")
    table.completed(T[2], "commit", T[3])
    timeline = load_timeline(table.storage, table.properties)
    assert load_pending_compactions(table.storage, table.properties, timeline) == {}


def test_replaced_groups_come_from_completed_replacements_only(table: Table) -> None:
    table.replace(T[1], T[2], {"p": ["f", "g"]})
    table.replace(T[3], T[4], {"q": ["f"], "p": ["f"]})
    table.file(f"{T[5]}.replacecommit.inflight", b"not metadata")
    timeline = load_timeline(table.storage, table.properties)
    assert load_replaced(table.storage, table.properties, timeline) == {
        FileGroupId("p", "f"): T[1],
        FileGroupId("p", "g"): T[1],
        FileGroupId("q", "f"): T[3],
    }


def test_a_replacement_that_was_taken_back_meanwhile_is_told(table: Table) -> None:
    table.replace(T[1], T[2], {"p": ["f"]})
    timeline = load_timeline(table.storage, table.properties)
    completed = timeline.filter_actions("replacecommit").completed().instants[0]
    table.storage.delete(f"{table.properties.timeline_folder}/{completed.file_name}")
    with pytest.raises(NotFoundError, match="taken back") as caught:
        load_replaced(table.storage, table.properties, timeline)
    assert caught.value.retryable and caught.value.context["instant"] == T[1]


def test_the_view_puts_all_inputs_together(table: Table) -> None:
    table.completed(T[0], "deltacommit", T[1])
    table.plan(T[2], "compaction", ("p", "f"))
    table.completed(T[3], "deltacommit", T[4])
    table.replace(T[5], T[6], {"p": ["g"]})
    timeline = load_timeline(table.storage, table.properties)
    in_name = T[3] if table.version.log_name_has_delta_instant else T[2]
    log = f".f_{in_name}.log.1_0-0-0"
    names = [f"f_0-0-0_{T[0]}.parquet", f"f_0-0-0_{T[2]}.parquet", log, f"g_0-0-0_{T[0]}.parquet"]
    view = load_view(
        table.storage,
        table.properties,
        timeline,
        listing={"p": [ListedFile(n, 1) for n in names]},
    )
    (slice_,) = view.latest_merged_slices()
    assert slice_.base is not None and slice_.base.name == names[0]
    assert [f.name for f in slice_.logs] == [log]
    assert len(view.orphans()) == 1


def test_blocks_are_tested_only_where_names_do_not_tell(table: Table) -> None:
    table.completed(T[2], "deltacommit", T[3])
    table.file(f"{T[4]}.deltacommit.inflight")
    timeline = load_timeline(table.storage, table.properties)
    visible = block_visibility(table.properties, timeline)
    if table.version.log_name_has_delta_instant:
        assert visible is None
    else:
        assert visible is not None
        assert [visible(t) for t in (T[0], T[2], T[4], T[5])] == [True, True, False, False]


def test_the_history_is_read_once_and_only_for_archived_times(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = Table(8)
    table.completed(T[4], "deltacommit", T[5])
    asked: list[tuple[str | None, str | None]] = []
    history = {"requested_time": T[:3], "completion_time": T[1:4], "action": ["commit"] * 3}
    history["action"][2] = "clean"

    def archived(
        storage: object, properties: object, *, begin: str | None, end: str | None
    ) -> pa.Table:
        asked.append((begin, end))
        return pa.table(history)

    monkeypatch.setattr(view_inputs, "archived_times", archived)
    timeline = load_timeline(table.storage, table.properties)
    times = CompletionTimes(table.storage, table.properties, timeline)
    assert times(T[4]) == T[5] and times(T[7]) is None
    assert asked == []
    assert times(T[1]) == T[2] and times(T[2]) is None and times(T[3]) is None
    assert asked == [(T[1], None)]
    assert times(T[0]) == T[1] and times("0") is None
    assert asked == [(T[1], None), (None, T[1])]
