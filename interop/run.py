"""Make the corpus with real Hudi, compare lakewright's answers, write the compatibility matrix.

    python -m interop.run                  everything
    python -m interop.run --only 'v8_*'    some cases, by pattern; no matrix
    python -m interop.run --reuse          only compare: tables and answers of an earlier run
    python -m interop.run --missing        make only what an earlier run has not made
    python -m interop.run --list           names and traits

Ends with a line `N passed, M failed` and status 1 if anything failed. One process per Hudi
version; the versions run side by side.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatchcase
from pathlib import Path

from interop.cases import Case
from interop.compare import CaseResult, compare_case
from interop.corpus import corpus
from interop.deviations import Deviation, load_deviations
from interop.generate import STORE, ask_again, make
from interop.hudi import ROOT, Hudi
from interop.matrix import write_matrix

MATRIX = ROOT / "docs" / "compatibility.md"
LANES = 3


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; its exit status."""
    options = parse(arguments)
    started = time.monotonic()
    cases = [c for c in corpus() if any(fnmatchcase(c.name, p) for p in options.only)]
    if options.list:
        for case in cases:
            print(case.name, case.hudi, *vars(case.traits).values())
        print(f"{len(cases)} tables")
        return 0
    deviations = load_deviations()
    if not options.reuse:
        wanted = [c for c in cases if not (options.missing and made(c))]
        generate(wanted, deviations, options.lanes)
    results = [compare_case(folder_of(case), deviations) for case in cases if made(case)]
    problems = report(results, deviations, complete=options.only == ["*"])
    if options.only == ["*"]:
        write_matrix(results, deviations, MATRIX)
    failed = sum(r.failed for r in results) + problems
    queries = sum(len(r.verdicts) for r in results)
    absent = len(cases) - len(results)
    print(
        f"{len(results) - sum(r.failed for r in results)} passed, {failed + absent} failed "
        f"({queries} queries, {absent} not made) in {time.monotonic() - started:.0f} s"
    )
    return 1 if failed or absent else 0


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="interop.run", description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", default=["*"], help="patterns of case names")
    parser.add_argument("--reuse", action="store_true", help="compare only, without Hudi")
    parser.add_argument("--missing", action="store_true", help="make only what is not there")
    parser.add_argument("--list", action="store_true", help="list the cases")
    parser.add_argument("--lanes", type=int, default=LANES, help="Hudis at a time")
    return parser.parse_args(arguments)


def folder_of(case: Case) -> Path:
    """Where a case is stored."""
    return STORE / case.hudi / case.name


def made(case: Case) -> bool:
    """Whether a case is stored as it is meant now, made without an error."""
    described = folder_of(case) / "case.json"
    if not described.exists():
        return False
    stored = json.loads(described.read_text())
    return stored["error"] is None and stored["traits"] == vars(case.traits)


class Hudis:
    """The running Hudis, each started with its first use."""

    def __init__(self) -> None:
        self._running: dict[str, Hudi] = {}
        self._lock = threading.Lock()

    def __call__(self, version: str) -> Hudi:
        """The Hudi of a version."""
        with self._lock:
            if version not in self._running:
                self._running[version] = Hudi(version)
            return self._running[version]

    def close(self) -> None:
        """End all."""
        for hudi in self._running.values():
            hudi.close()


def generate(cases: Sequence[Case], deviations: Sequence[Deviation], lanes: int) -> None:
    """Make the tables, one lane per version, then ask for second opinions."""
    lane_of: dict[str, list[Case]] = defaultdict(list)
    for case in cases:
        lane_of[case.hudi].append(case)
    hudis = Hudis()
    try:
        with ThreadPoolExecutor(lanes) as pool:
            list(pool.map(lambda lane: make_lane(lane, hudis), lane_of.values()))
        for case in cases:
            if made(case):
                ask_again(folder_of(case), hudis, deviations)
    finally:
        hudis.close()


def make_lane(cases: Sequence[Case], hudis: Callable[[str], Hudi]) -> None:
    """Make cases one after the other, telling how each went."""
    for case in cases:
        described = make(case, hudis)
        rows = [a.get("rows", "refused") for a in described["answers"]]
        told = described["error"] or f"rows {rows}"
        print(f"made {case.name} in {described['seconds']} s: {told}", flush=True)


def report(
    results: Sequence[CaseResult], deviations: Sequence[Deviation], *, complete: bool
) -> int:
    """Print what differs; the number of stale deviations, where all cases were compared."""
    for result in results:
        for verdict in result.verdicts:
            if verdict.outcome == "different":
                print(f"FAILED {result.name} {verdict.query}: {verdict.told}")
    stale = [d.name for d in deviations if complete and not d.uses]
    for name in stale:
        print(f"FAILED deviations.toml: {name} explains nothing any more")
    return len(stale)


if __name__ == "__main__":
    sys.exit(main())
