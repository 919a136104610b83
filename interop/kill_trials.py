"""Trials with killed writers: what readers, the next writer and the folder must be like afterwards.

A trial takes a copy of a table, lets a process die in an operation on it, and then asks for: rows
that are exactly those before or those after the operation; a next writer that needs no help; and a
folder in which nothing of the dead process is left. What is left is judged by names alone, without
code of the product.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

import lakewright as lw
from interop.instants import instants
from interop.kill_process import REGIONS, SCHEMA, rows, write_in_process
from interop.options import EVERY_INDEX

DATA_FILE = re.compile(r"\.?[^/]+_(\d{17})(?:\.log\.\d+_[\d-]+|\.parquet)$")
TRACES = (".heartbeat", ".lakewright/fence", ".temp")
PROBE = 900
"""The key number of the row that the next writer adds."""
SEEN = ("before", "after")
"""What a reader may see of an operation in which somebody died."""
Rows = tuple[tuple[str, int], ...]
"""The keys of rows and their ordering values, sorted."""


@dataclass(frozen=True)
class Kind:
    """What a table is."""

    version: int
    type: str
    indexed: bool = False
    """Whether it has a metadata table with all indexes."""

    def __str__(self) -> str:
        return f"v{self.version}_{self.type}{'_indexed' if self.indexed else ''}"


KINDS = tuple(Kind(version, type_) for version in (6, 8) for type_ in ("cow", "mor"))


@dataclass(frozen=True)
class Stage:
    """A table before an operation, and its rows before and after it."""

    kind: Kind
    operation: str
    path: Path
    before: Rows
    after: Rows
    changes: int
    """How many changes of files the operation makes."""
    seconds: float
    """How long it takes."""
    writer: str

    @property
    def name(self) -> str:
        """Short, unique."""
        return f"{self.kind} {self.operation} by {self.writer}"

    def rows(self, seen: str) -> Rows:
        """The rows before or after."""
        return self.before if seen == "before" else self.after


def make_table(path: Path, kind: Kind) -> None:
    """A table with some commits; small files to fill in every partition."""
    table = lw.Table.create(
        path,
        schema=SCHEMA,
        name="killed",
        type=kind.type,  # type: ignore[arg-type]
        version=kind.version,
        key=["id"],
        partition=["region"],
        ordering=["ts"],
        merge_mode="EVENT_TIME_ORDERING",
    )
    table.append(rows(0, 12, REGIONS), options=EVERY_INDEX if kind.indexed else {})
    table.bulk_insert(rows(12, 6, REGIONS))


def make_stage(folder: Path, kind: Kind, operation: str, writer: str = "arrow") -> Stage:
    """A table, and how the operation goes when nobody dies."""
    path = folder / f"{kind}"
    if not path.exists():
        make_table(path, kind)
    whole = folder / f"{kind}-{operation}"
    copy_table(path, whole)
    before = stored_rows(whole)
    ended = write_in_process(whole, operation, writer=writer)
    after = stored_rows(whole)
    assert before != after
    assert not left_over(whole)
    shutil.rmtree(whole)
    return Stage(kind, operation, path, before, after, ended.changes, ended.seconds, writer)


def copy_table(path: Path, into: Path) -> None:
    """A copy with its times."""
    shutil.rmtree(into, ignore_errors=True)
    shutil.copytree(path, into)


def kill_points(changes: int, count: int, *, shift: int = 0) -> list[int]:
    """Numbers of changes to die before, spread over an operation, the last one among them; the
    shift moves the others a little."""
    step = max(1, changes // max(1, count - 1))
    return sorted({changes - 1, *(i * step + shift % step for i in range(count - 1))})


def told_rows(table: pa.Table) -> Rows:
    """The rows of a table, as they are compared."""
    return tuple(sorted(zip(table["id"].to_pylist(), table["ts"].to_pylist(), strict=True)))


def stored_rows(path: Path, options: lw.ReadOptions | None = None) -> Rows:
    """The rows that a reader sees."""
    return told_rows(lw.Table.open(path, options=options).scan(columns=["id", "ts"]).to_arrow())


def judge_reader(stage: Stage, path: Path) -> str:
    """What a reader sees after the death: `before`, `after`, or what is wrong."""
    try:
        seen = stored_rows(path)
    except lw.LakewrightError as error:
        return f"the reader fails: {error}"
    if seen == stage.before:
        return "before"
    return "after" if seen == stage.after else f"the reader sees neither: {seen}"


def judge_next_writer(path: Path, expected: Rows, **opened: str) -> list[str]:
    """What is wrong after lakewright has added a row to the expected ones."""
    probe = rows(PROBE, 1)
    try:
        lw.Table.open(path, **opened).append(probe)  # type: ignore[arg-type]
        found = stored_rows(path)
    except lw.LakewrightError as error:
        return [f"the next writer fails: {error}"]
    wrong = left_over(path)
    if found != tuple(sorted([*expected, *told_rows(probe)])):
        wrong.append(f"rows after the next write: {found}")
    return wrong


def left_over(path: Path) -> list[str]:
    """What nobody needs any more, and is still there."""
    return sorted({*_traces(path), *_orphans(path)})


def _traces(path: Path) -> Iterator[str]:
    for file in path.rglob("*"):
        if file.name.startswith(".lakewright-tmp"):
            yield f"temporary file {file.relative_to(path)}"
    meta = path / ".hoodie"
    if (meta / "lock").exists():
        yield "lock"
    for folder in TRACES:
        for file in (meta / folder).rglob("*"):
            yield f"trace {file.relative_to(path)}"


def _orphans(path: Path) -> Iterator[str]:
    states: dict[str, set[str]] = {}
    for instant in instants(path):
        states.setdefault(instant.requested, set()).add(instant.state)
    done = {time for time, seen in states.items() if "completed" in seen}
    for time in states.keys() - done:
        yield f"pending instant {time}"
    for file in path.rglob("*"):
        found = DATA_FILE.fullmatch(file.name)
        if found and ".hoodie" not in file.relative_to(path).parts and found[1] not in done:
            yield f"data file without a commit {file.relative_to(path)}"


__all__ = [
    "KINDS",
    "SEEN",
    "Kind",
    "Rows",
    "Stage",
    "copy_table",
    "judge_next_writer",
    "judge_reader",
    "kill_points",
    "left_over",
    "make_stage",
    "stored_rows",
    "told_rows",
]
