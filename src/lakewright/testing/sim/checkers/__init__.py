"""Checkers: the invariants of a table as pure functions over its state, and how to run them.

Rules are numbered as in the list of invariants: `14.9` is the ninth. The sixteenth, what the rows
are, is the model's; the twenty-eighth is watched with the locks; what a rollback leaves of a plan
(the twenty-sixth) is part of `14.25`. There are none about clustering and the metadata table, which
nothing in these worlds makes.
"""

from __future__ import annotations

from lakewright.testing.sim.checkers import (
    files,
    liveness,
    plans,
    rollback,
    timeline,
    upkeep,
)
from lakewright.testing.sim.checkers.checker import Checker, When, relaxed, watch
from lakewright.testing.sim.checkers.liveness import rolled_back_when_dead

__all__ = ["ALL_CHECKERS", "Checker", "When", "relaxed", "rolled_back_when_dead", "watch"]

ALL_CHECKERS: tuple[Checker, ...] = (
    *timeline.CHECKERS,
    *files.CHECKERS,
    *plans.CHECKERS,
    *rollback.CHECKERS,
    *upkeep.CHECKERS,
    *liveness.CHECKERS,
)
