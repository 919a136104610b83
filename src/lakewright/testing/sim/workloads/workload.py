"""What a workload is: a name, what it is about, and how to make its world from a seed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from lakewright.testing.sim.world import World

__all__ = ["Workload"]


@dataclass(frozen=True, slots=True)
class Workload:
    """A family of worlds, one per seed."""

    name: str
    about: str
    make: Callable[[int], World]
    share: int = 0
    """How much of a whole run is of this kind, beside others of the same kind of files."""
    real: bool = False
    """Whether its files are real ones, which takes longer."""
    broken: bool = False
    """Whether violations are to be expected: its protocol is wrong on purpose, or its world breaks
    what the protocol relies on."""
