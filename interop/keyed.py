"""Upsert and delete with lakewright, and let real Hudi read, upsert, compact, clean and delete.

    python -m interop.keyed                      all tables; writes docs/compatibility-upserts.md
    python -m interop.keyed --only 'v8_mor_*'    some tables, by pattern; no document

Sixteen tables, one for each table type, version and index, go through every keyed write, those of
each version in step. After each step the rows must be those of `interop.keyed_model`, no key may be
there twice, and the Hudi that belongs to the table version and Hudi's Rust reader must read what
lakewright reads, cell for cell, types and meta columns included. Then Hudi upserts, compacts,
cleans and deletes on the same tables with the same index, and lakewright goes on.

Accepted differences are rows of `keyed_deviations.toml`; their query is `<reader> <step>`, and
`EXPLAINED` says for each exactly what is answered instead. Ends with a line `N passed, M failed`
and status 1 if anything failed.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import lakewright as lw
from interop.compare import difference
from interop.deviations import Deviation, load_deviations
from interop.hudi import ROOT, Hudi, HudiRefusedError
from interop.keyed_cases import keyed_cases
from interop.keyed_report import Answer, write_document
from interop.keyed_steps import STEPS, KeyedTable, Step
from interop.written import EXPLAINED as OF_PARTITIONS
from interop.written import OWN, RUST
from lakewright.engine import base_file

DEVIATIONS = Path(__file__).with_name("keyed_deviations.toml")
DOCUMENT = ROOT / "docs" / "compatibility-upserts.md"
MODEL = "model"
ONCE = "each key once"
WRITERS = 3
"""Tables written at once; most of a small write is waiting."""


def _of_partition(name: str, _: KeyedTable, ours: pa.Table) -> pa.Table:
    """Other values of partition columns."""
    return OF_PARTITIONS[name](ours)


def _latest(table: KeyedTable, _: pa.Table) -> pa.Table:
    """The columns of the rows that came last, whatever their ordering values."""
    return table.columns.arrow(table.model.latest())


def _in_order(table: KeyedTable, _: pa.Table) -> pa.Table:
    """The columns of the rows where deletions are ordered as rows are."""
    return table.columns.arrow(table.model.in_order())


Explained = Callable[[KeyedTable, pa.Table], pa.Table]
EXPLAINED: Mapping[str, Explained] = {
    "latest-in-a-log": _latest,
    "deletions-in-order": _in_order,
    **{name: partial(_of_partition, name) for name in OF_PARTITIONS},
}


@dataclass
class Proof:
    """The tables, the readers and what came out."""

    tables: list[KeyedTable]
    hudis: dict[str, Hudi]
    folder: Path
    deviations: list[Deviation]
    answers: list[Answer] = field(default_factory=list)

    def run(self) -> None:
        """All steps; the tables of each version side by side with those of the other."""
        lanes = [[t for t in self.tables if t.case.version == version] for version in OWN]
        with ThreadPoolExecutor(len(lanes)) as pool:
            list(pool.map(self._lane, [lane for lane in lanes if lane]))
        order = [t.case for t in self.tables]
        self.answers.sort(key=lambda a: order.index(a.case))

    def _lane(self, tables: list[KeyedTable]) -> None:
        version = tables[0].case.version
        for step in STEPS:
            started = time.monotonic()
            done, tables = self._do(step, tables)
            written = time.monotonic()
            self._ask(step, done)
            seconds = f"{written - started:.0f} s and {time.monotonic() - written:.0f} s"
            print(f"version {version}, {step.name}: {len(done)} tables, {seconds}", flush=True)

    def _do(
        self, step: Step, tables: Sequence[KeyedTable]
    ) -> tuple[list[KeyedTable], list[KeyedTable]]:
        """Do a step everywhere; the tables that it changed, and those that did not fail."""
        changed, left = [], []
        with ThreadPoolExecutor(WRITERS) as pool:
            outcomes = list(pool.map(lambda table: self._do_one(step, table), tables))
        for table, told in zip(tables, outcomes, strict=True):
            if told:
                by = "lakewright" if step.by == "lakewright" else OWN[table.case.version]
                self._judge(table, step.name, f"{by} (writer)", told)
                continue
            left.append(table)
            if told is not None:
                changed.append(table)
        return changed, left

    def _do_one(self, step: Step, table: KeyedTable) -> str | None:
        try:
            done = step.does(table, self.hudis[OWN[table.case.version]])
        except HudiRefusedError as error:
            return f"{error}\n{error.trace[-3000:]}"
        except Exception:
            return traceback.format_exc()
        return None if done is False else ""

    def _ask(self, step: Step, tables: Sequence[KeyedTable]) -> None:
        """Let every reader read every table and compare."""
        if not tables:
            return
        own = OWN[tables[0].case.version]
        with ThreadPoolExecutor(1) as beside:
            asking = beside.submit(self._ask_hudi, own, tables)
            read = [(table, self._read(step, table)) for table in tables]
            asked = asking.result()
        for table, ours in read:
            if ours is not None:
                self._compare(table, step, own, ours, asked[table.case.name])

    def _read(self, step: Step, table: KeyedTable) -> pa.Table | None:
        """What lakewright reads, judged by everybody but Hudi itself."""
        try:
            ours = lw.Table.open(str(table.path)).scan().to_arrow()
        except Exception:
            self._judge(table, step.name, "lakewright", traceback.format_exc())
            return None
        expected = table.columns.arrow(table.model.rows())
        told = difference(ours.select(table.columns.names), expected)
        self._judge(table, step.name, MODEL, told)
        self._judge(table, step.name, ONCE, twice(table, ours))
        self._compare(table, step, RUST, ours, rust_rows(table.path, ours))
        return ours

    def _ask_hudi(self, version: str, tables: Sequence[KeyedTable]) -> dict[str, str | pa.Table]:
        """Read tables with one Hudi: its answers, or why there are none."""
        files = [self.folder / "answers" / version / f"{t.case.name}.parquet" for t in tables]
        pairs = [(t.path, file) for t, file in zip(tables, files, strict=True)]
        refused = self.hudis[version].read_many(pairs)
        return {
            t.case.name: pq.read_table(file) if told is None else told
            for t, file, told in zip(tables, files, refused, strict=True)
        }

    def _compare(
        self, table: KeyedTable, step: Step, reader: str, ours: pa.Table, theirs: str | pa.Table
    ) -> None:
        known = [d for d in self.deviations if d.covers(table.case.name, f"{reader} {step.name}")]
        if isinstance(theirs, str):
            fits = [d for d in known if d.what == "hudi refuses" and d.matches(theirs)]
            self._judge(table, step.name, reader, theirs, fits[:1])
            return
        told = difference(ours, theirs)
        expected, needed = ours, []
        for deviation in [d for d in known if told and d.what != "hudi refuses"]:
            instead = EXPLAINED[deviation.name](table, expected)
            if not instead.equals(expected):
                expected, needed = instead, [*needed, deviation]
        if needed and difference(expected, theirs.select(expected.column_names)):
            needed = []
        self._judge(table, step.name, reader, told, needed)

    def _judge(
        self,
        table: KeyedTable,
        step: str,
        reader: str,
        told: str,
        explained: Sequence[Deviation] = (),
    ) -> None:
        """Keep what came out: what a reader says otherwise, and what is known to be so."""
        for deviation in explained:
            deviation.use()
        outcome = "different" if told and not explained else "accepted" if told else "equal"
        names = tuple(d.name for d in explained) if told else ()
        self.answers.append(Answer(table.case, step, reader, outcome, told, names))
        if outcome == "different":
            print(f"FAILED {table.case.name}, {step}, {reader}: {told}", flush=True)


def twice(table: KeyedTable, ours: pa.Table) -> str:
    """Keys that are there more than once."""
    names = ["_hoodie_record_key"] if table.case.is_global else []
    names = names or ["_hoodie_partition_path", "_hoodie_record_key"]
    counted = Counter(zip(*(ours[name].to_pylist() for name in names), strict=True))
    again = [key for key, count in counted.items() if count > 1]
    return f"{len(again)} keys are there twice, such as {again[0]}" if again else ""


def rust_rows(path: Path, ours: pa.Table) -> pa.Table | str:
    """What the Rust reader reads, or why it does not."""
    from hudi import HudiTableBuilder

    try:
        batches = HudiTableBuilder.from_base_uri(str(path)).build().read()
    except BaseException as error:  # its panics are no exceptions
        if isinstance(error, KeyboardInterrupt):
            raise
        return f"{type(error).__name__}: {error}"
    return pa.Table.from_batches(batches, None if batches else ours.schema)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; its exit status."""
    parser = argparse.ArgumentParser(prog="interop.keyed", description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", default=["*"], help="patterns of table names")
    parser.add_argument("--keep", action="store_true", help="keep the tables")
    options = parser.parse_args(arguments)
    base_file.KEPT_SHARE = 1 << 30  # row groups are taken over however small they are
    started = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="lakewright-keyed-"))
    cases = [c for c in keyed_cases() if any(fnmatchcase(c.name, p) for p in options.only)]
    tables = [KeyedTable(case, folder / case.name) for case in cases]
    deviations = load_deviations(DEVIATIONS)
    hudis = {v: Hudi(v) for v in sorted({OWN[c.version] for c in cases})}
    proof = Proof(tables, hudis, folder, deviations)
    try:
        proof.run()
    finally:
        for hudi in hudis.values():
            hudi.close()
        if options.keep:
            print(f"the tables are in {folder}")
        else:
            shutil.rmtree(folder)
    whole = options.only == ["*"]
    failed = [a for a in proof.answers if a.outcome == "different"]
    stale = [d.name for d in deviations if whole and not d.uses]
    for name in stale:
        print(f"FAILED keyed_deviations.toml: {name} explains nothing any more")
    if whole:
        write_document(proof.answers, deviations, DOCUMENT)
    print(
        f"{len(proof.answers) - len(failed)} passed, {len(failed) + len(stale)} failed "
        f"({len(cases)} tables) in {time.monotonic() - started:.0f} s"
    )
    return 1 if failed or stale else 0


if __name__ == "__main__":
    sys.exit(main())
