"""The named part of the corpus: what makes sense only in one place, or is known to be tricky.

Each function here gives the cases of one subject for the table versions where the subject exists.
All are small and mostly without a metadata table, which makes them quick.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from interop import data
from interop.cases import (
    DIALECT_OF_TABLE_VERSION,
    Case,
    Continue,
    Crash,
    Options,
    Row,
    Sql,
    Step,
    TableType,
    Traits,
    Write,
)
from interop.histories import COMPACT, PLAN_COMPACTION, Maker
from interop.options import write_options

UNAVAILABLE = "__debezium_unavailable_value"
LAZY = {
    "hoodie.clean.failed.writes.policy": "LAZY",
    "hoodie.cleaner.policy.failed.writes": "LAZY",
    "hoodie.write.concurrency.mode": "optimistic_concurrency_control",
    "hoodie.write.lock.provider": ("org.apache.hudi.client.transaction.lock.InProcessLockProvider"),
}
LOG_COMPACTION = {
    "hoodie.compact.inline": "false",
    "hoodie.log.compaction.enable": "true",
    "hoodie.log.compaction.inline": "true",
    "hoodie.log.compaction.blocks.threshold": "2",
    "hoodie.metadata.log.compaction.enable": "false",
}


def special_cases() -> list[Case]:
    """Every case of this module."""
    made: list[Case] = []
    for subject in SUBJECTS:
        made.extend(subject())
    return made


def build(
    version: int,
    type_: TableType,
    history: str,
    steps: Callable[[Maker], Iterable[Step]],
    *,
    options: Options | None = None,
    hudi: str | None = None,
    note: str = "",
    **traits: str,
) -> Case:
    """A case with steps of its own and options on top of those of its traits."""
    chosen = Traits(table_version=version, type=type_, history=history, **traits)
    hudi = hudi or DIALECT_OF_TABLE_VERSION[version]
    by = "" if hudi == DIALECT_OF_TABLE_VERSION[version] else f"_by_{hudi.replace('.', '')}"
    name = f"v{version}_{type_}_{history}{by}"
    maker = Maker(chosen, {**write_options(chosen, hudi, name), **(options or {})})
    return Case(name, hudi, chosen, tuple(steps(maker)), note=note)


def with_columns(rows: Iterable[Row], added: Callable[[int], Mapping[str, Any]]) -> tuple[Row, ...]:
    """Rows with more columns, computed from the position."""
    return tuple({**row, **added(n)} for n, row in enumerate(rows))


# -- payload classes ------------------------------------------------------------------------


def payloads() -> list[Case]:
    """Each payload class on each table version, merged on read."""
    steps: dict[str, Callable[[Maker], list[Step]]] = {
        "event_payload": flagged_steps,
        "partial_payload": filling_steps,
        "non_defaults": filling_steps,
        "dms": dms_steps,
        "mysql": mysql_steps,
        "postgres": postgres_steps,
    }
    return [
        build(version, "mor", f"payload_{payload}", made, merge=payload)
        for payload, made in steps.items()
        for version in (6, 8, 9)
    ]


def flagged_steps(m: Maker) -> list[Step]:
    """Deletes by flag that are newer, equal and older; no delete operation."""
    schema = m.schema + ", _hoodie_is_deleted boolean"
    times = (110, 100, 90)

    def write(keys: Iterable[int], g: int, flag: Callable[[int], bool]) -> Write:
        rows = m.rows(keys, g, lambda i: times[i % 3] + g if g else 100)
        flagged = with_columns(rows, lambda n: {"_hoodie_is_deleted": flag(n)})
        return Write("upsert", schema, flagged, m.options)

    return [
        write(range(12), 0, lambda _: False),
        write(range(9), 1, lambda n: n < 6),
        write(range(3, 12), 2, lambda n: n % 2 == 0),
    ]


def filling_steps(m: Maker) -> list[Step]:
    """Rows full of nulls over stored values, with older and newer event times, thrice."""
    keep = (("name",), ("amount",), ("flag", "pieces"), ())

    def sparse(g: int) -> Write:
        update = m.update(g)
        rows = tuple(
            {
                k: v if k in keep[n % 4] or k not in ("name", "amount", "flag", "pieces") else None
                for k, v in row.items()
            }
            for n, row in enumerate(update.rows)
        )
        return replace(update, rows=rows)

    return [m.first(), sparse(1), sparse(3), sparse(2), sparse(5)]


def dms_steps(m: Maker) -> list[Step]:
    """Rows of a database migration: `Op` is I, U or D."""
    schema = m.schema + ", Op string"

    def write(keys: Iterable[int], g: int, letters: str) -> Write:
        rows = m.rows(keys, g, lambda i: 100 + g * (1 if i % 2 else -1))
        marked = with_columns(rows, lambda n: {"Op": letters[n % len(letters)]})
        return Write("upsert", schema, marked, m.options)

    return [write(range(12), 0, "I"), write(range(8), 1, "UD"), write(range(4, 14), 2, "UUD")]


def mysql_steps(m: Maker) -> list[Step]:
    """Change rows of MySQL: ordered by binlog file and position, compared as numbers."""
    schema = (
        m.schema + ", _change_operation_type string, _event_seq string, "
        "_event_bin_file bigint, _event_pos bigint"
    )

    def write(keys: Iterable[int], g: int, letters: str, spots: list[tuple[int, int]]) -> Write:
        def change(n: int) -> dict[str, Any]:
            file, pos = spots[n % len(spots)]
            return {
                "_change_operation_type": letters[n % len(letters)],
                "_event_seq": f"{file}.{pos}",
                "_event_bin_file": file,
                "_event_pos": pos,
            }

        rows = with_columns(m.rows(keys, g, lambda _: 100), change)
        return Write("upsert", schema, rows, m.options)

    return [
        write(range(12), 0, "c", [(9, 50)]),
        write(range(8), 1, "ud", [(10, 4), (9, 50), (9, 6), (11, 1)]),
        write(range(3, 13), 2, "uud", [(10, 12), (9, 100), (10, 1)]),
    ]


def postgres_steps(m: Maker) -> list[Step]:
    """Change rows of PostgreSQL: ordered by log position, with values that were not sent."""
    schema = m.schema + ", _change_operation_type string, _event_lsn bigint, big_text string"

    def write(keys: Iterable[int], g: int, letters: str, spots: list[int]) -> Write:
        def change(n: int) -> dict[str, Any]:
            return {
                "_change_operation_type": letters[n % len(letters)],
                "_event_lsn": spots[n % len(spots)],
                "big_text": UNAVAILABLE if g and n % 2 else f"long {g} {n}",
            }

        rows = with_columns(m.rows(keys, g, lambda _: 100), change)
        return Write("upsert", schema, rows, m.options)

    return [
        write(range(12), 0, "c", [500]),
        write(range(8), 1, "uud", [600, 500, 400]),
        write(range(3, 13), 2, "uuudu", [550, 700]),
    ]


# -- partial updates ------------------------------------------------------------------------


def partial_updates() -> list[Case]:
    """MERGE INTO of some columns: log blocks that hold only those."""

    def steps(m: Maker) -> list[Step]:
        settings = {k: v for k, v in m.options.items() if k.startswith("hoodie.metadata")}
        settings["hoodie.logfile.data.block.format"] = m.traits.blocks

        def merge(columns: str, g: int, ts: int, keys: Iterable[int]) -> Sql:
            assignments = ", ".join(f"{c} = s.{c}" for c in columns.split())
            text = (
                f"merge into {{table}} as t using source as s on t.id = s.id "
                f"when matched then update set {assignments}"
            )
            return Sql(text, (m.schema, m.rows(keys, g, lambda _: ts)), settings)

        return [
            m.first(),
            m.update(1),
            merge("name ts", 3, 120, range(6)),
            merge("amount flag ts", 4, 110, range(3, 9)),
            m.update(2),
            merge("pieces ts", 5, 130, [3, 4, 9, 10]),
        ]

    return [
        build(8, "mor", "partial_update", steps),
        build(8, "mor", "partial_update_parquet", steps, blocks="parquet"),
        build(9, "mor", "partial_update", steps),
        build(9, "mor", "partial_update_commit_time", steps, merge="commit"),
    ]


# -- deletes --------------------------------------------------------------------------------


def reinserted() -> list[Case]:
    """A key deleted and written again within one slice, with smaller and greater event time."""

    def steps(m: Maker) -> list[Step]:
        again = m.write("upsert", m.rows([1, 2, 3, 4], 3, lambda i: 95 + 3 * i))
        return [m.first(), m.delete([1, 2, 3, 4, 5]), again]

    return [
        build(version, "mor", f"reinserted_{merge}", steps, merge=merge)
        for version, merge in ((6, "event"), (8, "event"), (9, "event"))
    ]


def delete_markers() -> list[Case]:
    """A column of the user's own that marks deletes."""
    marker = {
        "hoodie.payload.delete.field": "state",
        "hoodie.payload.delete.marker": "gone",
        "hoodie.datasource.write.payload.class": (
            "org.apache.hudi.common.model.DefaultHoodieRecordPayload"
        ),
    }

    def steps(m: Maker) -> list[Step]:
        schema = m.schema + ", state string"
        words = ("here", "gone", "GONE", None)

        def write(keys: Iterable[int], g: int) -> Write:
            rows = m.rows(keys, g, lambda i: 100 + (g if i % 3 else -g))
            marked = with_columns(rows, lambda n: {"state": words[n % 4] if g else "here"})
            return Write("upsert", schema, marked, m.options)

        return [write(range(12), 0), write(range(10), 1), write(range(5, 13), 2)]

    return [build(v, "mor", "delete_marker", steps, options=marker) for v in (6, 8, 9)]


# -- keys, partitions, files ----------------------------------------------------------------


def simple_updates(m: Maker) -> list[Step]:
    """An insert and two updates."""
    return [m.first(), m.update(1), m.update(2)]


def virtual_keys() -> list[Case]:
    """No meta columns in the files."""
    options = {"hoodie.populate.meta.fields": "false", "hoodie.index.type": "SIMPLE"}
    kinds: list[tuple[int, TableType]] = [(6, "cow"), (6, "mor"), (9, "cow")]
    return [build(v, t, "virtual_keys", simple_updates, options=options) for v, t in kinds]


def dropped_partition_columns() -> list[Case]:
    """Partition columns only in the paths."""
    options = {"hoodie.datasource.write.drop.partition.columns": "true"}
    kinds: list[tuple[int, TableType]] = [(6, "cow"), (9, "mor")]
    return [
        build(
            v, t, "dropped_columns", simple_updates, options=options, paths="hive", keys="complex"
        )
        for v, t in kinds
    ]


def no_keys() -> list[Case]:
    """Keys made by Hudi."""

    def steps(m: Maker) -> list[Step]:
        dropped = ("recordkey", "precombine", "merge.mode", "index.type")
        options = {k: v for k, v in m.options.items() if not any(d in k for d in dropped)}
        rows = [m.rows(range(n, n + 6), n, lambda _: 100) for n in (0, 3)]
        return [Write("insert", m.schema, r, options) for r in rows]

    return [
        build(6, "cow", "no_keys", steps, merge="commit"),
        build(8, "mor", "no_keys", steps, merge="commit"),
    ]


def null_partitions() -> list[Case]:
    """Rows whose partition value is null or empty."""

    def steps(m: Maker) -> list[Step]:
        def gap(rows: tuple[Row, ...]) -> tuple[Row, ...]:
            return with_columns(rows, lambda n: {"region": None} if n % 3 == 0 else {})

        first, update = m.first(), m.update(1)
        return [
            replace(first, rows=gap(first.rows)),
            replace(update, rows=gap(update.rows)),
        ]

    return [
        build(6, "cow", "null_partition", steps, paths="hive"),
        build(8, "mor", "null_partition", steps),
    ]


def duplicate_keys() -> list[Case]:
    """The same key twice in a base file, then updated in a log file."""

    def steps(m: Maker) -> list[Step]:
        twice = m.rows([*range(6), *range(4)], 0, lambda _: 100)
        return [m.write("bulk_insert", twice), m.update(1)]

    return [build(v, "mor", "duplicate_keys", steps) for v in (6, 9)]


def day_folders() -> list[Case]:
    """A number of milliseconds as partition, in folders of year, month and day."""
    options = {
        "hoodie.datasource.write.partitionpath.field": "at_ms",
        "hoodie.keygen.timebased.timestamp.type": "EPOCHMILLISECONDS",
        "hoodie.keygen.timebased.output.dateformat": "yyyy/MM/dd",
    }
    return [
        build(v, "mor", "day_folders", simple_updates, options=options, keys="timestamp")
        for v in (6,)
    ]


def consistent_hashing() -> list[Case]:
    """The bucket index that can split its buckets."""
    options = {
        "hoodie.index.bucket.engine": "CONSISTENT_HASHING",
        "hoodie.bucket.index.min.num.buckets": "2",
        "hoodie.bucket.index.max.num.buckets": "4",
        "hoodie.storage.layout.partitioner.class": "",
    }
    return [
        build(v, "mor", "consistent_hashing", simple_updates, options=options, index="bucket")
        for v in (8,)
    ]


def change_data() -> list[Case]:
    """Tables that keep change data, in each logging mode."""

    def steps(m: Maker) -> list[Step]:
        return [m.first(), m.update(1), m.delete([1, 4]), m.update(2)]

    modes = ((6, "mor", "data_before_after"), (8, "cow", "data_before"), (9, "cow", "op_key_only"))
    return [
        build(
            v,
            "cow" if t == "cow" else "mor",
            "change_data",
            steps,
            options={
                "hoodie.table.cdc.enabled": "true",
                "hoodie.table.cdc.supplemental.logging.mode": mode,
            },
        )
        for v, t, mode in modes
    ]


# -- schema on read -------------------------------------------------------------------------


def schema_on_read() -> list[Case]:
    """ALTER TABLE with the history of columns by id: added, renamed, dropped, widened."""
    on = {"hoodie.schema.on.read.enable": "true"}

    def steps(m: Maker) -> list[Step]:
        drop = "hoodie.datasource.write.schema.allow.auto.evolution.column.drop"
        settings = {**on, "hoodie.metadata.enable": "false", drop: "true"}
        changes = [
            "alter table {table} add columns (note string)",
            "alter table {table} rename column name to title",
            "alter table {table} alter column pieces type bigint",
            "alter table {table} drop column flag",
        ]
        later = data.KEY_COLUMNS + ", title string, amount double, pieces bigint, note string"
        rows = tuple(
            {
                **{k: v for k, v in row.items() if k not in ("name", "flag")},
                "title": row["name"],
                "note": f"note {n}",
            }
            for n, row in enumerate(m.update(2).rows)
        )
        return [
            m.first(),
            m.update(1),
            *(Sql(text, settings=settings) for text in changes),
            Write("upsert", later, rows, m.options),
        ]

    kinds: list[tuple[int, TableType]] = [(6, "mor"), (8, "cow"), (9, "mor")]
    return [build(v, t, "schema_on_read", steps, options=on) for v, t in kinds]


# -- log compaction, failed writes, other writers -------------------------------------------


def log_compaction() -> list[Case]:
    """Log blocks merged into one log block."""

    def steps(m: Maker) -> list[Step]:
        return [m.first(), *(m.update(g) for g in range(1, 5))]

    return [build(v, "mor", "log_compaction", steps, options=LOG_COMPACTION) for v in (6, 8, 9)]


def lazy_writers() -> list[Case]:
    """A dead writer's instant before completed ones: several writers, lazy cleaning."""

    def steps(m: Maker) -> list[Step]:
        return [m.first(), Crash(m.update(1)), m.update(2), m.update(3)]

    kinds: list[tuple[int, TableType]] = [(6, "mor"), (8, "mor"), (9, "mor")]
    return [build(v, t, "lazy_writers", steps, options=LAZY) for v, t in kinds]


def crashed_requests() -> list[Case]:
    """A writer that died before its first file; its successor's plan is still open."""

    def steps(m: Maker) -> list[Step]:
        return [m.first(), m.update(1, PLAN_COMPACTION), Crash(m.update(2), "requested")]

    return [build(v, "mor", "crashed_request", steps) for v in (6, 8)]


def older_version_by_newer_hudi() -> list[Case]:
    """Version 6 written by Hudi 1.0."""

    def compacted(m: Maker) -> list[Step]:
        return [m.first(), m.update(1), m.update(2, COMPACT), m.update(3), m.delete([2, 5])]

    return [
        build(6, "mor", "updates", simple_updates, hudi="1.0.2"),
        build(6, "mor", "compacted", compacted, hudi="1.0.2", merge="commit"),
    ]


def upgraded() -> list[Case]:
    """Tables that a newer Hudi took over, with log files of both."""
    upgrade = {"hoodie.write.auto.upgrade": "true"}

    def continued(first: int, then: int) -> Callable[[Maker], list[Step]]:
        def steps(m: Maker) -> list[Step]:
            newer = Traits(**{**_fields(m.traits), "table_version": then})
            hudi = DIALECT_OF_TABLE_VERSION[then]
            name = f"v{first}_mor_upgraded_to_{then}"
            later = Maker(newer, {**write_options(newer, hudi, name), **upgrade})
            return [m.first(), m.update(1), Continue(hudi), later.update(2), later.update(3)]

        return steps

    return [
        build(first, "mor", f"upgraded_to_{then}", continued(first, then), metadata="files")
        for first, then in ((6, 8), (8, 9))
    ]


def _fields(traits: Traits) -> dict[str, Any]:
    return {name: getattr(traits, name) for name in traits.__dataclass_fields__}


def two_ordering_fields() -> list[Case]:
    """Version 9 orders by several columns."""
    fields = "pieces,ts"
    options = {
        "hoodie.table.ordering.fields": fields,
        "hoodie.datasource.write.precombine.field": fields,
    }

    def steps(m: Maker) -> list[Step]:
        def write(keys: Iterable[int], g: int) -> Write:
            rows = m.rows(keys, g, lambda i: 100 + (i + g) % 3 - 1)
            return m.write("upsert", with_columns(rows, lambda n: {"pieces": (n + g) // 3}))

        return [write(range(12), 1), write(range(12), 0), m.delete([2]), write(range(12), 2)]

    return [build(9, "mor", "two_ordering_fields", steps, options=options)]


def odd_types() -> list[Case]:
    """Timestamps without zone, and integers that Hudi widens."""

    def steps(m: Maker) -> list[Step]:
        schema = m.schema + ", at timestamp_ntz, i8 tinyint, i16 smallint"

        def more(w: Write) -> Write:
            rows = with_columns(
                w.rows,
                lambda n: {"at": f"19{60 + n}-02-28T01:02:03.{n:06d}", "i8": 7 - n, "i16": -n},
            )
            return replace(w, schema=schema, rows=rows)

        return [more(m.first()), more(m.update(1))]

    return [build(v, "mor", "odd_types", steps) for v in (9,)]


SUBJECTS: tuple[Callable[[], list[Case]], ...] = (
    payloads,
    partial_updates,
    reinserted,
    delete_markers,
    virtual_keys,
    dropped_partition_columns,
    no_keys,
    null_partitions,
    duplicate_keys,
    day_folders,
    consistent_hashing,
    change_data,
    schema_on_read,
    log_compaction,
    lazy_writers,
    crashed_requests,
    older_version_by_newer_hudi,
    upgraded,
    two_ordering_fields,
    odd_types,
)
