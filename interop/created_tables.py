"""Tables created by lakewright, gone on with by real Hudi: the proof of a table's creation.

    python -m interop.created_tables [--only 'v8_*']

For each case lakewright creates an empty table, Hudi reads it (no rows), inserts rows and updates
some of them with no more options than any writer gives, taking keys, partitions and merge rules
from the table. Then lakewright reads the rows that were written, and the properties are what they
were. Version 6 is gone on with by Hudi 0.15.0, version 8 by Hudi 1.0.2.

Ends with a line `N passed, M failed` and status 1 if anything failed.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

import lakewright as lw
from interop.hudi import Hudi, HudiGoneError, HudiRefusedError
from interop.options import ALWAYS
from lakewright.engine.new_table import NewTable
from lakewright.engine.table_creation import create_table
from lakewright.runtime.clock import SystemClock
from lakewright.runtime.random import SystemRandom
from lakewright.storage.resolve import open_storage

DIALECTS = {6: "0.15.0", 8: "1.0.2"}
DDL = "id string, sub int, region string, day string, at_ms bigint, ts bigint, note string"
SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("sub", pa.int32()),
        ("region", pa.string()),
        ("day", pa.string()),
        ("at_ms", pa.int64()),
        ("ts", pa.int64()),
        ("note", pa.string()),
    ]
)
TIMES = {
    "timestamp.type": "EPOCHMILLISECONDS",
    "output.dateformat": "yyyy/MM/dd",
    "timezone": "UTC",
}
TEXTS = {
    "timestamp.type": "DATE_STRING",
    "input.dateformat": "yyyy-MM-dd",
    "output.dateformat": "yyyyMMdd",
    "timezone": "UTC",
}


@dataclass(frozen=True)
class Created:
    """One way to create a table; `options` are what Hudi cannot take from a table of its kind."""

    kind: str
    spec: dict[str, Any]
    options: dict[str, str] = field(default_factory=dict)


CASES = (
    Created("simple", {"key_fields": ("id",), "partition_fields": ("region",)}),
    Created(
        "complex_hive",
        {
            "key_fields": ("id", "sub"),
            "partition_fields": ("region", "day"),
            "hive_style": True,
            "url_encode": True,
        },
    ),
    Created("nonpartitioned", {"key_fields": ("id",), "merge_mode": "COMMIT_TIME_ORDERING"}),
    Created(
        "timestamp",
        {
            "key_fields": ("id",),
            "partition_fields": ("at_ms",),
            "key_generator": "TIMESTAMP",
            "time_settings": TIMES,
        },
    ),
    Created(
        "custom",
        {
            "key_fields": ("id", "sub"),
            "partition_fields": ("region:SIMPLE", "day:TIMESTAMP"),
            "time_settings": TEXTS,
        },
        {
            "hoodie.datasource.write.partitionpath.field": "region:SIMPLE,day:TIMESTAMP",
            **{f"hoodie.keygen.timebased.{name}": value for name, value in TEXTS.items()},
        },
    ),
    Created("virtual_keys", {"key_fields": ("id",), "populate_meta_fields": False}),
)


def rows(keys: Sequence[int], generation: int) -> list[dict[str, Any]]:
    """Rows of some keys; each generation is later than the one before."""
    return [
        {
            "id": f"k{i:02d}",
            "sub": i % 3,
            "region": ("north", "a b/c")[i % 2] if i % 5 else "x=y",
            "day": f"2024-01-{i % 3 + 1:02d}",
            "at_ms": 1_705_000_000_000 + i % 3 * 86_400_000,
            "ts": 100 + generation,
            "note": f"note {i} {generation}",
        }
        for i in keys
    ]


def name_of(version: int, kind: str, case: Created) -> str:
    """What a table is called."""
    return f"v{version}_{kind}_{case.kind}"


def prove(
    hudi: Hudi, table: Path, version: int, kind: Literal["cow", "mor"], case: Created
) -> None:
    """Create one table and let Hudi go on; raises `AssertionError` where they disagree."""
    name = name_of(version, kind, case)
    ordered: dict[str, Any] = {"ordering_fields": ("ts",), **case.spec}
    spec = NewTable(name=name, schema=SCHEMA, type=kind, version=version, **ordered)
    created = create_table(
        open_storage(table), spec, clock=SystemClock(), random=SystemRandom()
    ).values
    assert hudi.read(table, table.parent / f"{name}.parquet", {}) == 0, "Hudi sees rows"
    options = {**ALWAYS, "hoodie.table.name": name, "hoodie.metadata.enable": "false"}
    if version == min(DIALECTS) and not hudi.version.startswith("0."):
        options["hoodie.write.auto.upgrade"] = "false"
    first, second = rows(range(10), 0), rows(range(0, 10, 3), 1)
    writes = [("insert", first), ("upsert", second)]
    hudi.steps(
        table,
        name,
        [
            {
                "do": "write",
                "operation": o,
                "schema": DDL,
                "rows": r,
                "options": options | case.options,
            }
            for o, r in writes
        ],
    )
    found = lw.Table.open(table).scan(columns=SCHEMA.names).to_arrow().to_pylist()
    wanted = {row["id"]: row for row in [*first, *second]}
    assert sorted(found, key=lambda r: r["id"]) == [wanted[i] for i in sorted(wanted)], found
    after = lw.Table.open(table).properties.values
    changed = {k: (v, after.get(k)) for k, v in created.items() if after.get(k) != v}
    assert not changed, changed
    added = set(after) - set(created)
    assert not added, added


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; its exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default="*", help="names of cases, by pattern")
    only = parser.parse_args(arguments).only
    work = Path(tempfile.mkdtemp(prefix="created-"))
    passed = failed = 0
    types: tuple[Literal["cow", "mor"], ...] = ("cow", "mor")
    for version, dialect in DIALECTS.items():
        with Hudi(dialect) as hudi:
            for kind in types:
                for case in CASES:
                    name = name_of(version, kind, case)
                    if not fnmatchcase(name, only):
                        continue
                    try:
                        prove(hudi, work / name, version, kind, case)
                        passed += 1
                        print(f"{name}: Hudi {dialect} goes on", flush=True)
                    except (
                        AssertionError,
                        HudiRefusedError,
                        HudiGoneError,
                        lw.LakewrightError,
                    ) as e:
                        failed += 1
                        print(f"{name}: {type(e).__name__} {e}", flush=True)
    shutil.rmtree(work)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
