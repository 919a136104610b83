"""What goes wrong for one simulated process: chosen by the seed, or said exactly.

`FaultRates` are probabilities per storage operation; `crash_at` names one operation. A `Fate` is
what happens to one operation. Reads fail as unavailable; writes also lose their answer, with or
without their effect. Never chosen: what no storage does (see `lakewright.storage.faults`).
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from lakewright.storage.faults import Operation

__all__ = ["NO_RATES", "Fate", "FateKind", "FateMaker", "FaultRates"]

WRITES: Final = frozenset(
    {"create_if_absent", "create_from", "replace", "replace_if_match", "delete", "set_modified"}
)
"""Operations that change the storage."""


class FateKind(Enum):
    """What happens to an operation."""

    CRASH = "crash"
    STALL = "stall"
    UNAVAILABLE = "unavailable"
    UNKNOWN = "unknown"
    JUMP = "jump"
    """The process' clock is set."""


@dataclass(frozen=True, slots=True)
class Fate:
    """What happens to one operation, before or after its effect."""

    kind: FateKind
    effect: bool
    """Whether the operation takes effect first."""
    amount: float = 0.0
    """Seconds of a stall, milliseconds of a jump."""


@dataclass(frozen=True, slots=True)
class FaultRates:
    """Probabilities per storage operation of one process, and how bad it gets."""

    crash: float = 0.0
    stall: float = 0.0
    unavailable: float = 0.0
    unknown: float = 0.0
    jump: float = 0.0
    outage: float = 0.0
    """That the storage cannot be reached from now on, for a number of operations."""
    outage_max: int = 30
    stall_s_max: float = 60.0
    jump_ms_max: float = 5_000.0
    latency_s: float = 0.01
    """Typical time of an operation; a few take a hundred times as long."""
    lag_s_max: float = 0.0
    """How old a listing may be; zero is a strongly consistent storage."""
    lease: float = 0.0
    """That a lock service loses a lock whose process lives, per lock."""

    @property
    def total(self) -> float:
        """The probability that anything happens."""
        failing = self.unavailable + self.unknown + self.outage
        return self.crash + self.stall + self.jump + failing


NO_RATES: Final = FaultRates()


@dataclass(slots=True)
class FateMaker:
    """Draws the fates of one process' operations from its own stream of chance."""

    rates: FaultRates
    chance: random.Random
    exact: dict[int, Fate] = field(default_factory=dict)
    """Fates by operation number; they come before anything drawn."""
    certain: bool = False
    """Whether the storage never loses an answer, as a folder does not."""
    _out: int = 0
    """Operations that the storage is still out of reach for."""
    _total: float = 0.0
    steady: Callable[[Operation], bool] = lambda _: False
    """Operations before which the process does not stall, by whichever of its threads: between the
    last look at a lock and what is published under it lies one operation that no protocol on this
    storage can protect."""

    def __post_init__(self) -> None:
        self._total = self.rates.total

    def fate(self, operation: Operation) -> Fate | None:
        """What happens to an operation; None: nothing."""
        exact = self.exact.get(operation.index)
        if exact is not None:
            return exact
        if self._out:
            self._out -= 1
            return self._unreachable(operation)
        if self._total == 0.0:
            return None
        draw = self.chance.random()
        if draw >= self._total:
            return None
        rates = self.rates
        effect = self.chance.random() < 0.5
        if draw < rates.crash:
            return Fate(FateKind.CRASH, effect)
        draw -= rates.crash
        if draw < rates.stall:
            if not effect and self.steady(operation):
                return None
            # Most stalls are short; a few last as long as they may.
            return Fate(FateKind.STALL, effect, rates.stall_s_max * self.chance.random() ** 3)
        draw -= rates.stall
        if draw < rates.jump:
            ahead = 2 * self.chance.random() - 1
            return Fate(FateKind.JUMP, effect, rates.jump_ms_max * ahead)
        draw -= rates.jump
        if draw < rates.outage:
            self._out = int(rates.outage_max * self.chance.random())
            return self._unreachable(operation)
        draw -= rates.outage
        if draw < rates.unknown and operation.name in WRITES:
            return Fate(FateKind.UNKNOWN, effect)
        return Fate(FateKind.UNAVAILABLE, False)

    def _unreachable(self, operation: Operation) -> Fate:
        """An operation in an outage fails, but the first of them may have got through."""
        lost = self.chance.random() < 0.2 and operation.name in WRITES and not self.certain
        return Fate(FateKind.UNKNOWN if lost else FateKind.UNAVAILABLE, lost)

    def latency_s(self) -> float:
        """How long an operation takes."""
        draw = self.chance.random()
        if draw > 0.98:
            return self.rates.latency_s * 100 * (draw - 0.98) / 0.02
        return self.rates.latency_s * (0.1 + 2 * draw)

    def lag_s(self) -> float:
        """How old a listing is."""
        if self.rates.lag_s_max == 0.0 or self.chance.random() < 0.5:
            return 0.0
        return self.rates.lag_s_max * self.chance.random()
