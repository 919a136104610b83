"""What is done to each of the tables of keyed writes, step by step.

A step writes with lakewright or with Hudi and tells the model the same. Ordering values grow with
the steps, except where rows are late on purpose.

What Hudi cannot go on with is left out or left to the end. Keys that have moved to another
partition of a Merge-on-Read table are written by us alone until a compaction: Hudi's global indexes
find them in two base files. A row whose deletion came too late, and lies in a log, is gone for the
global indexes of Hudi 1.0, so Hudi does not delete it there. And Hudi 1.0 can neither read nor
compact a log, not even its own, in which a key comes again behind a deletion without an ordering
value, where rows are merged by long ordering values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

import pyarrow as pa

import lakewright as lw
from interop.hudi import Hudi
from interop.keyed_cases import KeyedCase
from interop.keyed_model import FLAG, ORDER, Model
from interop.written_rows import Columns, Row, columns, row
from interop.written_steps import CLEAN, COMPACT

ROWS = 24
STRANGERS = range(9000, 9003)
"""Numbers of keys that no table has."""
NO_SKEW = {"hoodie.time.generator.max_expected_clock_skew_ms": "2"}
"""Both sides share one clock, and take turns."""
SOME_COLUMNS = (ORDER, "s", "dec18", "arr")


def marked_columns() -> Columns:
    """The columns after the schema changes, with the mark of deleted rows."""
    return Columns(pa.schema([*columns(evolved=True).schema, pa.field(FLAG, pa.bool_())]))


@dataclass(frozen=True)
class Finding:
    """What a step has asked others itself: who, what it must be, and what was answered."""

    reader: str
    ours: pa.Table
    theirs: pa.Table | str
    """What was read, or with what it was refused."""


@dataclass
class KeyedTable:
    """One table under test."""

    case: KeyedCase
    path: Path
    model: Model = field(init=False)
    columns: Columns = field(default_factory=columns)
    next_key: int = 0
    moved: dict[int, int] = field(default_factory=dict)
    """How far keys have moved on from the partitions that they began in."""
    travelled: set[int] = field(default_factory=set)
    """Keys that base files of several partitions hold, until a compaction."""
    too_late: set[int] = field(default_factory=set)
    """Keys whose deletion came too late."""
    lock: str | None = None
    findings: list[Finding] = field(default_factory=list)
    """Of the step that is being done."""

    def __post_init__(self) -> None:
        self.model = Model(self.case)

    def open(self) -> lw.Table:
        """Our handle; with Hudi's lock from the moment that Hudi has written."""
        return lw.Table.open(str(self.path), lock=self.lock)

    @property
    def options(self) -> dict[str, str] | lw.WriteOptions:
        """The options of our writes; buckets are those of the release that writes the table too."""
        told = {**self.case.our_options, **NO_SKEW}
        if self.case.index != "BUCKET":
            return told
        return lw.WriteOptions.from_hudi(
            told, table=self.open().properties, bucket_keys_as_1x=self.case.hudi != "0.15.0"
        )

    def row(self, i: int, order: int, *, other: int = 0, deleted: bool = False) -> Row:
        """The row of a key with an ordering value; `other` makes other content."""
        made = row(i, order + other, self.case.regions, self.case.days)
        if i in self.moved:
            there = row(i + 2 * self.moved[i], order, self.case.regions, self.case.days)
            made |= {"region": there["region"], "day": there["day"]}
        made |= {ORDER: order, FLAG: deleted or (None if i % 3 else False)}
        return {name: made[name] for name in self.columns.names}

    def rows(self, keys: Iterable[int], order: int) -> list[Row]:
        """The rows of some keys."""
        return [self.row(i, order) for i in keys]

    def new(self, count: int) -> list[int]:
        """Keys that the table does not have."""
        first, self.next_key = self.next_key, self.next_key + count
        return list(range(first, self.next_key))

    def alive(self) -> list[int]:
        """Keys that it has."""
        seen = {self.case.identity(r) for r in self.model.rows()}
        return [i for i in range(self.next_key) if self.case.identity(self.row(i, 0)) in seen]

    def upsert(self, rows: Sequence[Row]) -> None:
        """Upsert with lakewright and in the model."""
        self.open().upsert(self.columns.arrow(rows), options=self.options)
        self.model.upsert(rows)

    def delete(self, rows: Sequence[Row]) -> None:
        """Delete by key with lakewright and in the model."""
        names = dict.fromkeys((*self.case.key_fields, *self.case.partition_fields))
        keys = self.columns.arrow(rows).select(list(names))
        self.open().delete(keys, options=self.options)
        self.model.delete(rows)

    def delete_where(self, where: str, chosen: Callable[[Row], bool]) -> None:
        """Delete by a filter, with lakewright and in the model."""
        self.open().delete(where=where, options=self.options)
        self.model.delete_where(chosen)


T = TypeVar("T", bound=KeyedTable)


@dataclass(frozen=True)
class Step(Generic[T]):
    """One step; `does` returns False where there is nothing to do on that table."""

    name: str
    by: str  # lakewright or Hudi
    does: Callable[[T, Hudi], bool | None]
    asked: bool = True
    """Whether the table is read by others after it."""


# ---- ours ------------------------------------------------------------------------------------


def first(t: KeyedTable, _: Hudi) -> None:
    """A new table with its first rows; buckets are only made by upserts."""
    lw.Table.create(str(t.path), schema=t.columns.schema, **t.case.choices)
    _insert(t, "bulk_insert", ROWS)


def append(t: KeyedTable, _: Hudi) -> None:
    """More rows."""
    _insert(t, "append", ROWS // 2)


def _insert(t: KeyedTable, verb: str, count: int) -> None:
    rows = t.rows(t.new(count), 10)
    if t.case.index == "BUCKET":
        t.upsert(rows)
        return
    getattr(t.open(), verb)(t.columns.arrow(rows), options=t.options)
    t.model.upsert(rows)


def upsert(order: int, stride: int = 2, new: int = 6) -> Callable[[KeyedTable, Hudi], None]:
    """Newer versions of some rows, and new rows."""

    def does(t: KeyedTable, _: Hudi) -> None:
        t.upsert(t.rows([*t.alive()[::stride], *t.new(new)], order))

    return does


def upsert_late(t: KeyedTable, _: Hudi) -> None:
    """Rows that are older than those stored, and new ones among them."""
    keys = t.alive()
    t.upsert([*t.rows(keys[::3], 5), *t.rows([*keys[1::3], *t.new(3)], 15)])


def upsert_late_again(t: KeyedTable, _: Hudi) -> None:
    """Between what is stored, and as old as what is stored with another content."""
    keys = t.alive()
    now = {t.case.identity(r): r[ORDER] for r in t.model.rows()}
    tied = [t.row(i, now[t.case.identity(t.row(i, 0))], other=3) for i in keys[::4]]
    t.upsert([*t.rows(keys[1::4], 12), *tied, *t.rows(keys[2::4], 25)])


def upsert_repeated(t: KeyedTable, _: Hudi) -> None:
    """Several versions of one key in one write, in and out of order, and as old as each other."""
    keys, new = t.alive()[::3], t.new(4)
    rows = [*t.rows(keys, 30), *t.rows(keys, 32), *t.rows(keys, 31), *t.rows(new, 30)]
    rows += [*t.rows(new[:2], 29), *(t.row(i, 30, other=5) for i in new[2:])]
    t.upsert(rows)


def delete_keys(t: KeyedTable, _: Hudi) -> None:
    """Some that are there, one of them twice, and some that are not."""
    keys = t.alive()
    t.delete(t.rows([*keys[::5], keys[0], *STRANGERS], 0))


def upsert_deleted(order: int, *, last: bool = False) -> Callable[[KeyedTable, Hudi], bool | None]:
    """Deleted keys come again, newer and older than what was deleted."""

    def does(t: KeyedTable, _: Hudi) -> bool | None:
        if t.case.fails_on_risen and not last:
            return False
        gone = sorted(set(range(t.next_key)) - set(t.alive()))
        t.upsert([*t.rows(gone[::2], order), *t.rows(gone[1::2], 1)])
        return None

    return does


def delete_some(t: KeyedTable, _: Hudi) -> None:
    """By a filter over several columns."""
    t.delete_where(
        "sub = 1 and ts >= 20 and b = true",
        lambda r: r["sub"] == 1 and r[ORDER] >= 20 and r["b"] is True,
    )


def move(t: KeyedTable, _: Hudi) -> bool | None:
    """Rows change their partition, some of them too late."""
    if not t.case.is_global:
        return False
    keys = t.alive()[::4]
    late, stay = keys[:2], dict(t.moved)
    t.travelled |= set(keys)
    for i in keys:
        t.moved[i] = 1
    t.upsert([*t.rows(keys[2:], 50), *t.rows(late, 1)])
    if t.case.merge == "event":
        t.moved = {i: n for i, n in t.moved.items() if i not in late} | stay
    return None


def move_again(t: KeyedTable, _: Hudi) -> bool | None:
    """Rows go back, and on to a third partition."""
    if not t.case.is_global:
        return False
    keys = [i for i in t.alive() if i in t.moved]
    for i in keys:
        t.moved[i] = 2
    for i in () if t.case.fails_on_risen else keys[1::2]:
        del t.moved[i]
    t.upsert(t.rows(keys, 52))
    return None


def update_columns(order: int) -> Callable[[KeyedTable, Hudi], None]:
    """Some columns of rows that are there."""

    def does(t: KeyedTable, _: Hudi) -> None:
        rows = t.rows(t.alive()[::3], order)
        names = dict.fromkeys((*t.case.key_fields, *t.case.partition_fields, *SOME_COLUMNS))
        given = t.columns.arrow(rows).select(list(names))
        t.open().upsert(given, columns=SOME_COLUMNS, options=t.options)
        t.model.set_columns(rows, SOME_COLUMNS)

    return does


def upsert_evolved(t: KeyedTable, _: Hudi) -> None:
    """Rows with a new column and two wider ones."""
    t.columns = columns(evolved=True)
    t.upsert(t.rows([*t.alive()[::2], *t.new(4)], 60))


def upsert_marked(t: KeyedTable, _: Hudi) -> None:
    """Rows that are marked as deleted: newer, older, of no key; and live ones between.

    The column that marks them is new.
    """
    t.columns = marked_columns()
    keys = t.alive()
    rows = [t.row(i, 110, deleted=True) for i in (*keys[::6], *STRANGERS)]
    if t.case.type == "cow" or not t.case.small_files:
        rows += [t.row(i, 2, deleted=True) for i in keys[1::6]]
        t.too_late |= set(keys[1::6])
    t.upsert(rows + t.rows([*keys[2::4], *t.new(3)], 110))


def upsert_behind(t: KeyedTable, _: Hudi) -> None:
    """Rows that are older than the deletion of their keys."""
    gone = sorted(set(range(t.next_key)) - set(t.alive()))
    kept = t.model.held
    places = {i: t.model.place(t.row(i, 0)) for i in gone}
    marked = [i for i in gone if places[i] in kept and not kept[places[i]].struck]
    t.upsert(t.rows([*marked, *t.new(2)], 105))


# ---- Hudi's ----------------------------------------------------------------------------------


def hudi_upsert(
    order: int, more: dict[str, str] | None = None
) -> Callable[[KeyedTable, Hudi], None]:
    """Newer and older versions of rows that are there, and new rows."""

    def does(t: KeyedTable, hudi: Hudi) -> None:
        keys = [i for i in t.alive() if i not in t.travelled]
        rows = [*t.rows([*keys[::2], *t.new(5)], order), *t.rows(keys[1::4], 3)]
        hudi_write(t, hudi, "upsert", rows, more or {})
        t.model.upsert(rows)

    return does


def hudi_services(t: KeyedTable, hudi: Hudi) -> None:
    """An upsert, a compaction behind it if there are logs, and cleaning."""
    hudi_upsert(100, {**(COMPACT if t.case.type == "mor" else {}), **CLEAN})(t, hudi)
    t.model.compact()
    t.travelled.clear()


def hudi_delete(t: KeyedTable, hudi: Hudi) -> None:
    """A fifth of the rows."""
    hidden = t.too_late if t.case.is_global and t.case.version == 8 else ()
    rows = t.rows([i for i in t.alive()[::5] if i not in hidden], 120)
    hudi_write(t, hudi, "delete", rows, {})
    t.model.delete(rows)


def hudi_write(
    t: KeyedTable, hudi: Hudi, operation: str, rows: Sequence[Row], more: dict[str, str]
) -> None:
    """A write of Hudi's, with the table's options and some more."""
    step: dict[str, Any] = {
        "do": "write",
        "operation": operation,
        "schema": t.columns.ddl,
        "rows": t.columns.json(rows),
        "options": {**t.case.hudi_options(hudi.version), **more},
    }
    t.lock = "file"
    hudi.steps(t.path, t.case.name, [step])


STEPS: tuple[Step[KeyedTable], ...] = (
    Step("bulk_insert", "lakewright", first),
    Step("append", "lakewright", append),
    Step("upsert", "lakewright", upsert(20)),
    Step("upsert of older rows", "lakewright", upsert_late),
    Step("upsert of older rows again", "lakewright", upsert_late_again),
    Step("upsert with repeated keys", "lakewright", upsert_repeated),
    Step("delete by key", "lakewright", delete_keys),
    Step("upsert of deleted keys", "lakewright", upsert_deleted(40)),
    Step("delete by filter", "lakewright", delete_some),
    Step("upsert into other partitions", "lakewright", move),
    Step("upsert into other partitions again", "lakewright", move_again),
    Step("upsert of some columns", "lakewright", update_columns(55)),
    Step("upsert with wider and new columns", "lakewright", upsert_evolved),
    Step("Hudi upserts", "Hudi", hudi_upsert(80)),
    Step("upsert beside Hudi", "lakewright", upsert(90, stride=3)),
    Step("Hudi upserts, compacts and cleans", "Hudi", hudi_services),
    Step("upsert of rows marked as deleted", "lakewright", upsert_marked),
    Step("upsert behind deletions", "lakewright", upsert_behind),
    Step("delete by key after it", "lakewright", delete_keys),
    Step("Hudi deletes", "Hudi", hudi_delete),
    Step("delete by filter at the end", "lakewright", delete_some),
    Step("upsert of some columns at the end", "lakewright", update_columns(125)),
    Step("upsert at the end", "lakewright", upsert(130, stride=1)),
    Step("upsert of deleted keys at the end", "lakewright", upsert_deleted(140, last=True)),
)
