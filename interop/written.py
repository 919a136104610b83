"""Write tables with lakewright and let real Hudi read them, write them and read them again.

    python -m interop.written                    all tables; writes docs/compatibility-writes.md
    python -m interop.written --only 'v8_mor_*'  some tables, by pattern; no document

Sixteen tables go through every operation, those of each version in step. After each step the rows
must be those of a model that knows only the meaning of each operation, and the Hudi that belongs to
the table version and Hudi's Rust reader must read what lakewright reads, cell for cell, types and
meta columns included; after some steps a newer Hudi too. Then Hudi upserts, compacts, cleans and
deletes on the same tables, and lakewright goes on.

Accepted differences are rows of `written_deviations.toml`; their query is `<reader> <step>`, and
`EXPLAINED` says for each exactly what Hudi answers instead. Ends with a line `N passed, M failed`
and status 1 if anything failed.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import lakewright as lw
from interop.compare import difference
from interop.deviations import Deviation, load_deviations
from interop.hudi import ROOT, Hudi, HudiRefusedError
from interop.written_cases import written_cases
from interop.written_report import Answer, write_document
from interop.written_steps import STEPS, Step, WrittenTable

DEVIATIONS = Path(__file__).with_name("written_deviations.toml")
DOCUMENT = ROOT / "docs" / "compatibility-writes.md"
OWN = {6: "0.15.0", 8: "1.0.2"}
"""The Hudi of each table version: it reads after every step, and writes."""
NEWER = {6: ("1.0.2", "*"), 8: ("1.2.0", "*_simple")}
"""A newer Hudi, and the tables that it reads as well."""
NEWER_STEPS = frozenset(
    {
        "append into small files",
        "delete_partition",
        "append with wider columns",
        "Hudi compacts and cleans",
        "append after it",
        "bulk_insert, by partition",
    }
)
RUST = "hudi (Rust)"
MODEL = "model"


def _nothing_for_empty(ours: pa.Table) -> pa.Table:
    """Null for an empty partition value."""
    at, region = ours.column_names.index("region"), ours["region"]
    empty = pc.equal(region, "")
    return ours.set_column(at, "region", pc.if_else(empty, pa.scalar(None, pa.string()), region))


def _path_for_day(ours: pa.Table) -> pa.Table:
    """The text of the partition path for the value that it was formatted from."""
    at, path = ours.column_names.index("day"), ours["_hoodie_partition_path"]
    return ours.set_column(at, "day", pc.replace_substring(path, "day=", ""))


EXPLAINED = {
    "empty-partition-value": _nothing_for_empty,
    "empty-partition-value-in-cow": _nothing_for_empty,
    "partition-text-for-value": _path_for_day,
}


@dataclass
class Proof:
    """The tables, the readers and what came out."""

    tables: list[WrittenTable]
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

    def _lane(self, tables: list[WrittenTable]) -> None:
        version = tables[0].case.version
        for step in STEPS:
            started = time.monotonic()
            done, tables = self._do(step, tables)
            written = time.monotonic()
            self._ask(step, done)
            seconds = f"{written - started:.0f} s and {time.monotonic() - written:.0f} s"
            print(f"version {version}, {step.name}: {len(done)} tables, {seconds}", flush=True)

    def _do(
        self, step: Step, tables: Sequence[WrittenTable]
    ) -> tuple[list[WrittenTable], list[WrittenTable]]:
        """Do a step everywhere; the tables that it changed, and those that did not fail."""
        changed, left = [], []
        for table in tables:
            told = self._do_one(step, table)
            if told:
                by = "lakewright" if step.by == "lakewright" else OWN[table.case.version]
                self._judge(table, step.name, f"{by} (writer)", told, "", refused=True)
                continue
            left.append(table)
            if told is not None:
                changed.append(table)
        return changed, left

    def _do_one(self, step: Step, table: WrittenTable) -> str | None:
        try:
            done = step.does(table, self.hudis[OWN[table.case.version]])
        except HudiRefusedError as error:
            return f"{error}\n{error.trace[-3000:]}"
        except Exception:
            return traceback.format_exc()
        return None if done is False else ""

    def _ask(self, step: Step, tables: Sequence[WrittenTable]) -> None:
        """Let every reader read every table and compare."""
        asked = {v: self._ask_hudi(v, step, tables) for v in self.hudis}
        for table in tables:
            try:
                ours = lw.Table.open(str(table.path)).scan().to_arrow()
            except Exception:
                self._judge(
                    table, step.name, "lakewright", traceback.format_exc(), "", refused=True
                )
                continue
            data = [name for name in ours.column_names if not name.startswith("_hoodie_")]
            expected = table.columns.arrow(table.rows)
            self._judge(table, step.name, MODEL, difference(ours.select(data), expected), "")
            self._judge(table, step.name, RUST, *read_rust(table.path, ours))
            for version, answers in asked.items():
                if table.case.name in answers:
                    self._compare(table, step, version, ours, answers[table.case.name])

    def _ask_hudi(
        self, version: str, step: Step, tables: Sequence[WrittenTable]
    ) -> dict[str, str | Path]:
        """Read tables with one Hudi: a file with the answer, or why there is none."""
        chosen = [t for t in tables if is_asked(version, step, t)]
        files = [self.folder / "answers" / version / f"{t.case.name}.parquet" for t in chosen]
        pairs = [(t.path, file) for t, file in zip(chosen, files, strict=True)]
        refused = self.hudis[version].read_many(pairs) if pairs else []
        return {
            t.case.name: file if told is None else told
            for t, file, told in zip(chosen, files, refused, strict=True)
        }

    def _compare(
        self, table: WrittenTable, step: Step, version: str, ours: pa.Table, answer: str | Path
    ) -> None:
        if isinstance(answer, str):
            self._judge(table, step.name, version, answer, "", refused=True)
            return
        theirs = pq.read_table(answer)
        told = difference(ours, theirs)
        expected = ours
        for known in self._known(table, step.name, version) if told else ():
            expected = EXPLAINED[known.name](expected)
        self._judge(table, step.name, version, told, difference(expected, theirs))

    def _known(self, table: WrittenTable, step: str, reader: str) -> list[Deviation]:
        return [d for d in self.deviations if d.covers(table.case.name, f"{reader} {step}")]

    def _judge(
        self,
        table: WrittenTable,
        step: str,
        reader: str,
        told: str,
        without: str | None,
        *,
        refused: bool = False,
    ) -> None:
        """Keep what came out; `without` is what differs beyond what is known to differ."""
        outcome, reason = "different", ""
        if not told:
            outcome = "equal"
        else:
            for known in self._known(table, step, reader):
                fits = known.matches(told) if refused else known.what == "columns" and not without
                if fits and refused == (known.what == "hudi refuses"):
                    known.use()
                    outcome, reason = "accepted", known.name
                    break
        self.answers.append(Answer(table.case, step, reader, outcome, told, reason))
        if outcome == "different":
            print(f"FAILED {table.case.name}, {step}, {reader}: {told}", flush=True)


def is_asked(hudi: str, step: Step, table: WrittenTable) -> bool:
    """Whether a Hudi reads a table after a step."""
    if hudi == OWN[table.case.version]:
        return True
    newer, names = NEWER[table.case.version]
    return hudi == newer and step.name in NEWER_STEPS and fnmatchcase(table.case.name, names)


def read_rust(path: Path, ours: pa.Table) -> tuple[str, str | None]:
    """What the Rust reader sees differently, and None: nothing is known to differ."""
    from hudi import HudiTableBuilder

    try:
        batches = HudiTableBuilder.from_base_uri(str(path)).build().read()
    except BaseException as error:  # its panics are no exceptions
        if isinstance(error, KeyboardInterrupt):
            raise
        return f"{type(error).__name__}: {error}", None
    theirs = pa.Table.from_batches(batches, None if batches else ours.schema)
    return difference(ours, theirs), None


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; its exit status."""
    parser = argparse.ArgumentParser(prog="interop.written", description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", default=["*"], help="patterns of table names")
    parser.add_argument("--keep", action="store_true", help="keep the tables")
    options = parser.parse_args(arguments)
    started = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="lakewright-written-"))
    cases = [c for c in written_cases() if any(fnmatchcase(c.name, p) for p in options.only)]
    versions = sorted({hudi for c in cases for hudi in (OWN[c.version], NEWER[c.version][0])})
    tables = [WrittenTable(case, folder / case.name) for case in cases]
    deviations = load_deviations(DEVIATIONS)
    proof = Proof(tables, {v: Hudi(v) for v in versions}, folder, deviations)
    try:
        proof.run()
    finally:
        for hudi in proof.hudis.values():
            hudi.close()
        if options.keep:
            print(f"the tables are in {folder}")
        else:
            shutil.rmtree(folder)
    whole = options.only == ["*"]
    failed = [a for a in proof.answers if a.outcome == "different"]
    stale = [d.name for d in deviations if whole and not d.uses]
    for name in stale:
        print(f"FAILED written_deviations.toml: {name} explains nothing any more")
    if whole:
        write_document(proof.answers, deviations, DOCUMENT)
    print(
        f"{len(proof.answers) - len(failed)} passed, {len(failed) + len(stale)} failed "
        f"({len(cases)} tables) in {time.monotonic() - started:.0f} s"
    )
    return 1 if failed or stale else 0


if __name__ == "__main__":
    sys.exit(main())
