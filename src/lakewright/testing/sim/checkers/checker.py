"""What a checker is, and how a set of them watches a table.

A checker is a pure function from a `TableState` to texts about what is wrong with it. `ALWAYS`
checkers hold after every single change of the disk, whatever dies; `AT_REST` checkers hold when all
processes have ended and one more write or recovery has run. `watch` runs them: those of a kind only
when something of that kind changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum

from lakewright.testing.sim.disk import Change
from lakewright.testing.sim.table_state import Stored, TableState
from lakewright.testing.sim.world import World

__all__ = ["Checker", "When", "watch"]


class When(Enum):
    """When a checker must find nothing."""

    ALWAYS = "after every change"
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


def watch(
    world: World,
    state: TableState,
    checkers: Iterable[Checker],
    *,
    root: str,
    every_change: bool = True,
) -> None:
    """Keep `state` up with the table at `root` and run the checkers on it.

    Without `every_change` all of them look at the end only, which is faster and sees less.
    """
    chosen = tuple(checkers)
    by_kind = {
        kind: tuple(c for c in chosen if kind in c.kinds and c.when is When.ALWAYS)
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
        if every_change and kind:
            _run(world, state, by_kind[kind])
            state.changed_files.clear()

    def finish() -> None:
        state.dead = {actor.name for actor in world.actors if actor.dead}
        state.changed_files.clear()
        _run(world, state, chosen)

    for path in bucket.objects():
        if path.startswith(inside):
            found = bucket.get(path)
            assert found is not None
            state.put(path[len(inside) :], Stored(found.content, found.modified_ms, "setup", 0, 0))
    world.observe(observe)
    world.finally_check(finish)


def _run(world: World, state: TableState, checkers: Iterable[Checker]) -> None:
    for checker in checkers:
        for text in checker.check(state):
            world.violate(checker.rule, text)
