"""What is done to tables with a metadata table besides the steps of `interop.serviced_steps`.

Overwrites and a clustering, which replace file groups; upserts of Hudi's by the record index of
ours; an index that is built while somebody writes; and filters over every indexed column, which
must give the same rows in both engines with data skipping as the model has.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

import lakewright as lw
from interop.histories import CLUSTER
from interop.hudi import Hudi, HudiRefusedError
from interop.keyed_steps import Finding, Step, hudi_upsert, hudi_write
from interop.serviced_table import ServicedTable
from interop.written_rows import Row
from lakewright.metadata.file_groups import RECORD_INDEX
from lakewright.runtime.events import Event
from lakewright.txn.metadata_creation import drop_indexes

FILTERED = ("i64", "ts", "s")
"""Columns with statistics that filters are asked for."""
SKIPPING = ("hoodie.metadata.enable", "hoodie.enable.data.skipping")
BY_RECORDS = {"hoodie.index.type": "RECORD_INDEX"}


def has_record_index(t: ServicedTable) -> bool:
    """Whether the table has a record index."""
    return RECORD_INDEX in t.open().properties.metadata_partitions


def overwrite(t: ServicedTable, _: Hudi) -> bool | None:
    """New rows in place of everything in their partitions."""
    if t.case.index == "BUCKET":
        return False
    rows = t.rows(t.new(4), 420)
    t.open().overwrite(t.columns.arrow(rows), options=t.options)
    _replaced(t, rows)
    return None


def hudi_overwrites(t: ServicedTable, hudi: Hudi) -> bool | None:
    """The same by Hudi."""
    if t.case.index == "BUCKET":
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
    hudi_upsert(440, BY_RECORDS)(t, hudi)
    return None


def upsert_by_records(t: ServicedTable, _: Hudi) -> bool | None:
    """We find rows by the record index that Hudi has continued."""
    if not has_record_index(t):
        return False
    keys = t.alive()
    rows = [*t.rows(keys[::2], 450), *t.rows(t.new(3), 450)]
    given = {**t.case.our_options, **BY_RECORDS}
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
    for column in (c for c in FILTERED if c in t.columns.names):
        known = sorted(row[column] for row in rows if row[column] is not None)
        if not known:
            continue
        value = known[len(known) // 3]
        literal = f"'{value}'" if isinstance(value, str) else str(value)
        expected = _identities(t, (r for r in rows if r[column] is not None and r[column] <= value))
        where = f"{column} <= {literal}"
        ours = t.open().scan(where=where).to_arrow().to_pylist()
        t.findings.append(Finding(f"lakewright, {column}", expected, _identities(t, ours)))
        plain = _by_sql(t, hudi, f"select * from {name} where {where}", skipping=False)
        if isinstance(plain, pa.Table):  # what it cannot read at all is not the question here
            theirs = _by_sql(t, hudi, f"select * from {name} where {where}", skipping=True)
            t.findings.append(Finding(f"{hudi.version}, {column}", expected, theirs))


def _by_sql(t: ServicedTable, hudi: Hudi, query: str, *, skipping: bool) -> pa.Table | str:
    """What Hudi answers, with data skipping or without the metadata table."""
    for option in SKIPPING:
        hudi.query(f"set {option}={str(skipping).lower()}")
    try:
        return _identities(t, hudi.query(query))
    except HudiRefusedError as refused:
        return str(refused)


def _identities(t: ServicedTable, rows: Any) -> pa.Table:
    names = t.case.key_fields
    return pa.table({"key": sorted(str([row[name] for name in names]) for row in rows)})


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
