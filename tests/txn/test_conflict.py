"""Conflicts: which pairs of changes cannot both be right, by table version."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lakewright.format.file_slices import FileGroupId
from lakewright.format.instant import Instant, State
from lakewright.format.version import TableVersion
from lakewright.txn.conflict import Mutation, Other, find_conflict

MINE, OLDER, NEWER = "20250102000000000", "20250101000000000", "20250103000000000"
G, H = FileGroupId("a", "g"), FileGroupId("a", "h")


def other(instant: str, operation: str, *groups: FileGroupId, completed: bool = True) -> Other:
    state = State.COMPLETED if completed else State.REQUESTED
    action = "compaction" if operation == "COMPACT" and not completed else "commit"
    return Other(Instant(instant, action, state, None, "x"), operation, frozenset(groups))


def conflicts(version: int, theirs: Other, *, rewrites: bool) -> bool:
    mine = Mutation(MINE, frozenset({G}), frozenset({G} if rewrites else ()))
    return find_conflict(mine, [theirs], TableVersion.of(version)) is not None


@pytest.mark.parametrize("version", [6, 8])
@pytest.mark.parametrize("operation", ["INSERT", "UPSERT", "CLUSTER", "INSERT_OVERWRITE"])
@pytest.mark.parametrize("instant", [OLDER, NEWER])
def test_two_writes_of_one_group_conflict_whoever_began_first(
    version: int, operation: str, instant: str
) -> None:
    assert conflicts(version, other(instant, operation, G), rewrites=False)
    assert not conflicts(version, other(instant, operation, H), rewrites=False)


@pytest.mark.parametrize("instant", [OLDER, NEWER])
@pytest.mark.parametrize(
    ("version", "known", "rewrites", "expected"),
    [
        (6, True, False, False),
        # The log of a write that did not know the plan lies before the compaction, which never
        # saw it: also if the plan is older than the write's own instant.
        (6, False, False, True),
        (6, True, True, True),
        (8, True, False, False),
        (8, False, False, False),
        (8, True, True, True),
        (8, False, True, True),
    ],
)
def test_a_compaction_conflicts_where_a_late_file_would_be_lost(
    version: int, instant: str, known: bool, rewrites: bool, expected: bool
) -> None:
    for completed in (True, False):
        theirs = replace(other(instant, "COMPACT", G, completed=completed), known=known)
        assert conflicts(version, theirs, rewrites=rewrites) is expected
