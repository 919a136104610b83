"""A replacement that completes after a range does not take rows away from the range."""

from __future__ import annotations

from pathlib import Path

import pytest

import lakewright as lw
from tests.fixtures import SHARED_ABSENT, SharedTable, shared_tables, unpack
from tests.rows import canonical, table_rows

CLUSTERED = [
    t for t in shared_tables() if t.id.startswith(("mor_v9_complex_meta", "cow_v9_simple_meta"))
]
pytestmark = pytest.mark.skipif(not CLUSTERED, reason=SHARED_ABSENT)


@pytest.mark.parametrize("shared", CLUSTERED, ids=lambda t: t.id)
def test_rows_moved_by_a_later_completed_clustering_are_still_in_their_range(
    shared: SharedTable, tmp_path: Path
) -> None:
    path = unpack(shared, tmp_path)
    table = lw.Table.open(path)
    commits = table.timeline.commits().completed().in_completion_order()
    clustering = [i for i in commits if i.action == "replacecommit"][-1]
    assert clustering is not commits[-1]
    until = str(commits[-1].completion_time)
    wanted = table.changes(until=until).to_arrow().drop_columns("_hoodie_file_name")
    folder = path / ".hoodie" / "timeline"
    later = f"{clustering.requested_time}_{int(until) + 1}.replacecommit"
    (folder / clustering.file_name).rename(folder / later)
    found = table.changes(until=until)
    assert clustering.requested_time not in found.range.requested_times
    got = found.to_arrow().drop_columns("_hoodie_file_name")
    assert canonical(table_rows(got)) == canonical(table_rows(wanted))
