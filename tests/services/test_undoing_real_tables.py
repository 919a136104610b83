"""Rollback and restore of tables that real Hudi wrote: rows are those of time travel.

That time travel gives what Hudi gives is shown elsewhere.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from lakewright.engine.options import ReadOptions
from lakewright.errors import PlanStateError
from lakewright.runtime import ManualClock
from lakewright.services.compaction import Compaction
from lakewright.services.restore import run_restore
from lakewright.services.rollback import roll_back_instant
from lakewright.storage.local import LocalStorage
from lakewright.table import Table
from lakewright.txn.access import Access
from tests.corpus import CommittedTable, committed_tables
from tests.services.undoing import ALWAYS
from tests.txn.tables import START_MS, new_access

AS_OF = "as_of_"
TABLES = [
    t
    for t in committed_tables()
    if t.table_version in (6, 8) and any(query.startswith(AS_OF) for query in t.answers)
]

QUICK = ("v6_mor_pending_compaction_simple", "v8_mor_pending_compaction_complex")
REAL = pytest.mark.parametrize(
    "table",
    [pytest.param(t, id=t.name, marks=() if t.name in QUICK else pytest.mark.slow) for t in TABLES],
)


def opened(table: CommittedTable, folder: Path) -> tuple[Table, Access]:
    """The table, and the means to change it without its metadata table."""
    root = table.unpack(folder)
    clock = ManualClock(START_MS * 2)
    storage = LocalStorage(root)
    return Table(storage, clock=clock, options=ReadOptions(threads=1)), new_access(storage, clock)


def found(table: Table, as_of: str | None = None) -> list[str]:
    rows = table.scan(as_of=as_of).to_arrow().to_pylist()
    return sorted(repr(sorted(row.items())) for row in rows)


def moments(table: CommittedTable) -> list[str]:
    return sorted(q.removeprefix(AS_OF) for q in table.answers if q.startswith(AS_OF))


@REAL
def test_a_restore_gives_back_the_rows_of_a_commit(table: CommittedTable, tmp_path: Path) -> None:
    for number, moment in enumerate(moments(table)[::2]):
        real, access = opened(table, tmp_path / str(number))
        before = found(real, moment)
        run_restore(access, moment, drop_metadata_table=True)
        assert found(real) == before, moment
        last = real.timeline.last_completed_commit()
        assert last is not None and last.requested_time == moment
        if real.properties.is_merge_on_read and number == 0:
            Compaction(access, ALWAYS).run()
            assert len(found(real)) == len(before)


@pytest.mark.slow
@REAL
def test_rolling_back_commit_after_commit_goes_through_the_rows_of_each(
    table: CommittedTable, tmp_path: Path
) -> None:
    real, access = opened(table, tmp_path)
    before = {moment: found(real, moment) for moment in moments(table)}
    rolled_back = 0
    while before:
        newest = real.timeline.last_completed_commit()
        assert newest is not None
        time = newest.requested_time
        if time in before:
            assert found(real) == before.pop(time), time
        plan = real.timeline.pending_compactions().last()
        if plan is not None and plan.requested_time > time:
            time = plan.requested_time
        try:
            roll_back_instant(
                access, time, unschedule=_is_plan(access, time), drop_metadata_table=True
            )
        except PlanStateError:
            break  # version 6: logs of writes that are gone by now still lie behind the compaction
        rolled_back += 1
    assert rolled_back


def _is_plan(access: Access, instant: str) -> bool:
    """Whether an instant is a compaction, completed or not."""
    properties = access.properties()
    found = access.timeline(properties).get(instant)
    return found is not None and found.completed_action == "commit" and properties.is_merge_on_read
