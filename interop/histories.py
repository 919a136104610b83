"""What happens to a table of the corpus: named histories as functions from traits to steps.

Every history starts with an insert, goes on with updates whose event times are newer, equal and
older than the stored ones, and then does the one thing it is named after. Twelve keys, so that
each partition holds a few rows and each file group gets log files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from interop import data
from interop.cases import (
    Crash,
    Options,
    Restore,
    RollBackLast,
    Row,
    Savepoint,
    Sql,
    Step,
    Traits,
    Write,
)

COMPACT = {"hoodie.compact.inline": "true", "hoodie.compact.inline.max.delta.commits": "1"}
PLAN_COMPACTION = {
    "hoodie.compact.inline": "false",
    "hoodie.compact.schedule.inline": "true",
    "hoodie.compact.inline.max.delta.commits": "1",
}
CLUSTER = {
    "hoodie.clustering.inline": "true",
    "hoodie.clustering.inline.max.commits": "1",
    "hoodie.clustering.plan.strategy.sort.columns": "sub",
    "hoodie.clustering.plan.strategy.small.file.limit": "1000000000",
}
PLAN_CLUSTERING = {
    "hoodie.clustering.schedule.inline": "true",
    "hoodie.clustering.inline.max.commits": "1",
    "hoodie.clustering.plan.strategy.small.file.limit": "1000000000",
}
ARCHIVE = {
    "hoodie.clean.automatic": "true",
    "hoodie.cleaner.commits.retained": "1",
    "hoodie.archive.automatic": "true",
    "hoodie.keep.min.commits": "2",
    "hoodie.keep.max.commits": "3",
    "hoodie.commits.archival.batch": "1",
    "hoodie.metadata.compact.max.delta.commits": "2",
}


@dataclass(frozen=True)
class Maker:
    """Makes the steps of one table."""

    traits: Traits
    options: Options

    @property
    def regions(self) -> tuple[str, ...]:
        """Partition values; odd ones where the paths are encoded."""
        return data.ODD_REGIONS if "encoded" in self.traits.paths else data.REGIONS

    @property
    def schema(self) -> str:
        """The columns as Spark DDL."""
        return data.schema(self.traits.columns)

    def rows(self, keys: Iterable[int], g: int, ts: Callable[[int], int]) -> tuple[Row, ...]:
        """Rows of some keys in generation `g` with event times by key."""
        columns = self.traits.columns
        return tuple(data.row(i, g, ts(i), columns, self.regions) for i in keys)

    def write(self, operation: str, rows: tuple[Row, ...], extra: Options | None = None) -> Write:
        """A write with the table's options and some more."""
        return Write(operation, self.schema, rows, {**self.options, **(extra or {})})

    def first(self) -> Write:
        """The insert that makes the table: keys 0 to 11, event times 100."""
        return self.write(self.traits.first, self.rows(range(12), 0, lambda _: 100))

    def update(self, g: int = 1, extra: Options | None = None) -> Write:
        """Half of the keys with newer, equal and older event times, and one new key."""
        times = (100 + g, 100, 99 - g)
        keys = [i for i in range(12) if i % 2 == g % 2] + [11 + g]
        rows = self.rows(keys, g, lambda i: times[i // 2 % 3] if i < 12 else 100)
        return self.write("upsert", rows, extra)

    def delete(self, keys: Iterable[int], g: int = 5) -> Write:
        """A delete of keys."""
        return self.write("delete", self.rows(keys, g, lambda _: 100 + g))


def updates(m: Maker) -> list[Step]:
    """Updates between inserts into the same small files."""
    more = m.write("insert", m.rows(range(20, 26), 1, lambda _: 100))
    bulk = m.write("bulk_insert", m.rows(range(30, 36), 2, lambda _: 100))
    return [m.first(), m.update(1), more, m.update(2), bulk, m.update(3)]


def deletes(m: Maker) -> list[Step]:
    """Rows with `_hoodie_is_deleted` (newer, equal, older than the stored), then a delete."""
    schema = m.schema + ", _hoodie_is_deleted boolean"

    def flagged(rows: tuple[Row, ...], flag: Callable[[int], bool | None]) -> tuple[Row, ...]:
        return tuple({**row, "_hoodie_is_deleted": flag(n)} for n, row in enumerate(rows))

    def write(operation: str, rows: tuple[Row, ...]) -> Write:
        return Write(operation, schema, rows, m.options)

    times = (110, 100, 90)
    return [
        write(m.traits.first, flagged(m.rows(range(12), 0, lambda _: 100), lambda _: False)),
        write("upsert", flagged(m.rows(range(9), 1, lambda i: times[i % 3]), lambda n: n < 6)),
        write("delete", flagged(m.rows([7, 10], 2, lambda _: 100), lambda _: None)),
        write("upsert", flagged(m.rows([2, 8, 9, 12], 3, lambda i: 105 + i), lambda _: None)),
    ]


def overwrites(m: Maker) -> list[Step]:
    """Insert overwrite of some partitions, delete of one, overwrite of the whole table."""
    steps = [
        m.first(),
        m.update(1),
        m.write("insert_overwrite", m.rows(range(0, 30, 6), 4, lambda _: 100)),
        m.update(2),
        m.write("delete_partition", m.rows([1], 4, lambda _: 100)),
        m.write("insert_overwrite_table", m.rows(range(3, 9), 5, lambda _: 100)),
        m.update(3),
    ]
    if m.traits.keys == "nonpartitioned":
        del steps[4]
    return list(steps)


def compaction(m: Maker) -> list[Step]:
    return [m.first(), m.update(1), m.update(2, COMPACT), m.update(3), m.delete([3, 6])]


def pending_compaction(m: Maker) -> list[Step]:
    return [m.first(), m.update(1), m.update(2, PLAN_COMPACTION), m.update(3)]


def clustering(m: Maker) -> list[Step]:
    """A clustering, then a plan for another that is still open while rows come in."""
    more = m.write("insert", m.rows(range(40, 46), 4, lambda _: 100))
    return [m.first(), m.update(1), m.update(2, CLUSTER), m.update(3, PLAN_CLUSTERING), more]


def undone(m: Maker) -> list[Step]:
    """A write rolled back, and later ones undone by going back to a savepoint."""
    return [
        m.first(),
        m.update(1),
        Savepoint(),
        m.update(2),
        RollBackLast(),
        m.update(3),
        Restore(),
        m.update(4),
    ]


def schema_change(m: Maker) -> list[Step]:
    """Promoted columns (int to long, float to double) and added ones (one of them nested)."""
    narrow = m.schema + ", grows int, widens float"
    wide = m.schema + ", grows bigint, widens double, extra string, more struct<p:int,q:string>"

    def numbers(rows: tuple[Row, ...], factor: int) -> tuple[Row, ...]:
        return tuple({**r, "grows": n * factor, "widens": n + 0.5} for n, r in enumerate(rows))

    def added(rows: tuple[Row, ...]) -> tuple[Row, ...]:
        return tuple({**r, "extra": f"x{n}", "more": {"p": n}} for n, r in enumerate(rows))

    first, second, third = m.first(), m.update(1), m.update(2)
    return [
        Write(first.operation, narrow, numbers(first.rows, 1), m.options),
        Write("upsert", narrow, numbers(second.rows, 10), m.options),
        Write("upsert", wide, added(numbers(third.rows, 10**12)), m.options),
    ]


def archived(m: Maker) -> list[Step]:
    """Enough commits, cleaned and archived as they go; updates compacted where there are logs."""
    extra = {**ARCHIVE, **(COMPACT if m.traits.type == "mor" else {})}
    if m.traits.type == "mor":
        extra["hoodie.compact.inline.max.delta.commits"] = "2"
    return [m.first(), *(m.update(g, extra) for g in range(1, 7))]


def crashed(m: Maker) -> list[Step]:
    """A dead writer that its successor rolled back, and one that nobody has met yet."""
    return [
        m.first(),
        Crash(m.update(1)),
        m.update(2),
        Crash(m.update(3)),
    ]


def statements(m: Maker) -> list[Step]:
    """UPDATE, DELETE and MERGE INTO with every column."""
    merge = (
        "merge into {table} as t using source as s on t.id = s.id "
        "when matched and s.pieces % 5 = 0 then delete "
        "when matched then update set * when not matched then insert *"
    )
    rows = m.rows(range(6, 15), 4, lambda _: 120)
    settings = {k: v for k, v in m.options.items() if k.startswith("hoodie.metadata")}
    return [
        m.first(),
        m.update(1),
        Sql("update {table} set name = 'set', ts = 115 where id = 'k01'", settings=settings),
        Sql("delete from {table} where id in ('k02', 'k03')", settings=settings),
        Sql(merge, (m.schema, rows), settings),
    ]


HISTORIES: dict[str, Callable[[Maker], list[Step]]] = {
    made.__name__: made
    for made in (
        updates,
        deletes,
        overwrites,
        compaction,
        pending_compaction,
        clustering,
        undone,
        schema_change,
        archived,
        crashed,
        statements,
    )
}
