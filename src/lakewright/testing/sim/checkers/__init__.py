"""Checkers: the invariants of a table as pure functions over its state, and how to run them.

Rules are numbered as in the list of invariants: `14.9` is the ninth. Of those that concern
archiving, cleaning and the metadata table there are none yet.
"""

from __future__ import annotations

from lakewright.testing.sim.checkers import files, liveness, plans, rollback, timeline
from lakewright.testing.sim.checkers.checker import Checker, When, relaxed, watch
from lakewright.testing.sim.checkers.liveness import rolled_back_when_dead

__all__ = ["ALL_CHECKERS", "Checker", "When", "relaxed", "rolled_back_when_dead", "watch"]

ALL_CHECKERS: tuple[Checker, ...] = (
    *timeline.CHECKERS,
    *files.CHECKERS,
    *plans.CHECKERS,
    *rollback.CHECKERS,
    *liveness.CHECKERS,
)
