"""Lanes: the same small work on many things, a few of them at a time.

For work that mostly waits for an answer from elsewhere. Built on `Spawner` alone, so that a
simulator sees every switch. Nothing goes on beside the caller when `in_lanes` is over: it waits for
all lanes, and raises the error of the first lane that had one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from lakewright.runtime.spawn import Spawner

__all__ = ["FEW", "in_lanes"]

LANES = 16
"""Requests that wait for an answer at the same time; an object store answers after tens of
milliseconds, and a disk that others write to makes deletions wait too."""
FEW = 32
"""So few items are worked on one after the other."""

Item = TypeVar("Item")
Result = TypeVar("Result")


def in_lanes(
    work: Callable[[Item], Result],
    items: Sequence[Item],
    *,
    spawner: Spawner,
    lanes: int = LANES,
    few: int = FEW,
) -> list[Result]:
    """What the work makes of each item, in their order; so `few` are worked on by the caller.

    Each lane stops at its first error, and none begins another item after that.
    """
    if lanes <= 1 or len(items) <= few:
        return [work(item) for item in items]
    results: dict[int, Result] = {}
    failed: list[int] = []

    def run(lane: int) -> None:
        for number in range(lane, len(items), lanes):
            if failed:
                return
            try:
                results[number] = work(items[number])
            except BaseException:
                failed.append(lane)
                raise

    tasks = [spawner.spawn(partial(run, n), name=f"lane-{n}") for n in range(lanes)]
    for task in tasks:
        task.join()
    for task in tasks:
        task.result()
    return [results[number] for number in range(len(items))]
