"""Faults to inject into `MemoryStorage`: what a correct program must survive.

A hook is asked before and after every operation and may raise: before, the effect does not happen;
after, it has happened and the caller does not learn it. It may also answer a reading operation with
an earlier state, which is a stale listing or delayed visibility. Never injected, because no storage
below us does it: torn or mixed content, two winners of one create, invented names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from lakewright.errors import OutcomeUnknownError, StorageUnavailableError


class SimulatedCrash(BaseException):
    """The process died here. Not an `Exception`, so that no handler carries on after it."""


class Operation(NamedTuple):
    """One storage operation of one client."""

    name: str
    """The method of `Storage`."""
    path: str
    """Full path in the bucket."""
    index: int  # type: ignore[assignment] # hides a method that nobody needs
    """How many operations the client began before it."""


class FaultHook(Protocol):
    """Decides what goes wrong."""

    def before(self, operation: Operation) -> None:
        """Raise to prevent the effect."""
        ...

    def after(self, operation: Operation) -> None:
        """Raise to hide that the effect happened."""
        ...

    def view(self, operation: Operation, newest: int) -> int:
        """After how many changes a reading operation sees the bucket; `newest` is the truth."""
        ...


class NoFaults:
    """Nothing goes wrong."""

    def before(self, operation: Operation) -> None:
        """Let it happen."""

    def after(self, operation: Operation) -> None:
        """Let it be known."""

    def view(self, operation: Operation, newest: int) -> int:  # noqa: ARG002
        """The truth."""
        return newest


NO_FAULTS = NoFaults()


@dataclass(frozen=True, slots=True)
class Fault:
    """An error at one operation, before or after its effect."""

    error: Callable[[Operation], BaseException]
    effect: bool
    """Whether the operation takes effect before the error."""


def crash(*, effect: bool) -> Fault:
    """The process dies; everything it tries afterwards dies too."""
    return Fault(lambda operation: SimulatedCrash(f"killed at {operation}"), effect)


def unavailable(*, effect: bool = False) -> Fault:
    """A passing failure that a retry may overcome."""
    return Fault(
        lambda operation: StorageUnavailableError(
            f"Injected failure of {operation.name}.",
            hint="Try again.",
            context={"path": operation.path},
            retryable=True,
        ),
        effect,
    )


def unknown_outcome(*, effect: bool) -> Fault:
    """A write whose answer was lost, with or without its effect."""
    return Fault(
        lambda operation: OutcomeUnknownError(
            f"Injected loss of the answer to {operation.name}.",
            hint="Resolve it by repeating the operation with the same token.",
            context={"path": operation.path},
            retryable=True,
        ),
        effect,
    )


@dataclass(frozen=True, slots=True)
class FaultPlan:
    """Faults and stale views by operation number: one world, exactly repeatable."""

    faults: Mapping[int, Fault] = field(default_factory=dict)
    lags: Mapping[int, int] = field(default_factory=dict)
    """How many changes behind the truth a reading operation sees the bucket."""

    def before(self, operation: Operation) -> None:
        """Raise the planned fault that prevents this operation."""
        fault = self.faults.get(operation.index)
        if fault is not None and not fault.effect:
            raise fault.error(operation)

    def after(self, operation: Operation) -> None:
        """Raise the planned fault that hides this operation's effect."""
        fault = self.faults.get(operation.index)
        if fault is not None and fault.effect:
            raise fault.error(operation)

    def view(self, operation: Operation, newest: int) -> int:
        """The planned distance behind the truth."""
        return max(0, newest - self.lags.get(operation.index, 0))
