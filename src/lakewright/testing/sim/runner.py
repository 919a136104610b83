"""Running worlds: one, one per possible crash, or very many on several processes.

`every_crash` is the exhaustive way: a clean run counts the storage operations of one actor, then
one world dies at each of them, before and after its effect. `run_batches` is the random way: seeds
of workloads, shared among processes; the sum says how much was seen of what. `whole_run` says how
many seeds of each workload make a run of so many worlds.
"""

from __future__ import annotations

import faulthandler
import gc
import sys
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import get_context
from typing import Final

from lakewright.testing.sim.actors import Actor
from lakewright.testing.sim.coverage import tables
from lakewright.testing.sim.known_contents import remembered
from lakewright.testing.sim.workloads import WORKLOADS
from lakewright.testing.sim.workloads.workload import Workload
from lakewright.testing.sim.world import Outcome, World

__all__ = [
    "CrashRun",
    "Summary",
    "every_crash",
    "replay_command",
    "run_batches",
    "run_many",
    "run_world",
    "whole_run",
]

_CHUNK_MAX: Final = 100
_REAL_CHUNK_MAX: Final = 10
_WORLDS_PER_COLLECTION: Final = 40
"""Few enough that what is left of worlds takes little memory."""
_STUCK_S: Final = 300.0
"""So many worlds take a few seconds: after that one stands still for ever, and the process ends and
tells where."""
FAILURES_MAX: Final = 20
REAL_WORLD_PER: Final = 50
"""Of so many worlds with stub files there is one with real files."""


def replay_command(outcome: Outcome) -> str:
    """The command that shows an outcome again, with its trace."""
    return (
        f"python -m lakewright.testing.sim --world {outcome.workload} --seed {outcome.seed} --trace"
    )


def run_world(workload: Workload, seed: int, *, traced: bool = True) -> tuple[World, Outcome]:
    """Play one world; the world is given back for its trace, which changes nothing in it."""
    with remembered():
        world = workload.make(seed)
        world.trace.kept = traced
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
    cpu_s: float = 0.0
    """Processor time of all processes together."""
    simulated_s: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)
    failures: list[Outcome] = field(default_factory=list)
    failed: int = 0
    digest: int = 0
    """Equal for equal histories of all worlds, in whatever order they were played."""

    def add(self, other: Summary) -> None:
        """Add the worlds of another set."""
        self.worlds += other.worlds
        self.operations += other.operations
        self.cpu_s += other.cpu_s
        self.simulated_s += other.simulated_s
        self.counts.update(other.counts)
        self.digest ^= other.digest
        self.failed += other.failed
        self.failures = sorted((*self.failures, *other.failures), key=lambda o: o.seed)
        del self.failures[FAILURES_MAX:]

    def note(self, outcome: Outcome) -> None:
        """Count one world."""
        self.worlds += 1
        self.operations += outcome.operations
        self.simulated_s += outcome.seconds
        self.counts.update(outcome.counts)
        self.digest ^= zlib.crc32(f"{outcome.workload} {outcome.seed} {outcome.digest}".encode())
        if not outcome.ok:
            self.failed += 1
            self.failures.append(outcome)

    def to_line(self) -> str:
        """How many worlds, how fast, how many failed."""
        pace = self.worlds / self.seconds if self.seconds else 0.0
        each = self.worlds / self.cpu_s if self.cpu_s else 0.0
        return (
            f"{self.worlds} worlds in {self.seconds:.1f} s ({pace:.0f} per second, {each:.0f} per "
            f"second of one core), {self.operations} storage operations, "
            f"{self.simulated_s / 3600:.1f} simulated hours, {self.failed} with violations, "
            f"digest {self.digest:08x}"
        )

    def to_text(self) -> str:
        """Worlds per second, what happened how often, and how to see each failure."""
        lines = [self.to_line(), *tables(self.counts)]
        for outcome in self.failures:
            lines.append(f"FAILED {outcome.workload} seed {outcome.seed}")
            lines += [f"  {violation}" for violation in outcome.violations[:3]]
            lines.append(f"  replay: {replay_command(outcome)}")
        return "\n".join(lines)


# ---- very many ---------------------------------------------------------------------------------


def whole_run(worlds: int) -> dict[str, Sequence[int]]:
    """Seeds by workload: so many worlds with stub files, and some with real ones."""
    sound = [w for w in WORKLOADS.values() if w.share and not w.broken]
    found: dict[str, Sequence[int]] = {}
    for real, total in ((False, worlds), (True, -(-worlds // REAL_WORLD_PER))):
        chosen = [w for w in sound if w.real is real]
        shares = sum(w.share for w in chosen)
        for workload in chosen:
            found[workload.name] = range(-(-total * workload.share // shares))
    return found


def _run_chunk(name: str, seeds: Sequence[int]) -> tuple[str, Summary]:
    summary = Summary()
    began, began_cpu = time.monotonic(), time.process_time()
    _watch()
    with _collecting_seldom() as collect:
        for number, seed in enumerate(seeds, 1):
            summary.note(run_world(WORKLOADS[name], seed, traced=False)[1])
            if number % _WORLDS_PER_COLLECTION == 0:
                collect()
                _watch()
    faulthandler.cancel_dump_traceback_later()
    summary.cpu_s = time.process_time() - began_cpu
    summary.seconds = time.monotonic() - began
    return name, summary


def _watch() -> None:
    """End the process if nothing is heard of it for long."""
    faulthandler.dump_traceback_later(_STUCK_S, exit=True, file=sys.__stderr__ or 2)


@contextmanager
def _collecting_seldom() -> Iterator[Callable[[], object]]:
    """Nothing is looked at again and again for being garbage: a world is, as a whole, when it is
    over. A quarter of the time of a world went into that."""
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield gc.collect
    finally:
        gc.enable()
        gc.unfreeze()


def run_batches(
    batches: Mapping[str, Sequence[int]],
    *,
    jobs: int = 1,
    seconds: float | None = None,
    tell: Callable[[Summary], None] = lambda _: None,
) -> dict[str, Summary]:
    """Play the worlds of seeds by workload on `jobs` processes, stopping early after `seconds`.

    `tell` hears the sum of everything so far.
    """
    found = {name: Summary() for name in batches}
    everything = Summary()
    began = time.monotonic()
    chunks = _chunks(batches, jobs)

    def note(name: str, part: Summary) -> bool:
        for summary in (found[name], everything):
            summary.add(part)
        found[name].seconds += part.seconds / jobs
        everything.seconds = time.monotonic() - began
        tell(everything)
        return seconds is not None and everything.seconds >= seconds

    if jobs == 1:
        for chunk in chunks:
            if note(*_run_chunk(*chunk)):
                break
    else:
        _run_on_processes(chunks, jobs, note)
    return found


_Chunk = tuple[str, Sequence[int]]


def _chunks(batches: Mapping[str, Sequence[int]], jobs: int) -> list[_Chunk]:
    """Parts of all workloads, a little of each at a time: an early end has seen them all."""
    found: list[tuple[float, _Chunk]] = []
    for name, seeds in batches.items():
        most = _REAL_CHUNK_MAX if WORKLOADS[name].real else _CHUNK_MAX
        size = max(1, min(most, len(seeds) // (4 * jobs)))
        starts = range(0, len(seeds), size)
        found += [(at / len(seeds), (name, seeds[at : at + size])) for at in starts]
    return [chunk for _, chunk in sorted(found, key=lambda part: part[0])]


def _run_on_processes(
    chunks: Sequence[_Chunk], jobs: int, note: Callable[[str, Summary], bool]
) -> None:
    with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
        futures = [pool.submit(_run_chunk, *chunk) for chunk in chunks]
        for future in as_completed(futures):
            if note(*future.result()):
                pool.shutdown(wait=True, cancel_futures=True)
                break


def run_many(
    name: str,
    seeds: Sequence[int],
    *,
    jobs: int = 1,
    seconds: float | None = None,
    tell: Callable[[Summary], None] = lambda _: None,
) -> Summary:
    """Play the worlds of `seeds` of one workload."""
    return run_batches({name: seeds}, jobs=jobs, seconds=seconds, tell=tell)[name]
