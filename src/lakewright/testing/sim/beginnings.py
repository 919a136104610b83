"""Tables with a past: made once by the product, then put on the disks of many worlds.

Cleaning and archiving need old commits. A past is written by the setup process of a world of its
own, at its first moment, so that every world that begins with it goes on from there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Final

from lakewright.testing.sim.checkers import Checker
from lakewright.testing.sim.tables import SimTable
from lakewright.testing.sim.world import World

__all__ = ["Past", "table_with_past"]

Past = Callable[[SimTable], None]
"""Fills a table, by its world's setup process."""
_PASTS_MAX: Final = 64


@lru_cache(maxsize=_PASTS_MAX)
def _written(past: Past, version: int, merge_on_read: bool, folders: bool) -> SimTable:
    world = World(0, workload="past", folders=folders)
    table = SimTable.make(
        world, version=version, merge_on_read=merge_on_read, checkers=(), locked=False
    )
    past(table)
    return table


def table_with_past(
    world: World,
    past: Past,
    *,
    version: int,
    merge_on_read: bool,
    checkers: Sequence[Checker],
) -> SimTable:
    """A table on the disk of a new world that was written before, watched by `checkers`."""
    before = _written(past, version, merge_on_read, world.disk.has_folders)
    world.disk.begin_as(before.world.disk)
    table = SimTable.of(world, before.properties, checkers=checkers)
    table.model.begin_as(before.model)
    world.finally_check(table.check_final)
    return table
