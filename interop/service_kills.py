"""Kill and stop processes in the middle of compaction, clean and rollback, while others go on.

    python -m interop.service_kills [--runs 440] [--spark 40] [--hudi 12] [--only 'clean-*']

Each run takes a copy of a table, lets a process die by SIGKILL just before a named change of a
file, or stand still by SIGSTOP there for longer than its heartbeat is tolerated, while two more
processes try the same and a writer writes (`interop.service_trials`). Then the table must be right
and nothing may be left (`interop.service_judge`). Points are spread over everything that the
services do, for both table versions; some runs have a lock that is lost by standing still. There
the moment between the last look at the lock and the one change that publishes is left out: no
storage can protect it.

On Spark the victim is a driver, alone or with its JVM and workers; the others are not on Spark.
Of some tables real Hudi must read the same rows.

Ends with a line `N passed, M failed` and status 1 if anything failed. What failed is kept.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path

import pyarrow.parquet as pq

import lakewright as lw
from interop.hudi import Hudi
from interop.keyed_batches import SCHEMA
from interop.keyed_writers import differences
from interop.kill_hudi import HUDI_OF_VERSION
from interop.service_process import end_with_parent
from interop.service_series import all_series
from interop.service_trials import Outcome, Trial, run_trial

TELL_EVERY = 20
SEED = 79


def supervise(pipe: Connection, others: Sequence[Connection], folder: Path) -> None:
    """Run the trials that are told, one after the other, until there is nobody to tell more."""
    end_with_parent()
    for other in others:
        other.close()
    with suppress(EOFError):
        for trial, keep in iter(pipe.recv, None):
            pipe.send(run_trial(trial, folder, keep=keep))


def run_all(
    trials: Sequence[Trial], kept: frozenset[str], folder: Path, at_once: int
) -> Iterator[Outcome]:
    """Run trials, so many at once; outcomes as they come."""
    context = multiprocessing.get_context("fork")
    pipes: list[Connection] = []
    for _ in range(min(at_once, len(trials))):
        mine, its = context.Pipe()
        pipes.append(mine)
        context.Process(target=supervise, args=(its, [*pipes], folder)).start()
        its.close()
    left = list(reversed(trials))
    for pipe in pipes:
        trial = left.pop()
        pipe.send((trial, trial.id in kept))
    busy = [*pipes]
    while busy:
        for ready in wait(busy):
            assert isinstance(ready, Connection)
            yield ready.recv()
            if left:
                trial = left.pop()
                ready.send((trial, trial.id in kept))
            else:
                ready.send(None)
                busy.remove(ready)


@dataclass
class Report:
    """What all trials came to."""

    facts: Counter[str] = field(default_factory=Counter)
    places: dict[tuple[str, str], Counter[str]] = field(default_factory=dict)
    """Phases by service and signal."""
    over_s: list[float] = field(default_factory=list)
    failed: int = 0

    def add(self, outcome: Outcome) -> None:
        """Take in one outcome; tell of it if something is wrong."""
        trial = outcome.trial
        self.facts.update(outcome.facts)
        where = "Spark" if trial.on_spark else "inline"
        service, how = f"{trial.stage.service}, {where}", "stopped" if trial.stop else "killed"
        self.places.setdefault((service, how), Counter())[trial.point.phase] += 1
        self.over_s.append(outcome.over_s)
        done = self.facts["passed"] + self.facts["failed"]
        if trial.on_spark or done % TELL_EVERY == 0:
            print(
                f"  {done} runs, the last one: {trial.name} ({outcome.seconds:.0f} s)", flush=True
            )
        if outcome.wrong:
            self.failed += 1
            print(f"FAILED {trial.id}: {trial.name} ({outcome.seconds:.1f} s)")
            for wrong in outcome.wrong:
                print(f"  {wrong}")
            print(f"  the table: {outcome.table}, what was told: {outcome.table.parent}/scratch")
            print(f"  look at it: .venv/bin/lakewright timeline show {outcome.table}", flush=True)

    def show(self, seconds: float) -> None:
        """Print the figures."""
        for (service, how), phases in sorted(self.places.items()):
            told = ", ".join(f"{phase} {n}" for phase, n in sorted(phases.items()))
            print(f"  {service}, {how} {phases.total()}: {told}")
        for fact, count in sorted(self.facts.items()):
            print(f"  {fact}: {count}")
        if self.over_s:
            print(
                f"  over after the signal: median {statistics.median(self.over_s):.1f} s, "
                f"at most {max(self.over_s):.1f} s"
            )
        total = self.facts["passed"] + self.failed
        print(f"{total} runs in {seconds:.0f} s")


def hudi_reads(tables: Sequence[Path], version: int) -> list[str]:
    """What real Hudi sees otherwise in tables of a version."""
    wrong = []
    with Hudi(HUDI_OF_VERSION[version]) as hudi:
        answers = [table.with_name("answer.parquet") for table in tables]
        refused = hudi.read_many([*zip(tables, answers, strict=True)])
        for table, answer, why in zip(tables, answers, refused, strict=True):
            if why is not None:
                wrong.append(f"Hudi cannot read {table}: {why}")
                continue
            ours = lw.Table.open(table).scan(columns=SCHEMA.names).to_arrow().to_pylist()
            expected = Counter(tuple(row[n] for n in SCHEMA.names) for row in ours)
            theirs = pq.read_table(answer, columns=SCHEMA.names)
            wrong += [f"{table}: {told}" for told in differences("Hudi", theirs, expected)]
    return wrong


def sampled(trials: Sequence[Trial], count: int) -> frozenset[str]:
    """Trials whose tables Hudi reads: of as many stages as can be."""
    by_turn: dict[str, int] = {}
    turns = []
    for trial in trials:
        by_turn[trial.stage.name] = by_turn.get(trial.stage.name, 0) + 1
        turns.append((by_turn[trial.stage.name], trial.id))
    return frozenset(name for _, name in sorted(turns)[:count])


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; its exit status."""
    parser = argparse.ArgumentParser(
        prog="interop.service_kills", description=__doc__.split("\n")[0]
    )
    parser.add_argument("--runs", type=int, default=440, help="runs without Spark")
    parser.add_argument("--spark", type=int, default=40, help="runs on Spark")
    parser.add_argument("--hudi", type=int, default=12, help="tables that real Hudi reads")
    parser.add_argument("--only", nargs="+", default=["*"], help="patterns of names of runs")
    parser.add_argument("--at-once", type=int, default=6, help="runs at the same time")
    parser.add_argument("--seed", type=int, default=SEED)
    options = parser.parse_args(arguments)
    begun = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="lakewright-services-"))
    series = all_series(options.runs, options.spark, options.seed)
    trials = [trial for one in series for trial in one.trials(folder, options.only)]
    random.Random(options.seed).shuffle(trials)
    print(f"{len(trials)} runs, prepared in {time.monotonic() - begun:.0f} s", flush=True)
    kept, report, tables = sampled(trials, options.hudi), Report(), []
    for outcome in run_all(trials, kept, folder, options.at_once):
        report.add(outcome)
        if outcome.trial.id in kept and not outcome.wrong:
            tables.append((outcome.trial.stage.kind.version, outcome.table))
    wrong = []
    for version in sorted({version for version, _ in tables}):
        wrong += hudi_reads([table for v, table in tables if v == version], version)
    for told in wrong:
        print(f"FAILED {told}")
    report.show(time.monotonic() - begun)
    print(f"  tables that Hudi read: {len(tables)}")
    if not (report.failed or wrong):
        shutil.rmtree(folder)
    failed = report.failed + len(wrong)
    print(f"{report.facts['passed'] + len(tables) - len(wrong)} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
