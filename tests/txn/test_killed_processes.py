"""Writers that are killed with SIGKILL: the next reader and the next writer need no help."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from interop.kill_process import OPERATIONS, write_in_process
from interop.kill_trials import (
    KINDS,
    Kind,
    copy_table,
    judge_next_writer,
    judge_reader,
    kill_points,
    make_stage,
)

KILLS = 6
"""For each operation and each kind of table; together more than a hundred."""
LAST = 4
"""Changes by which two runs of the same write may differ."""


@pytest.mark.slow
@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_after_a_kill_rows_are_old_or_new_and_the_next_writer_leaves_no_orphan(
    tmp_path: Path, kind: Kind, operation: str
) -> None:
    stage = make_stage(tmp_path, kind, operation)
    shift = KINDS.index(kind) * len(OPERATIONS) + OPERATIONS.index(operation)
    points = kill_points(stage.changes, KILLS, shift=shift)
    outcomes: Counter[str] = Counter()
    for point in points:
        path = tmp_path / "killed"
        copy_table(stage.path, path)
        ended = write_in_process(path, operation, kill_at=point)
        # Heartbeats go by the clock: a quicker run may be over before its last moments came.
        assert ended.killed or (point > stage.changes - LAST and ended.changes < point), point
        seen = judge_reader(stage, path)
        assert seen in (("before", "after") if ended.killed else ("after",)), point
        assert judge_next_writer(path, stage.rows(seen)) == [], point
        outcomes[seen] += 1
    assert outcomes["before"] and outcomes["after"]
