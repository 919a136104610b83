"""The command line of the simulator: many seeds of a workload, or one seed again with its trace.

Exit code 0: no violations; 1: violations; 2: wrong usage. A workload that is broken on purpose ends
with 1 as well, since its violations are real.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from typing import Final

from lakewright.testing.sim.runner import Summary, run_many, run_world
from lakewright.testing.sim.workloads import WORKLOADS

__all__ = ["main"]

_SEEDS: Final = 200
_PROGRESS_EVERY_S: Final = 10.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; the exit code."""
    said = _parser().parse_args(arguments)
    names = said.world or [w.name for w in WORKLOADS.values() if not w.broken]
    unknown = [name for name in names if name not in WORKLOADS]
    if unknown:
        _say(f"There is no workload {', '.join(unknown)}; there are {', '.join(WORKLOADS)}.")
        return 2
    if said.seed is not None:
        return max(_replay(name, said.seed, trace=said.trace) for name in names)
    failed = 0
    for name in names:
        seeds = range(said.first, said.first + said.seeds)
        summary = run_many(
            name, seeds, jobs=said.jobs, seconds=said.seconds, tell=_Progress(name, said.seeds)
        )
        _say(f"{name}: {summary.to_text()}")
        failed += summary.failed
    return 1 if failed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m lakewright.testing.sim", description=__doc__)
    add = parser.add_argument
    listed = "; ".join(f"{w.name}: {w.about}" for w in WORKLOADS.values())
    add("--world", action="append", metavar="NAME", help=f"all sound ones if not given; {listed}")
    add("--seed", type=int, help="play this seed alone")
    add("--trace", action="store_true", help="with --seed: print everything that happened")
    add("--seeds", type=int, default=_SEEDS, help=f"how many seeds of each workload ({_SEEDS})")
    add("--first", type=int, default=0, help="the first seed (0)")
    add("--jobs", type=int, default=1, help="processes")
    add("--seconds", type=float, help="stop each workload after so long")
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
    """One line from time to time."""

    def __init__(self, name: str, goal: int) -> None:
        self._name = name
        self._goal = goal
        self._next = time.monotonic() + _PROGRESS_EVERY_S

    def __call__(self, summary: Summary) -> None:
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + _PROGRESS_EVERY_S
            _say(
                f"{self._name}: {summary.worlds} of {self._goal} worlds, {summary.seconds:.0f} s, "
                f"{summary.failed} with violations"
            )


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
