"""The command line of the simulator: a whole run of so many worlds, many seeds of one workload, or
one seed again with its trace.

Exit code 0: no violations; 1: violations; 2: wrong usage. A workload that is broken on purpose ends
with 1 as well, since its violations are real.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Final

from lakewright.testing.sim.runner import (
    Summary,
    replay_command,
    run_batches,
    run_world,
    whole_run,
)
from lakewright.testing.sim.workloads import WORKLOADS

__all__ = ["main"]

_SEEDS: Final = 200
_PROGRESS_EVERY_S: Final = 10.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; the exit code."""
    # Readers of worlds leave many a metadata table aside that is about to be built anew.
    logging.getLogger("lakewright").addHandler(logging.NullHandler())
    said = _parser().parse_args(arguments)
    names = said.world or [w.name for w in WORKLOADS.values() if not w.broken]
    unknown = [name for name in names if name not in WORKLOADS]
    if unknown:
        _say(f"There is no workload {', '.join(unknown)}; there are {', '.join(WORKLOADS)}.")
        return 2
    if said.seed is not None:
        return max(_replay(name, said.seed, trace=said.trace) for name in names)
    if said.worlds is not None:
        batches = whole_run(said.worlds)
    else:
        batches = dict.fromkeys(names, range(said.first, said.first + said.seeds))
    return _run(batches, jobs=said.jobs, seconds=said.seconds)


def _run(batches: Mapping[str, Sequence[int]], *, jobs: int, seconds: float | None) -> int:
    goal = sum(map(len, batches.values()))
    began = time.monotonic()
    found = run_batches(batches, jobs=jobs, seconds=seconds, tell=_Progress(goal))
    for name, summary in found.items():
        _say(f"{name}: {summary.to_text() if len(found) == 1 else summary.to_line()}")
    if len(found) > 1:
        everything = Summary()
        for summary in found.values():
            everything.add(summary)
        everything.seconds = time.monotonic() - began
        _say(f"all: {everything.to_text()}")
    return 1 if any(summary.failed for summary in found.values()) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m lakewright.testing.sim", description=__doc__)
    add = parser.add_argument
    listed = "; ".join(f"{w.name}: {w.about}" for w in WORKLOADS.values())
    add("--world", action="append", metavar="NAME", help=f"all sound ones if not given; {listed}")
    add("--seed", type=int, help="play this seed alone")
    add("--trace", action="store_true", help="with --seed: print everything that happened")
    add("--worlds", type=int, help="a whole run of so many worlds, and a fiftieth with real files")
    add("--seeds", type=int, default=_SEEDS, help=f"how many seeds of each workload ({_SEEDS})")
    add("--first", type=int, default=0, help="the first seed (0)")
    add("--jobs", type=int, default=1, help="processes")
    add("--seconds", type=float, help="stop after so long")
    return parser


def _replay(name: str, seed: int, *, trace: bool) -> int:
    world, outcome = run_world(WORKLOADS[name], seed)
    if trace:
        _say(world.trace.to_text())
    for violation in outcome.violations:
        _say(f"VIOLATION {violation}")
    _say(
        f"{name} seed {seed}: {len(outcome.violations)} violations, {outcome.operations} storage "
        f"operations, {outcome.seconds:.1f} simulated seconds, digest {outcome.digest}"
    )
    return 0 if outcome.ok else 1


class _Progress:
    """One line from time to time, and one for each failure at once."""

    def __init__(self, goal: int) -> None:
        self._goal = goal
        self._next = time.monotonic() + _PROGRESS_EVERY_S
        self._told: set[str] = set()

    def __call__(self, summary: Summary) -> None:
        for outcome in summary.failures:
            command = replay_command(outcome)
            if command not in self._told:
                self._told.add(command)
                _say(f"FAILED: {command}")
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + _PROGRESS_EVERY_S
            _say(
                f"{summary.worlds} of {self._goal} worlds, {summary.seconds:.0f} s, "
                f"{summary.failed} with violations"
            )


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
