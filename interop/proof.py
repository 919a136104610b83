"""Tables that go through steps, and everybody who must read the same from them after each.

A step writes or services a table, with lakewright or with Hudi. After it the rows must be those of
`interop.keyed_model`, no key may be there twice, and every reader must read what lakewright reads,
cell for cell, types and meta columns included; what a step has asked others itself is compared
likewise. The tables of each Hudi are taken through the steps beside those of the others.

Accepted differences are rows of a file of deviations; their query is `<reader> <step>`, and
`explained` says for each by name exactly what is answered instead. A table on which a step fails
goes no further.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Generic, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

import lakewright as lw
from interop.compare import difference
from interop.deviations import Deviation, load_deviations
from interop.hudi import Hudi, HudiRefusedError
from interop.keyed_steps import KeyedTable, Step
from interop.proof_report import Answer, write_document
from interop.written import MODEL, RUST

ONCE = "each key once"
WRITERS = 3
"""Tables written at once; most of a small write is waiting."""

T = TypeVar("T", bound=KeyedTable)
Explained = Callable[[T, pa.Table], pa.Table]
"""What is answered instead of our rows, on a table."""


def _owner(_: Step[T], table: T) -> Sequence[str]:
    """The Hudi that the table belongs to."""
    return (table.case.hudi,)


@dataclass
class Proof(Generic[T]):
    """The tables, the readers and what came out."""

    tables: list[T]
    steps: Sequence[Step[T]]
    hudis: dict[str, Hudi]
    folder: Path
    deviations: list[Deviation]
    explained: Mapping[str, Explained[T]]
    asked: Callable[[Step[T], T], Sequence[str]] = _owner
    """Which Hudis read a table after a step."""
    answers: list[Answer] = field(default_factory=list)

    def run(self) -> None:
        """All steps on all tables."""
        owners = dict.fromkeys(t.case.hudi for t in self.tables)
        lanes = [[t for t in self.tables if t.case.hudi == owner] for owner in owners]
        with ThreadPoolExecutor(len(lanes)) as pool:
            list(pool.map(self._lane, lanes))
        order = [t.case for t in self.tables]
        self.answers.sort(key=lambda a: order.index(a.case))

    def _lane(self, tables: list[T]) -> None:
        owner = tables[0].case.hudi
        for step in self.steps:
            started = time.monotonic()
            done, tables = self._do(step, tables)
            if not done:
                continue
            written = time.monotonic()
            if step.asked:
                self._ask(step, done)
            seconds = f"{written - started:.0f} s and {time.monotonic() - written:.0f} s"
            print(f"tables of {owner}, {step.name}: {len(done)}, {seconds}", flush=True)

    def _do(self, step: Step[T], tables: Sequence[T]) -> tuple[list[T], list[T]]:
        """Do a step everywhere; the tables that it changed, and those that did not fail."""
        changed, left = [], []
        with ThreadPoolExecutor(WRITERS) as pool:
            outcomes = list(pool.map(lambda table: self._do_one(step, table), tables))
        for table, told in zip(tables, outcomes, strict=True):
            found, table.findings = table.findings, []
            if told:
                by = "lakewright" if step.by == "lakewright" else table.case.hudi
                self._judge(table, step.name, f"{by} (writer)", told)
                continue
            for finding in found:
                self._compare(table, step, finding.reader, finding.ours, finding.theirs)
            left.append(table)
            if told is not None:
                changed.append(table)
        return changed, left

    def _do_one(self, step: Step[T], table: T) -> str | None:
        try:
            done = step.does(table, self.hudis[table.case.hudi])
        except HudiRefusedError as error:
            return f"{error}\n{error.trace[-3000:]}"
        except Exception:
            return traceback.format_exc()
        return None if done is False else ""

    def _ask(self, step: Step[T], tables: Sequence[T]) -> None:
        """Let every reader read every table and compare."""
        if not tables:
            return
        readers = {t.case.name: self.asked(step, t) for t in tables}
        chosen = {v: [t for t in tables if v in readers[t.case.name]] for v in self.hudis}
        with ThreadPoolExecutor(len(chosen)) as beside:
            asking = {v: beside.submit(self._ask_hudi, v, them) for v, them in chosen.items()}
            read = [(table, self._read(step, table)) for table in tables]
            asked = {v: told.result() for v, told in asking.items()}
        for table, ours in read:
            for version in readers[table.case.name] if ours is not None else ():
                self._compare(table, step, version, ours, asked[version][table.case.name])

    def _read(self, step: Step[T], table: T) -> pa.Table | None:
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

    def _ask_hudi(self, version: str, tables: Sequence[T]) -> dict[str, str | pa.Table]:
        """Read tables with one Hudi: its answers, or why there are none."""
        if not tables:
            return {}
        files = [self.folder / "answers" / version / f"{t.case.name}.parquet" for t in tables]
        pairs = [(t.path, file) for t, file in zip(tables, files, strict=True)]
        refused = self.hudis[version].read_many(pairs)
        return {
            t.case.name: pq.read_table(file) if told is None else told
            for t, file, told in zip(tables, files, refused, strict=True)
        }

    def _compare(
        self, table: T, step: Step[T], reader: str, ours: pa.Table, theirs: str | pa.Table
    ) -> None:
        known = [d for d in self.deviations if d.covers(table.case.name, f"{reader} {step.name}")]
        if isinstance(theirs, str):
            fits = [d for d in known if d.what == "hudi refuses" and d.matches(theirs)]
            self._judge(table, step.name, reader, theirs, fits[:1])
            return
        told = difference(ours, theirs)
        expected, needed = ours, list[Deviation]()
        for deviation in [d for d in known if told and d.what != "hudi refuses"]:
            instead = self.explained[deviation.name](table, expected)
            if not instead.equals(expected):
                expected, needed = instead, [*needed, deviation]
        if needed and difference(expected, theirs.select(expected.column_names)):
            needed = []
        self._judge(table, step.name, reader, told, needed)

    def _judge(
        self, table: T, step: str, reader: str, told: str, explained: Sequence[Deviation] = ()
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


@dataclass(frozen=True)
class Command(Generic[T]):
    """The command of a proof: which tables, which steps, and where the document goes."""

    name: str
    about: str
    make: Callable[[Path], list[T]]
    """All tables, to be made in a folder."""
    steps: Sequence[Step[T]]
    deviations: tuple[Path, ...]
    explained: Mapping[str, Explained[T]]
    document: Path
    head: Sequence[str]
    """The first lines of the document."""
    asked: Callable[[Step[T], T], Sequence[str]] = _owner

    def main(self, arguments: Sequence[str] | None = None) -> int:
        """Run it; the exit status. Ends with a line `N passed, M failed`."""
        parser = argparse.ArgumentParser(prog=self.name, description=self.about)
        parser.add_argument("--only", nargs="+", default=["*"], help="patterns of table names")
        parser.add_argument("--keep", action="store_true", help="keep the tables")
        options = parser.parse_args(arguments)
        started = time.monotonic()
        folder = Path(tempfile.mkdtemp(prefix=f"lakewright-{self.name.rpartition('.')[2]}-"))
        tables = [
            t for t in self.make(folder) if any(fnmatchcase(t.case.name, p) for p in options.only)
        ]
        deviations = [d for file in self.deviations for d in load_deviations(file)]
        versions = {v for t in tables for step in self.steps for v in self.asked(step, t)}
        hudis = {v: Hudi(v) for v in sorted(versions)}
        proof = Proof(tables, self.steps, hudis, folder, deviations, self.explained, self.asked)
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
            print(f"FAILED deviations: {name} explains nothing any more")
        if whole:
            write_document(self.head, proof.answers, deviations, self.document)
        print(
            f"{len(proof.answers) - len(failed)} passed, {len(failed) + len(stale)} failed "
            f"({len(tables)} tables) in {time.monotonic() - started:.0f} s"
        )
        return 1 if failed or stale else 0
