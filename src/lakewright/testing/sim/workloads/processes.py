"""Processes of a world that come and go: started at some moment, and anew whenever they die."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from lakewright.testing.sim.actors import Actor
from lakewright.testing.sim.faults import FaultRates
from lakewright.testing.sim.world import World

__all__ = ["add_processes"]

RESTARTS: Final = 2
RESTART_AFTER_S: Final = 5.0
OFFSET_MS_MAX: Final = 90.0
"""How far clocks of one fleet are from the true time, as far as NTP keeps them."""
DRIFT_MAX: Final = 2e-4
"""How much too fast or too slow a clock runs."""


def add_processes(
    world: World,
    name: str,
    count: int,
    fn: Callable[[Actor], Any],
    *,
    rates: FaultRates,
    within_s: float = 2.0,
    offset_ms_max: float = OFFSET_MS_MAX,
) -> None:
    """Let so many processes run `fn`, each with a clock that is a little wrong."""
    chance = world.random
    for number in range(count):
        actor = world.add(
            f"{name}{number}",
            fn,
            rates=rates,
            delay_s=chance.uniform(0, within_s),
            restarts=RESTARTS,
            restart_after_s=RESTART_AFTER_S,
        )
        actor.clock.offset_ms = chance.uniform(-offset_ms_max, offset_ms_max)
        actor.clock.pace = 1 + chance.uniform(-DRIFT_MAX, DRIFT_MAX)
