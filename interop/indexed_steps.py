"""What is done to tables with a metadata table besides the steps of `interop.serviced_steps`.

A secondary index, made by one of the two and kept by both; overwrites and a clustering, which
replace file groups; upserts of Hudi's by the record index of ours; an index that is built while
somebody writes; and filters over every indexed column, which must give the same rows in both
engines with data skipping as the model has.
"""

from __future__ import annotations

from datetime import datetime
from operator import eq, le
from typing import Any

import pyarrow as pa

import lakewright as lw
from interop.histories import CLUSTER
from interop.hudi import Hudi, HudiRefusedError
from interop.keyed_steps import Finding, Step, hudi_upsert, hudi_write
from interop.serviced_table import ServicedTable
from interop.written_rows import Row
from lakewright.metadata.file_groups import RECORD_INDEX, SECONDARY_PREFIX
from lakewright.runtime.events import Event
from lakewright.txn.metadata_creation import drop_indexes

FILTERED = ("id", "sub", "region", "ts", "i64", "s", "dec18", "tm", "grow", "swell", "more")
"""Columns with statistics that filters are asked for."""
SKIPPING = ("hoodie.metadata.enable", "hoodie.enable.data.skipping")
INDEXED = "s"
"""The column of secondary indexes."""
Answers = dict[str, list[str]]
"""The keys of the rows that pass each filter."""
TYPE = "hoodie.index.type"
PER_PARTITION = "RECORD_LEVEL_INDEX"


def by_records(t: ServicedTable) -> dict[str, str]:
    """Rows are found by the kind of record index that the table has."""
    return {TYPE: PER_PARTITION if t.case.index == PER_PARTITION else "RECORD_INDEX"}


def has_record_index(t: ServicedTable) -> bool:
    """Whether the table has a record index."""
    return RECORD_INDEX in t.open().properties.metadata_partitions


def make_secondary(t: ServicedTable, _: Hudi) -> None:
    """A secondary index by us."""
    built = t.open().metadata.build(secondary={"by_value": INDEXED})
    assert built.indexes == ("secondary_index_by_value",), built


def hudi_makes_secondary(t: ServicedTable, hudi: Hudi) -> None:
    """The same by Hudi."""
    settings = {k: v for k, v in t.case.hudi_options(hudi.version).items() if "metadata" in k}
    text = f"create index by_value on {{table}} ({INDEXED})"
    step = {"do": "sql", "text": text, "settings": settings}
    hudi.forget(t.case.name)
    hudi.steps(t.path, t.case.name, [step])
    assert "secondary_index_by_value" in t.open().properties.metadata_partitions


def overwrite(t: ServicedTable, _: Hudi) -> bool | None:
    """New rows in place of everything in their partitions."""
    if t.case.index == "BUCKET":
        return False
    rows = t.rows(t.new(4), 420)
    t.open().overwrite(t.columns.arrow(rows), options=t.options)
    _replaced(t, rows)
    return None


def has_secondary_index(t: ServicedTable) -> bool:
    """Whether the table has a secondary index."""
    return any(i.startswith(SECONDARY_PREFIX) for i in t.open().properties.metadata_partitions)


def hudi_overwrites(t: ServicedTable, hudi: Hudi) -> bool | None:
    """The same by Hudi, which does not do it where there is a secondary index."""
    if t.case.index == "BUCKET" or has_secondary_index(t):
        return False
    rows = t.rows(t.new(4), 425)
    hudi_write(t, hudi, "insert_overwrite", rows, {})
    _replaced(t, rows)
    return None


def _replaced(t: ServicedTable, rows: list[Row]) -> None:
    gone = {t.model.place(row)[0] for row in rows}
    t.model.held = {place: kept for place, kept in t.model.held.items() if place[0] not in gone}
    t.model.upsert(rows)


def insert_again(t: ServicedTable, _: Hudi) -> None:
    """Enough rows to go on with."""
    t.upsert(t.rows(t.new(20), 430))


def hudi_upserts_by_records(t: ServicedTable, hudi: Hudi) -> bool | None:
    """Hudi finds rows by the record index: none may be there twice."""
    if not has_record_index(t):
        return False
    hudi_upsert(440, by_records(t))(t, hudi)
    return None


def upsert_by_records(t: ServicedTable, _: Hudi) -> bool | None:
    """We find rows by the record index that Hudi has continued."""
    if not has_record_index(t):
        return False
    keys = t.alive()
    rows = [*t.rows(keys[::2], 450), *t.rows(t.new(3), 450)]
    given = {**t.case.our_options, **by_records(t)}
    t.open().upsert(t.columns.arrow(rows), options=given)
    t.model.upsert(rows)
    return None


def build_beside_a_write(t: ServicedTable, _: Hudi) -> bool | None:
    """The record index is dropped and built again while rows are upserted."""
    if not has_record_index(t):
        return False
    access, _options = t.open().opened(t.case.our_options)
    drop_indexes(access, [RECORD_INDEX])
    written: list[str] = []

    def meanwhile(event: Event) -> None:
        if event.kind == "indexing.begun":
            rows = t.rows([*t.alive()[::3], *t.new(2)], 460)
            t.upsert(rows)
            written.append(event.instant or "")

    lw.Table.open(str(t.path), lock=t.lock, on_event=meanwhile).metadata.build(RECORD_INDEX)
    assert written and has_record_index(t)
    return None


def ask_filters(t: ServicedTable, hudi: Hudi) -> None:
    """Filters over indexed columns, with data skipping."""
    rows = t.model.rows()
    hudi.forget(t.case.name)  # it would go by the schema of the time when it was registered
    name = hudi.register(t.path, t.case.name)
    selected = ", ".join(t.case.key_fields)
    expected: Answers = {}
    ours: Answers = {}
    theirs: dict[bool, Answers] = {False: {}, True: {}}
    for column in (c for c in FILTERED if c in t.columns.names):
        known = sorted(row[column] for row in rows if row.get(column) is not None)
        if not known:
            continue
        value = known[len(known) // 3]
        for operator, passes in (("<=", le), ("=", eq)):
            where = f"{column} {operator} {_literal(value)}"
            found = (r for r in rows if r.get(column) is not None and passes(r[column], value))
            expected[where] = _identities(t, found)
            ours[where] = _identities(t, t.open().scan(where=where).to_arrow().to_pylist())
            asked = f"{column} {operator} {_spark_literal(value)}"
            query = f"select {selected} from {name} where {asked}"
            for skipping, answers in theirs.items():
                answers[where] = _by_sql(t, hudi, query, skipping=skipping)
    t.findings.append(Finding("lakewright, filters", _answers(expected), _answers(ours)))
    # What it answers wrongly without its metadata table, or cannot at all, is not the question.
    sound = {where for where, keys in theirs[False].items() if keys == expected[where]}
    assert len(sound) > len(expected) // 2, theirs[False]
    wanted, given = ({w: a[w] for w in sorted(sound)} for a in (expected, theirs[True]))
    t.findings.append(Finding(f"{hudi.version}, filters", _answers(wanted), _answers(given)))


def _literal(value: Any) -> str:
    if isinstance(value, str):
        quoted = value.replace("'", "''")
        return f"'{quoted}'"
    if isinstance(value, datetime):
        return f"TIMESTAMP '{value:%Y-%m-%d %H:%M:%S.%f}'"
    return str(value)


def _spark_literal(value: Any) -> str:
    """Spark takes what is behind a backslash for something else."""
    if not isinstance(value, str):
        return _literal(value)
    quoted = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{quoted}'"


def _by_sql(t: ServicedTable, hudi: Hudi, query: str, *, skipping: bool) -> list[str]:
    """What Hudi answers, with data skipping or without the metadata table."""
    for option in SKIPPING:
        hudi.query(f"set {option}={str(skipping).lower()}")
    try:
        return _identities(t, hudi.query(query))
    except HudiRefusedError as refused:
        return [str(refused)]


def _identities(t: ServicedTable, rows: Any) -> list[str]:
    return sorted(str([row[name] for name in t.case.key_fields]) for row in rows)


def _answers(given: Answers) -> pa.Table:
    return pa.table({"where": [*given], "keys": [str(keys) for keys in given.values()]})


def hudi_clusters(t: ServicedTable, hudi: Hudi) -> bool | None:
    """An upsert of Hudi's with a clustering behind it."""
    if t.case.index == "BUCKET":
        return False
    sorting = {"hoodie.clustering.plan.strategy.sort.columns": "ts"}
    hudi_upsert(470, {**CLUSTER, **sorting})(t, hudi)
    t.model.compact()
    return None


MORE = (
    Step("overwrite of partitions", "lakewright", overwrite),
    Step("Hudi overwrites partitions", "Hudi", hudi_overwrites),
    Step("upsert of new rows", "lakewright", insert_again, asked=False),
    Step("Hudi upserts by the record index", "Hudi", hudi_upserts_by_records),
    Step("upsert by the record index", "lakewright", upsert_by_records),
    Step("record index built beside an upsert", "lakewright", build_beside_a_write),
    Step("Hudi upserts by the index that was built", "Hudi", hudi_upserts_by_records),
    Step("filters with data skipping", "lakewright", ask_filters),
    Step("Hudi clusters", "Hudi", hudi_clusters),
    Step("filters after the clustering", "lakewright", ask_filters),
)
