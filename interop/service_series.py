"""All runs of the proof with killed services: which service, on what table, at which point.

Points come from a run in which nobody dies, and are spread over it; every other time the victim is
killed, else stopped. A run's name tells its series and its number there, and means the same run
again as long as the code under test makes the same changes.
"""

from __future__ import annotations

import multiprocessing
import random
import re
import shutil
import signal
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

from interop.kill_trials import Kind, copy_table
from interop.service_points import Point, Signal, points_of
from interop.service_process import Child, Work, be_dead_writer, be_victim, watch_plan
from interop.service_stages import Stage, dead_write, kinds_of, last_before, prepare
from interop.service_trials import Trial

SERVICES = {
    "compaction": 3,
    "compaction again": 3,
    "compaction run": 2,
    "clean": 2,
    "clean run": 1,
    "rollback": 2,
}
"""How many runs each gets, in proportion."""
EXPIRING = (
    ("compaction", Kind(8, "mor")),
    ("compaction again", Kind(6, "mor")),
    ("clean", Kind(8, "mor")),
    ("rollback", Kind(8, "mor")),
)
"""What is tried under a lock that is lost by standing still, too."""
SPARK_SERVICES = {"compaction": 3, "compaction again": 2, "clean": 1, "rollback": 1}
WORKERS_CHANGE = re.compile("create (marker|base file)")
HALF = 0.5
BEFORE_THE_END = {
    "compaction again": Point("create commit completed of the plan"),
    "mor": Point("create deltacommit completed of the plan"),
    "cow": Point("create commit completed of the plan"),
}
"""Where the earlier attempt, and the write that is rolled back, have died."""


# ---- stages ------------------------------------------------------------------------------------


@cache
def make_stage(folder: Path, service: str, kind: Kind, *, expiring: bool) -> Stage:
    """The table on which a service is tried."""
    path = folder / f"{service}-{kind}-{expiring}".replace(" ", "-")
    plan, batches = in_process(prepare, path / "table", service, kind, expiring=expiring)
    stage = Stage(service, kind, expiring, path / "table", plan, batches)
    work = Work(stage, path / "table", path / "scratch")
    work.scratch.mkdir(parents=True)
    point = BEFORE_THE_END.get(service) or BEFORE_THE_END[kind.type]
    watch = replace(watch_plan(work, {"*": "plan"}), signal=Signal(point, signal.SIGKILL))
    if service == "compaction again":
        ended(Child(be_victim, work, watch))
    elif service == "rollback":
        ended(Child(be_dead_writer, work, watch, batches + 1))
        stage = replace(stage, plan=dead_write(path / "table"), batches=batches + 1)
    shutil.rmtree(work.scratch)
    return replace(stage, before=last_before(stage.path, stage.plan))


@cache
def points(stage: Stage, folder: Path) -> list[Point]:
    """Every point of a service, from a run in which nobody dies."""
    place = folder / "whole"
    shutil.rmtree(place, ignore_errors=True)
    (place / "scratch").mkdir(parents=True)
    copy_table(stage.path, place / "table")
    work = Work(stage, place / "table", place / "scratch")
    told = ended(Child(be_victim, work, watch_plan(work)))
    assert told == ("did", ""), (stage.name, told)
    return [*points_of(place / "scratch")]


def in_process(run: Any, *arguments: Any, **named: Any) -> Any:
    """What a function gives, called in a process of its own; this one stays without threads."""
    context = multiprocessing.get_context("fork")
    mine, its = context.Pipe()
    process = context.Process(target=lambda: its.send(run(*arguments, **named)))
    process.start()
    its.close()
    try:
        return mine.recv()
    finally:
        process.join()


def ended(child: Child) -> Any:
    """How a process ended; None if it was killed."""
    while child.process.is_alive():
        child.listen()
        time.sleep(0.01)
    child.listen()
    child.process.join()
    return next(iter(child.told("ended")), None)


# ---- trials ------------------------------------------------------------------------------------


def spread(found: Sequence[Any], count: int, shift: float) -> list[Any]:
    """So many of them, evenly; the shift, below one, moves all of them a little."""
    count = min(count, len(found))
    return [found[int((i + shift) * len(found) / count)] for i in range(count)]


def turns(found: Sequence[Point], count: int, shift: float) -> list[tuple[Point, bool]]:
    """So many points, and whether the victim is only stopped there: every other time, or at each
    point both, if there are turns enough."""
    if count > len(found):
        return spread([(point, stop) for point in found for stop in (False, True)], count, shift)
    first = shift < HALF
    return [(point, (i % 2 == 0) == first) for i, point in enumerate(spread(found, count, shift))]


@dataclass(frozen=True)
class Series:
    """The trials of one service on one kind of table."""

    service: str
    kind: Kind
    count: int
    seed: int
    expiring: bool = False
    on_spark: bool = False

    @property
    def names(self) -> list[str]:
        """The names of its trials."""
        words = ["spark"] * self.on_spark + self.service.split() + [str(self.kind)]
        slug = "-".join(words + ["expiring"] * self.expiring)
        return [f"{slug}-{i}" for i in range(self.count)]

    def trials(self, folder: Path, only: Sequence[str]) -> Iterator[Trial]:
        """Its trials, of those that are asked for."""
        if not any(_matches(name, only) for name in self.names):
            return
        chance = random.Random(f"{self.seed} {self.names[0]}")
        stage = make_stage(folder, self.service, self.kind, expiring=self.expiring)
        found = points(stage, folder)
        print(f"{stage.name}: {len(found)} points", flush=True)
        for name, (point, stop) in zip(self.names, self._turns(found, chance), strict=False):
            how = {"wakes_during": chance.random() < HALF, "whole_session": chance.random() < HALF}
            if _matches(name, only):
                yield Trial(name, stage, point, stop, on_spark=self.on_spark, **how)

    def _turns(self, found: Sequence[Point], chance: random.Random) -> Iterable[tuple[Point, bool]]:
        shift = chance.random()
        if self.expiring:  # who is dead loses it at once anyway
            may = [point for point in found if not point.publishes]
            return [(point, True) for point in spread(may, self.count, shift)]
        if self.on_spark:  # every task counts for itself
            found = [p for p in found if not (p.number and WORKERS_CHANGE.search(p.name))]
        return turns(found, self.count, shift)


def all_series(runs: int, on_spark: int, seed: int) -> list[Series]:
    """Everything that is tried."""
    inline = [(s, k, w, False) for s, w in SERVICES.items() for k in kinds_of(s)]
    inline += [(service, kind, 2, True) for service, kind in EXPIRING]
    spark = [(s, k, w) for s, w in SPARK_SERVICES.items() for k in kinds_of(s) if k.type == "mor"]
    return [
        *(
            Series(s, k, -(-runs * w // sum(w for *_, w, _ in inline)), seed, expiring)
            for s, k, w, expiring in inline
        ),
        *(
            Series(s, k, -(-on_spark * w // sum(w for *_, w in spark)), seed, on_spark=True)
            for s, k, w in spark
        ),
    ]


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
