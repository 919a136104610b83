"""The few tables that are committed, so that the quick tests have real ones without any Hudi.

They cover what is hard to make by hand: open plans, partial updates, groups of log files only,
archived timelines of both layouts, change data, changed columns, an old payload class, and a
metadata table with statistics and record index.
"""

from __future__ import annotations

from dataclasses import replace

from interop.cases import Case, Traits
from interop.corpus import make
from interop.special_cases import change_data, partial_updates, payloads, schema_on_read


def committed_cases() -> list[Case]:
    """The cases, each with a note on what it is for."""
    picked = {case.name: case for case in _candidates()}
    return [replace(picked[name], note=note) for name, note in NOTES.items()]


NOTES = {
    "v6_mor_pending_compaction_simple": "open compaction plan, log files on both sides of it",
    "v8_mor_pending_compaction_complex": "open compaction plan, log files on both sides of it",
    "v8_mor_partial_update": "log blocks that hold only some columns",
    "v6_mor_updates_bucket": "bucket index: groups of log files without a base file",
    "v6_cow_archived_simple": "archived timeline of layout 1, cleaned files",
    "v8_mor_archived_simple": "archived timeline of layout 2, cleaned files",
    "v8_cow_change_data": "change data beside the base files",
    "v9_mor_schema_change_simple": "promoted and added columns",
    "v6_mor_schema_on_read": "renamed, dropped, widened, added columns by id",
    "v6_mor_payload_partial_payload": "payload class that fills nulls",
    "v9_mor_metadata_indexes": "metadata table with column statistics and record index",
}


def _candidates() -> list[Case]:
    plain = [
        Traits(6, "mor", "pending_compaction"),
        Traits(8, "mor", "pending_compaction", keys="complex", paths="hive", blocks="parquet"),
        Traits(6, "cow", "archived"),
        Traits(8, "mor", "archived"),
        Traits(9, "mor", "schema_change", columns="nested"),
    ]
    bucket = make(Traits(6, "mor", "schema_change", index="bucket", columns="flat"))
    indexed = make(Traits(9, "mor", "compaction", index="record", metadata="stats"))
    return [
        *(make(traits) for traits in plain),
        replace(bucket, name="v6_mor_updates_bucket"),
        replace(indexed, name="v9_mor_metadata_indexes"),
        *partial_updates(),
        *change_data(),
        *schema_on_read(),
        *payloads(),
    ]
