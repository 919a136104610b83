"""The scene of most stories: a table with two changed file groups and one plan for them."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import pytest

from lakewright.format.file_slices import FileGroupId
from lakewright.format.instant import State
from lakewright.testing.sim.script import STORY_CHECKERS, Process, Stage
from lakewright.testing.sim.story_plans import Plans
from lakewright.testing.sim.story_writes import Write
from lakewright.txn.access import Access
from lakewright.txn.plan_kinds import CLUSTERING, COMPACTION, LOG_COMPACTION, PlanKind
from lakewright.txn.recovery import roll_back_failed, sweep_traces

ONE = FileGroupId("p0", "11111111-0000-0000-0000-000000000001-0")
TWO = FileGroupId("p1", "22222222-0000-0000-0000-000000000002-0")
NEW = FileGroupId("p0", "33333333-0000-0000-0000-000000000003-0")
OTHER = FileGroupId("p1", "44444444-0000-0000-0000-000000000004-0")


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of plan on a table of a version."""

    name: str
    kind: PlanKind
    version: int
    removable: bool
    told: bool | None = None
    """What the plan itself says about being removable."""


KEPT = (
    Kind("compaction-6", COMPACTION, 6, removable=False),
    Kind("compaction-8", COMPACTION, 8, removable=False),
    Kind("clustering-8", CLUSTERING, 8, removable=False),
)
"""Plans that stay until they are executed."""
REMOVABLE = (
    Kind("log-compaction-6", LOG_COMPACTION, 6, removable=True),
    Kind("log-compaction-8", LOG_COMPACTION, 8, removable=True),
    Kind("removable-clustering-8", CLUSTERING, 8, removable=True, told=True),
)
"""Plans that are taken away when they are rolled back."""
ALL = (*KEPT, *REMOVABLE)


class Scene(Stage):
    """A table of two file groups with a log each, and a plan for them."""

    def __init__(
        self,
        kind: Kind = KEPT[1],
        *,
        planned: bool = True,
        without: Collection[str] = (),
        **more: Any,
    ) -> None:
        checkers = tuple(c for c in STORY_CHECKERS if c.rule not in without)
        super().__init__(version=kind.version, checkers=checkers, **more)
        self.kind = kind
        setup = self.access(self.world.setup)
        self.first = Write(self.table, {"a": "1"}, (ONE, TWO))(setup)
        self.second = Write(self.table, {"b": "2"}, (ONE, TWO))(setup)
        self.plans = Plans(self.table, kind.kind, kind.told)
        self.finish_pending = self.plans.execute_pending
        self.plan = ""
        if planned:
            self.plan = self.plans.schedule(setup) or ""
            assert self.plan

    # ---- processes -----------------------------------------------------------------------------

    def executor(self, name: str, **changes: Any) -> Process:
        """A process that executes the plan once."""
        return self.process(name, lambda access: self.plans.execute(access, self.plan), **changes)

    def cleaner(self, name: str, **changes: Any) -> Process:
        """A process that rolls back what nobody works on."""

        def clean(access: Access) -> tuple[str, ...]:
            done = roll_back_failed(access).rolled_back
            sweep_traces(access)
            return done

        return self.process(name, clean, **changes)

    def writer(self, name: str, *groups: FileGroupId, **what: Any) -> Process:
        """A process that writes file groups once."""
        changes = what.pop("access", {})
        write = Write(self.table, {name: "written"}, groups, **what)
        return self.process(name, write, **changes)

    # ---- what there is -------------------------------------------------------------------------

    @property
    def plan_state(self) -> State | None:
        """How far the plan is; None if it is off the timeline."""
        return self.state_of(self.plan)

    def state_of(self, instant: str) -> State | None:
        """How far an instant is; None if it is off the timeline."""
        found = self.table.state.timeline.get(instant)
        return found.state if found is not None else None

    @property
    def rollbacks(self) -> list[tuple[str, State, str]]:
        """Rollbacks on the timeline: time, how far, of what."""
        found = self.table.state.rollbacks()
        return [(file.requested_time, file.state, target) for file, target, _ in found]

    def files_of(self, instant: str) -> list[str]:
        """Data files that carry an instant."""
        return sorted(self.table.state.by_instant.get(instant, {}))

    def beats(self, instant: str) -> str | None:
        """Who gave the sign of life that is there."""
        found = self.table.state.heartbeats.get(instant)
        return None if found is None else found.who

    def objects(self) -> dict[str, bytes]:
        """Everything on the disk."""
        return self.world.disk.bucket.objects()

    def completed_by(self, instant: str) -> list[str]:
        """Who completed an instant, once for each completed file."""
        files = self.table.state.states_of(instant)
        return [f.stored.who for f in files if f.state is State.COMPLETED]


@dataclass(frozen=True, slots=True)
class Case:
    """A story of which the outcome is required."""

    name: str
    kinds: tuple[Kind, ...]
    story: Callable[[Scene], None]
    rules: frozenset[str]
    """Rules that do not hold in it, for a reason that is part of it."""
    planned: bool
    one_machine: bool
    """Whether a process knows at once that another one is dead."""

    def scene(self, kind: Kind) -> Scene:
        """Where it is played."""
        return Scene(kind, planned=self.planned, without=self.rules, folders=self.one_machine)


class Cases(dict[str, Case]):
    """Stories by name, which begins with their number."""

    def told(
        self,
        number: int,
        title: str,
        kinds: tuple[Kind, ...] = ALL,
        *,
        rules: Collection[str] = (),
        planned: bool = True,
        one_machine: bool = False,
    ) -> Callable[[Callable[[Scene], None]], Callable[[Scene], None]]:
        """Register a story."""

        def register(story: Callable[[Scene], None]) -> Callable[[Scene], None]:
            name = f"{number:02d} {title}"
            assert name not in self
            self[name] = Case(name, kinds, story, frozenset(rules), planned, one_machine)
            return story

        return register

    def params(self) -> list[Any]:
        """One test for each story and kind of plan; a third of them is quick, in turn."""
        return [
            pytest.param(
                case,
                kind,
                id=f"{case.name}-{kind.name}",
                marks=() if (turn + number) % min(3, len(case.kinds)) == 0 else pytest.mark.slow,
            )
            for turn, case in enumerate(self.values())
            for number, kind in enumerate(case.kinds)
        ]


def play_case(case: Case, kind: Kind) -> Scene:
    """Play a story with a kind of plan; nothing may be violated by it."""
    return play(case.scene(kind), case.story)


def play(scene: Scene, story: Callable[[Scene], None], *, recovers: bool = True) -> Scene:
    """Play a story; nothing may be violated by it."""
    scene.play(lambda _: story(scene), recovers=recovers)
    assert not scene.complaints, f"{scene.complaints}\n{scene.world.trace.to_text(80)}"
    return scene
