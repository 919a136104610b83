"""The command line of the fuzzer: run for a while, take a run up again, or replay one finding.

Exit code 0: nothing found; 1: findings, or the replayed mutant is one; 2: wrong usage.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from lakewright.errors import LakewrightError
from lakewright.testing.fuzz.corpus import Corpus
from lakewright.testing.fuzz.fuzzing import Finding, Fuzzer, Recipe
from lakewright.testing.fuzz.judging import Limits, Outcome
from lakewright.testing.fuzz.report import Report
from lakewright.testing.fuzz.runner import Plan, find_target, run_plan
from lakewright.testing.fuzz.targets import TARGETS

__all__ = ["main"]

_PLACES: Final = ("tests/tables", "tests/fuzz/seeds", "../shared/fixtures")
_SAVED: Final = ".cache/fuzz/findings"
_FILES: Final = 10_000
_PROGRESS_EVERY_S: Final = 10.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; the exit code."""
    said = _parser().parse_args(arguments)
    places = tuple(Path(p) for p in said.tables or _PLACES)
    try:
        if said.replay:
            return _replay(said.replay[0], said.replay[1], places)
        plan = _plan(said, places)
        for name in plan.targets:
            find_target(name)
        report = run_plan(plan, _tell, _Progress(plan))
    except LakewrightError as error:
        _say(str(error))
        return 2
    _say(report.to_text())
    if said.json:
        told = {"plan": {**plan.identity, "files": plan.files}, **report.to_json()}
        Path(said.json).write_text(json.dumps(told, indent=1) + "\n")
    return 1 if report.faults else 0


def _plan(said: argparse.Namespace, places: tuple[Path, ...]) -> Plan:
    names = [name for part in said.targets or () for name in part.split(",") if name]
    unbounded = said.files is None and said.seconds is None
    return Plan(
        targets=tuple(names or TARGETS),
        places=places,
        seed=said.seed,
        files=_FILES if unbounded else said.files,
        seconds=said.seconds,
        jobs=said.jobs,
        state=Path(said.state) if said.state else None,
        save=Path(said.save),
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m lakewright.testing.fuzz", description=__doc__)
    add = parser.add_argument
    add("--files", type=int, help=f"stop after so many mutated files ({_FILES})")
    add("--seconds", type=float, help="stop after so long")
    add("--seed", type=int, default=0, help="another number, other mutants")
    add("--jobs", type=int, default=1, help="processes")
    add(
        "--targets",
        action="append",
        metavar="NAME,…",
        help="all if not given; " + "; ".join(f"{t.name}: {t.about}" for t in TARGETS.values()),
    )
    add(
        "--tables",
        action="append",
        metavar="PLACE",
        help=f"folders and zips with seeds (default: {', '.join(_PLACES)})",
    )
    add("--state", metavar="FILE", help="note the run there, and take it up from there")
    add("--json", metavar="FILE", help="write the summary there")
    add("--save", metavar="FOLDER", default=_SAVED, help=f"inputs of findings ({_SAVED})")
    add("--replay", nargs=2, metavar=("TARGET", "RECIPE"), help="a recipe, or a saved file")
    return parser


def _replay(name: str, what: str, places: tuple[Path, ...]) -> int:
    target = find_target(name)
    fuzzer = Fuzzer([target], Corpus.load(places), Limits())
    fuzzer.warm_up()
    if Path(what).is_file():
        outcome: Outcome = fuzzer.read(target.name, Path(what).read_bytes())
    else:
        data, outcome = fuzzer.replay(target.name, Recipe.parse(what))
        _say(f"{len(data)} bytes: {data[:64]!r}…")
    _say(f"{outcome.kind.value} {outcome.where}\n{outcome.detail}")
    return 1 if outcome.kind.is_finding else 0


def _tell(finding: Finding) -> None:
    _say(
        f"FOUND {finding.target}: {finding.kind.value} at {finding.where}\n"
        f"  replay: --replay {finding.target} '{finding.recipe}'\n"
        f"  saved: {finding.saved}\n"
        + "\n".join(f"  | {line}" for line in finding.detail.splitlines()[-24:])
    )


class _Progress:
    """One line from time to time."""

    def __init__(self, plan: Plan) -> None:
        self._goal = f" of {plan.files}" if plan.files is not None else ""
        self._next = time.monotonic() + _PROGRESS_EVERY_S

    def __call__(self, report: Report) -> None:
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + _PROGRESS_EVERY_S
            _say(
                f"{report.files}{self._goal} files, {report.seconds:.0f} s, "
                f"{report.edges} edges, {len(report.faults)} faults"
            )


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
