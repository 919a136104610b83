"""What a checker is, and how a set of them watches a table.

A checker is a pure function from a `TableState` to texts about what is wrong with it. It asks for
the news where nothing else can break its rule, and at the end everything is news. `ALWAYS`
checkers hold after every single change of the disk, whatever dies; `AT_REST` checkers hold when all
processes have ended and one more write or recovery has run. `watch` runs them: those of a kind only
when something of that kind changed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from enum import Enum

from lakewright.testing.sim.disk import Change
from lakewright.testing.sim.table_state import Stored, TableState
from lakewright.testing.sim.world import World

__all__ = ["Checker", "When", "relaxed", "watch"]


class When(Enum):
    """When a checker must find nothing."""

    ALWAYS = "after every change"
    AT_ONCE = "right after the change that it is about"
    AT_REST = "at rest"


@dataclass(frozen=True, slots=True)
class Checker:
    """One rule."""

    rule: str
    about: str
    kinds: frozenset[str]
    """Changes after which it must look: `state`, `data`, `heartbeat`."""
    check: Callable[[TableState], Iterable[str]]
    when: When = When.ALWAYS


def relaxed(checkers: Iterable[Checker], rules: Collection[str]) -> tuple[Checker, ...]:
    """The checkers, with those of some rules at rest only."""
    return tuple(replace(c, when=When.AT_REST) if c.rule in rules else c for c in checkers)


def watch(world: World, state: TableState, checkers: Iterable[Checker], *, root: str) -> None:
    """Keep `state` up with the table at `root` and run the checkers on it."""
    chosen = tuple(checkers)
    by_kind = {
        kind: tuple(c for c in chosen if kind in c.kinds and c.when is not When.AT_REST)
        for kind in ("state", "data", "heartbeat")
    }
    inside = f"{root}/" if root else ""
    bucket = world.disk.bucket

    def observe(change: Change) -> None:
        if not change.path.startswith(inside):
            return
        path = change.path[len(inside) :]
        found = bucket.get(change.path)
        if found is None:
            kind = state.remove(path)
        else:
            made = Stored(
                found.content, found.modified_ms, change.who, change.number, change.time_s
            )
            kind = state.put(path, made)
        if kind:
            _run(world, state, by_kind[kind])
            state.looked()

    def finish() -> None:
        state.whole = True
        _run(world, state, (c for c in chosen if c.when is not When.AT_ONCE))

    state.dead, state.ended = world.dead, world.ended
    _take_in(world, state, inside)
    state.looked()
    state.whole = False
    world.observe(observe)
    world.finally_check(finish)


def _take_in(world: World, state: TableState, inside: str) -> None:
    """Begin with what is on the disk."""
    there = [
        (p, s)
        for p in world.disk.bucket.objects()
        if p.startswith(inside) and (s := world.disk.bucket.get(p)) is not None
    ]
    there.sort(key=lambda found: found[1].modified_ms)
    for order, (path, found) in enumerate(there, -len(there)):
        made = Stored(found.content, found.modified_ms, "setup", order, 0.0)
        state.put(path[len(inside) :], made)


def _run(world: World, state: TableState, checkers: Iterable[Checker]) -> None:
    for checker in checkers:
        for text in checker.check(state):
            world.violate(checker.rule, text)
