"""The command line of the fuzzer: run for a while, or replay one finding.

Exit code 0: nothing found; 1: findings, or the replayed mutant is one; 2: wrong usage.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from lakewright.errors import LakewrightError
from lakewright.testing.fuzz.corpus import Corpus
from lakewright.testing.fuzz.fuzzing import Finding, Fuzzer, Recipe
from lakewright.testing.fuzz.judging import Limits, Outcome
from lakewright.testing.fuzz.runner import Plan, Report, find_target, run_plan
from lakewright.testing.fuzz.targets import TARGETS

__all__ = ["main"]

_PLACES: Final = ("tests/tables", "tests/fuzz/seeds", "../shared/fixtures")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; the exit code."""
    said = _parser().parse_args(arguments)
    places = tuple(Path(p) for p in said.tables or _PLACES)
    try:
        if said.replay:
            return _replay(said.replay[0], said.replay[1], places)
        names = tuple(said.target or TARGETS)
        for name in names:
            find_target(name)
    except LakewrightError as error:
        _say(str(error))
        return 2
    plan = Plan(
        targets=names,
        places=places,
        seed=said.seed,
        files=said.files,
        seconds=said.seconds if said.files is None or said.seconds is not None else None,
        workers=said.workers,
    )
    if plan.files is None and plan.seconds is None:
        plan = Plan(plan.targets, plan.places, plan.seed, 10_000, 60.0, plan.workers)
    saved = Path(said.save) if said.save else None
    report = run_plan(plan, lambda finding: _tell(finding, saved))
    _say(_summary(report))
    return 1 if report.faults else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m lakewright.testing.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, help="stop after so long")
    parser.add_argument("--files", type=int, help="stop after so many mutated files")
    parser.add_argument("--seed", type=int, default=0, help="another number, other mutants")
    parser.add_argument("--workers", type=int, default=1, help="processes")
    parser.add_argument(
        "--target",
        action="append",
        metavar="NAME",
        help="; ".join(f"{t.name}: {t.about}" for t in TARGETS.values()),
    )
    parser.add_argument(
        "--tables",
        action="append",
        metavar="PLACE",
        help=f"folders and zips with seeds (default: {', '.join(_PLACES)})",
    )
    parser.add_argument("--save", metavar="FOLDER", help="write the mutants of findings there")
    parser.add_argument(
        "--replay", nargs=2, metavar=("TARGET", "RECIPE"), help="a recipe, or a saved file"
    )
    return parser


def _replay(name: str, what: str, places: tuple[Path, ...]) -> int:
    fuzzer = Fuzzer([find_target(name)], Corpus.load(places), Limits())
    fuzzer.warm_up()
    if Path(what).is_file():
        outcome: Outcome = fuzzer.read(find_target(name).name, Path(what).read_bytes())
    else:
        data, outcome = fuzzer.replay(find_target(name).name, Recipe.parse(what))
        _say(f"{len(data)} bytes: {data[:64]!r}…")
    _say(f"{outcome.kind.value} {outcome.where}\n{outcome.detail}")
    return 1 if outcome.kind.is_finding else 0


def _tell(finding: Finding, saved: Path | None) -> None:
    _say(
        f"FOUND {finding.target}: {finding.kind.value} at {finding.where}\n"
        f"  replay: --replay {finding.target} '{finding.recipe}'\n"
        + "\n".join(f"  | {line}" for line in finding.detail.splitlines()[-24:])
    )
    if saved is not None and finding.data:
        saved.mkdir(parents=True, exist_ok=True)
        name = f"{finding.target}-{abs(hash(finding.key)) % 10**8:08d}-{time.time_ns() % 10**6}"
        (saved / name).write_bytes(finding.data)


def _summary(report: Report) -> str:
    lines = [f"{'target':16} {'files':>8} {'files/s':>8} {'slowest':>9}  endings"]
    for name, tally in sorted(report.tallies.items()):
        rate = tally.files / tally.seconds if tally.seconds else 0.0
        endings = ", ".join(f"{n} {kind}" for kind, n in sorted(tally.endings.items()))
        lines.append(
            f"{name:16} {tally.files:8d} {rate:8.0f} {tally.slowest_s * 1000:6.0f} ms  {endings}"
        )
    rate = report.files / report.seconds if report.seconds else 0.0
    lines.append(
        f"{report.files} files in {report.seconds:.1f} s ({rate:.0f}/s), "
        f"{report.edges} edges covered, {len(report.faults)} faults"
    )
    if report.empty:
        lines.append(f"without seeds: {', '.join(report.empty)}")
    lines += [f"  {n:6d} x {' / '.join(key)}" for key, n in sorted(report.faults.items())]
    return "\n".join(lines)


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
