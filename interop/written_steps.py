"""What is done to each of the written tables, step by step, and what its rows must be afterwards.

A `WrittenTable` is one table with a model of its content: plain rows, kept by the meaning of each
operation and by no code of the product. Keys are new with every insert, so an insert never meets a
key that is there; Hudi's upserts meet some.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import lakewright as lw
from interop.hudi import Hudi
from interop.written_cases import WrittenCase
from interop.written_rows import Columns, Row, columns, row

ROWS = 24
COMPACT = {"hoodie.compact.inline": "true", "hoodie.compact.inline.max.delta.commits": "1"}
CLEAN = {"hoodie.clean.automatic": "true", "hoodie.cleaner.commits.retained": "1"}
SORT_MODE = "hoodie.bulkinsert.sort.mode"
SORT_COLUMNS = "hoodie.bulkinsert.user.defined.partitioner.sort.columns"


@dataclass
class WrittenTable:
    """One table under test."""

    case: WrittenCase
    path: Path
    columns: Columns = field(default_factory=columns)
    rows: list[Row] = field(default_factory=list)
    next_key: int = 0
    generation: int = 0
    lock: str | None = None

    def open(self) -> lw.Table:
        """Our handle; with Hudi's lock from the moment that Hudi has written."""
        return lw.Table.open(str(self.path), lock=self.lock)

    def new_rows(self, count: int = ROWS) -> list[Row]:
        """Rows whose keys the table does not have."""
        first, self.next_key = self.next_key, self.next_key + count
        return [self.row(i) for i in range(first, first + count)]

    def row(self, i: int) -> Row:
        """The row of a key in this generation."""
        return row(i, self.generation, self.case.regions, self.case.days)

    def keep_if(self, kept: Callable[[Row], bool]) -> None:
        """Drop rows from the model."""
        self.rows = [r for r in self.rows if kept(r)]


@dataclass(frozen=True)
class Step:
    """One step; `does` returns False where there is nothing to do on that table."""

    name: str
    by: str  # lakewright or Hudi
    does: Callable[[WrittenTable, Hudi], bool | None]


# ---- ours ------------------------------------------------------------------------------------


def create(t: WrittenTable, _: Hudi) -> None:
    """An empty table."""
    lw.Table.create(str(t.path), schema=t.columns.schema, **t.case.choices)


def append(t: WrittenTable, _: Hudi) -> None:
    """Rows with all columns."""
    new = t.new_rows()
    t.open().append(t.columns.arrow(new))
    t.rows += new


def append_into_small_files(t: WrittenTable, _: Hudi) -> None:
    """Rows for partitions whose files have room."""
    groups = file_groups(t)
    append(t, _)
    assert file_groups(t) == groups, "an append made a new file group where a small file was"


def file_groups(t: WrittenTable) -> set[str]:
    """The file groups that rows lie in."""
    names = t.open().scan(columns=["_hoodie_file_name"]).to_arrow()["_hoodie_file_name"]
    return {name.partition("_")[0] for name in names.to_pylist()}


def append_few_columns(t: WrittenTable, _: Hudi) -> None:
    """Rows that lack most columns, one batch at a time."""
    named = ["ts", *dict.fromkeys((*t.case.key_fields, "region", "day")), "dec18"]
    new = [{name: r[name] for name in named} for r in t.new_rows()]
    t.open().append(t.columns.arrow(new).select(named).to_reader(max_chunksize=5))
    t.rows += new


def append_evolved(t: WrittenTable, _: Hudi) -> None:
    """Rows with a new column and two wider ones."""
    t.columns = columns(evolved=True)
    for r in t.rows:
        r.pop("more", None)
    append(t, _)


def bulk_insert(**options: str) -> Callable[[WrittenTable, Hudi], None]:
    """New files, in the order of the options."""

    def does(t: WrittenTable, _: Hudi) -> None:
        new = t.new_rows()
        given = {SORT_COLUMNS if k == "columns" else SORT_MODE: v for k, v in options.items()}
        t.open().bulk_insert(t.columns.arrow(new), options=given)
        t.rows += new

    return does


def overwrite(t: WrittenTable, _: Hudi) -> None:
    """The partitions of a few rows."""
    new = t.new_rows(5)
    touched = {t.case.partition_of(r) for r in new}
    t.open().overwrite(t.columns.arrow(new))
    t.keep_if(lambda r: t.case.partition_of(r) not in touched)
    t.rows += new


def overwrite_table(t: WrittenTable, _: Hudi) -> None:
    """Everything."""
    new = t.new_rows()
    t.open().overwrite(t.columns.arrow(new), whole_table=True)
    t.rows = new


def delete_partition(t: WrittenTable, _: Hudi) -> None:
    """The partition of the newest row, by the path that the row says."""
    newest = t.rows[-1]
    scanned = t.open().scan(columns=["_hoodie_partition_path", "id"], where="id is not null")
    paths = {r["id"]: r["_hoodie_partition_path"] for r in scanned.to_arrow().to_pylist()}
    t.open().delete_partition(paths[newest["id"]])
    gone = t.case.partition_of(newest)
    t.keep_if(lambda r: t.case.partition_of(r) != gone)


# ---- Hudi's ----------------------------------------------------------------------------------


def hudi_write(
    operation: str, more: dict[str, str] | None = None
) -> Callable[[WrittenTable, Hudi], None]:
    """Half of the keys that are there, and some new ones."""

    def does(t: WrittenTable, hudi: Hudi) -> None:
        t.generation += 1
        old = {t.case.key_of(r) for r in t.rows[::2]}
        changed = [r for i in range(t.next_key) if t.case.key_of(r := t.row(i)) in old]
        rows = changed + t.new_rows(6)
        _hudi(t, hudi, operation, rows, more or {})
        met = {t.case.key_of(r) for r in rows}
        t.keep_if(lambda r: t.case.key_of(r) not in met)
        t.rows += rows

    return does


def hudi_delete(t: WrittenTable, hudi: Hudi) -> None:
    """A third of the rows."""
    t.generation += 1
    gone = t.rows[::3]
    _hudi(t, hudi, "delete", [{**r, "ts": t.generation} for r in gone], {})
    keys = {t.case.key_of(r) for r in gone}
    t.keep_if(lambda r: t.case.key_of(r) not in keys)


def hudi_compacts(t: WrittenTable, hudi: Hudi) -> bool | None:
    """An upsert with a compaction behind it, and cleaning."""
    if t.case.type == "cow":
        return False
    hudi_write("upsert", {**COMPACT, **CLEAN})(t, hudi)
    return None


def _hudi(
    t: WrittenTable, hudi: Hudi, operation: str, rows: Sequence[Row], more: dict[str, str]
) -> None:
    step: dict[str, Any] = {
        "do": "write",
        "operation": operation,
        "schema": t.columns.ddl,
        "rows": t.columns.json(rows),
        "options": {**t.case.hudi_options(hudi.version), **more},
    }
    t.lock = "file"
    hudi.steps(t.path, t.case.name, [step])


STEPS = (
    Step("create", "lakewright", create),
    Step("append", "lakewright", append),
    Step("append into small files", "lakewright", append_into_small_files),
    Step("append without some columns", "lakewright", append_few_columns),
    Step("bulk_insert, not sorted", "lakewright", bulk_insert(mode="NONE")),
    Step("bulk_insert, sorted", "lakewright", bulk_insert(mode="GLOBAL_SORT")),
    Step("bulk_insert, sorted by task", "lakewright", bulk_insert(mode="PARTITION_SORT")),
    Step("overwrite of partitions", "lakewright", overwrite),
    Step("delete_partition", "lakewright", delete_partition),
    Step("overwrite of the table", "lakewright", overwrite_table),
    Step("bulk_insert, sorted by columns", "lakewright", bulk_insert(columns="st.b,ts")),
    Step("append with wider columns", "lakewright", append_evolved),
    Step("Hudi upserts", "Hudi", hudi_write("upsert")),
    Step("append beside Hudi", "lakewright", append),
    Step("Hudi upserts and cleans", "Hudi", hudi_write("upsert", CLEAN)),
    Step("Hudi compacts and cleans", "Hudi", hudi_compacts),
    Step("append after it", "lakewright", append),
    Step("Hudi deletes", "Hudi", hudi_delete),
    Step("overwrite beside Hudi", "lakewright", overwrite),
    Step("delete_partition beside Hudi", "lakewright", delete_partition),
    Step(
        "bulk_insert, by partition",
        "lakewright",
        bulk_insert(mode="PARTITION_PATH_REPARTITION_AND_SORT"),
    ),
    Step("Hudi upserts at the end", "Hudi", hudi_write("upsert")),
)
