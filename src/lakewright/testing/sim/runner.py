"""Running worlds: one, one per possible crash, or very many on several processes.

`every_crash` is the exhaustive way: a clean run counts the storage operations of one actor, then
one world dies at each of them, before and after its effect. `run_many` is the random way: a range
of seeds of one workload, shared among processes; the sum says how much was seen of what.
"""

from __future__ import annotations

import os
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from multiprocessing import get_context

from lakewright.testing.sim.actors import Actor
from lakewright.testing.sim.workloads import WORKLOADS
from lakewright.testing.sim.workloads.workload import Workload
from lakewright.testing.sim.world import Outcome, World

__all__ = ["CrashRun", "Summary", "every_crash", "replay_command", "run_many", "run_world"]

_CHUNK_MAX = 50
FAILURES_MAX = 20


def replay_command(outcome: Outcome) -> str:
    """The command that shows an outcome again, with its trace."""
    return (
        f"python -m lakewright.testing.sim --world {outcome.workload} --seed {outcome.seed} --trace"
    )


def run_world(workload: Workload, seed: int) -> tuple[World, Outcome]:
    """Play one world; the world is given back for its trace."""
    world = workload.make(seed)
    return world, world.run()


@dataclass(frozen=True, slots=True)
class CrashRun:
    """A world in which one actor died at one operation."""

    index: int
    effect: bool
    world: World
    outcome: Outcome


def every_crash(
    make_world: Callable[[], World], actor: str, *, stride: int = 1
) -> Iterator[CrashRun]:
    """One world per storage operation of `actor` and side of its effect.

    `make_world` must make equal worlds. The clean run comes first and must be free of violations.
    A `stride` leaves operations out, for tests that must be quick.
    """
    clean = make_world()
    outcome = clean.run()
    if not outcome.ok:
        found = "\n".join(map(str, outcome.violations))
        raise AssertionError(f"The world is broken without any crash:\n{found}")
    for index in range(0, _named(clean, actor).operations, stride):
        for effect in (False, True):
            world = make_world()
            _named(world, actor).crash_at(index, effect=effect)
            yield CrashRun(index, effect, world, world.run())


def _named(world: World, name: str) -> Actor:
    return next(a for a in world.actors if a.name == name)


@dataclass(slots=True)
class Summary:
    """What a set of worlds contained."""

    worlds: int = 0
    operations: int = 0
    seconds: float = 0.0
    """Real time."""
    simulated_s: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)
    failures: list[Outcome] = field(default_factory=list)
    failed: int = 0
    digest: int = 0
    """Equal for equal histories of all worlds, in whatever order they were played."""

    def add(self, outcome: Outcome) -> None:
        """Count one world."""
        self.worlds += 1
        self.operations += outcome.operations
        self.simulated_s += outcome.seconds
        self.counts.update(outcome.counts)
        self.digest ^= zlib.crc32(f"{outcome.seed} {outcome.digest}".encode())
        if not outcome.ok:
            self.failed += 1
            self.failures.append(outcome)
            self.failures = sorted(self.failures, key=lambda o: o.seed)[:FAILURES_MAX]

    def to_text(self) -> str:
        """Worlds per second, what happened how often, and how to see each failure."""
        pace = self.worlds / self.seconds if self.seconds else 0.0
        lines = [
            f"{self.worlds} worlds in {self.seconds:.1f} s ({pace:.0f} per second), "
            f"{self.operations} storage operations, {self.simulated_s / 3600:.1f} simulated hours, "
            f"{self.failed} with violations, digest {self.digest:08x}",
            *(f"  {count:>9}  {what}" for what, count in sorted(self.counts.items())),
        ]
        for outcome in self.failures:
            lines.append(f"FAILED {outcome.workload} seed {outcome.seed}")
            lines += [f"  {violation}" for violation in outcome.violations[:3]]
            lines.append(f"  replay: {replay_command(outcome)}")
        return "\n".join(lines)


def _run_chunk(name: str, seeds: Sequence[int], core: int | None = None) -> list[Outcome]:
    if core is not None and hasattr(os, "sched_setaffinity"):
        # One thread of a world runs at a time; handing over on one core is several times faster.
        os.sched_setaffinity(0, {core})
    return [run_world(WORKLOADS[name], seed)[1] for seed in seeds]


def run_many(
    name: str,
    seeds: Sequence[int],
    *,
    jobs: int = 1,
    seconds: float | None = None,
    tell: Callable[[Summary], None] = lambda _: None,
) -> Summary:
    """Play the worlds of `seeds` on `jobs` processes, stopping early after `seconds`."""
    summary = Summary()
    began = time.monotonic()
    size = max(1, min(_CHUNK_MAX, len(seeds) // (4 * jobs)))
    chunks = [seeds[at : at + size] for at in range(0, len(seeds), size)]

    def note(outcomes: list[Outcome]) -> bool:
        for outcome in outcomes:
            summary.add(outcome)
        summary.seconds = time.monotonic() - began
        tell(summary)
        return seconds is not None and summary.seconds >= seconds

    if jobs == 1:
        for chunk in chunks:
            if note(_run_chunk(name, chunk)):
                break
        return summary
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        futures = [
            pool.submit(_run_chunk, name, chunk, cores[i % jobs % len(cores)] if cores else None)
            for i, chunk in enumerate(chunks)
        ]
        for future in as_completed(futures):
            if note(future.result()):
                pool.shutdown(wait=True, cancel_futures=True)
                break
    return summary
