"""Kill writers with SIGKILL, and see what readers, the next writer and Hudi make of the table.

    python -m interop.kill_writes [--kills 8] [--random 3] [--hudi 1] [--spark 2] [--versions 6 8]

For every table version, table type and operation: `--kills` processes die just before a chosen
change of a file, `--random` at some moment. Each time the next reader must see exactly the rows
before or after the operation, the next writer must go on without help, and nothing of the dead may
be left. For `--hudi` more of each, the next writer is real Hudi, as a single writer that rolls back
eagerly; lakewright then reads its rows and writes on beside it.

For appends, bulk inserts and overwrites `--spark` more die on Spark, in turn before a chosen change
of the driver's or a worker's, with the JVM and all workers, and at some moment, the driver alone;
after every third of these the next writer is Hudi.

Ends with a line `N passed, M failed` and status 1 if anything failed.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from interop.hudi import Hudi, HudiRefusedError
from interop.kill_hudi import HUDI_OF_VERSION, NextHudi
from interop.kill_process import OPERATIONS, SPARK_OPERATIONS, write_in_process
from interop.kill_trials import (
    KINDS,
    SEEN,
    Stage,
    copy_table,
    judge_next_writer,
    judge_reader,
    kill_points,
    make_stage,
)

SPREAD = 0.618
"""Multiples of it, modulo one, are spread evenly."""
HUDI_ON_SPARK = 3
"""After how many deaths on Spark the next writer is Hudi."""
SEED = 20


@dataclass
class Proof:
    """The trials and what came out."""

    folder: Path
    hudis: dict[int, NextHudi]
    chance: random.Random
    outcomes: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def operation(self, stage: Stage, kills: int, at_random: int, by_hudi: int) -> None:
        """All trials of one operation on one kind of table."""
        for number in kill_points(stage.changes, kills, shift=self.chance.randrange(100)):
            self.trial(stage, f"change {number}", kill_at=number)
        for _ in range(at_random):
            after_s = self.chance.uniform(0.0, stage.seconds)
            self.trial(stage, f"{after_s:.3f} s", kill_after_s=after_s)
        for _ in range(by_hudi):
            number = self.chance.randrange(stage.changes // 4, stage.changes)
            self.trial(stage, f"change {number}", kill_at=number, hudi=True)

    def on_spark(self, stage: Stage, kills: int) -> None:
        """All trials of one operation on Spark."""
        for _ in range(kills):
            turn = self.outcomes["on Spark"]
            self.outcomes["on Spark"] += 1
            part, hudi = turn * SPREAD % 1.0, turn % HUDI_ON_SPARK == 0
            if turn % 2:
                after_s = part * stage.seconds
                self.trial(stage, f"{after_s:.3f} s", kill_after_s=after_s, hudi=hudi)
            else:
                number = int(part * stage.changes)
                self.trial(stage, f"change {number}", kill_at=number, hudi=hudi)

    def trial(
        self,
        stage: Stage,
        moment: str,
        *,
        kill_at: int | None = None,
        kill_after_s: float | None = None,
        hudi: bool = False,
    ) -> None:
        """One death."""
        path = self.folder / "trial"
        copy_table(stage.path, path)
        ended = write_in_process(
            path,
            stage.operation,
            writer=stage.writer,
            kill_at=kill_at,
            kill_after_s=kill_after_s,
        )
        seen = judge_reader(stage, path)
        if seen not in SEEN:
            wrong = [seen]
        elif hudi:
            try:
                wrong = self.hudis[stage.kind.version].goes_on(path, stage.kind, stage.rows(seen))
            except HudiRefusedError as error:
                wrong = [f"Hudi fails: {error}"]
        else:
            wrong = judge_next_writer(path, stage.rows(seen))
        name = f"{stage.name}, killed at {moment}{', then Hudi' if hudi else ''}"
        self.wrong += [f"{name}: {w}" for w in wrong]
        self.outcomes["failed" if wrong else "passed"] += 1
        died = f"killed, {stage.writer}" if ended.killed else "ended by itself"
        self.outcomes[died] += 1
        self.outcomes[f"rows {seen}"] += 1
        self.outcomes["Hudi next"] += hudi
        self.outcomes["at work of a worker"] += ended.killed and ended.by_worker
        for w in wrong:
            print(f"FAILED {name}: {w}", flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; its exit status."""
    parser = argparse.ArgumentParser(prog="interop.kill_writes", description=__doc__.split("\n")[0])
    parser.add_argument("--kills", type=int, default=8, help="chosen deaths of each operation")
    parser.add_argument("--random", type=int, default=3, help="deaths at any moment of each")
    parser.add_argument("--hudi", type=int, default=1, help="deaths of each before Hudi writes")
    parser.add_argument("--spark", type=int, default=2, help="deaths of each on Spark")
    parser.add_argument("--versions", type=int, nargs="+", default=[6, 8], help="table versions")
    parser.add_argument("--seed", type=int, default=SEED)
    options = parser.parse_args(arguments)
    folder = Path(tempfile.mkdtemp(prefix="lakewright-killed-"))
    hudis = {v: Hudi(HUDI_OF_VERSION[v]) for v in options.versions}
    following = {v: NextHudi(hudi, folder) for v, hudi in hudis.items()}
    proof = Proof(folder, following, random.Random(options.seed))
    try:
        for kind in (k for k in KINDS if k.version in options.versions):
            for operation in OPERATIONS:
                stage = make_stage(folder, kind, operation)
                proof.operation(stage, options.kills, options.random, options.hudi)
            for operation in SPARK_OPERATIONS if options.spark else ():
                proof.on_spark(make_stage(folder, kind, operation, "spark"), options.spark)
            print(f"{kind}: {dict(proof.outcomes)}", flush=True)
    finally:
        for hudi in hudis.values():
            hudi.close()
        shutil.rmtree(folder)
    print(f"{proof.outcomes['passed']} passed, {proof.outcomes['failed']} failed")
    return 1 if proof.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
