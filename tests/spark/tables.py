"""Tables for the tests of Spark: real ones, and copy-on-write tables of version 6, written here."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from lakewright.codec.avro.arrow_types import from_arrow
from lakewright.codec.avro.schema import to_json
from lakewright.format.properties import checksum
from lakewright.format.table_schema import META_COLUMNS
from tests.corpus import committed_tables

ORDERS = "v6_mor_pending_compaction_simple"
"""Two slices without logs, three with; columns id, region, ts, name, amount and others."""

Files = Mapping[str, Sequence[pa.Table]]
"""Rows of new files, by partition."""


def real_table(name: str, into: Path) -> Path:
    """A committed table, unpacked."""
    return next(t for t in committed_tables() if t.name == name).unpack(into)


def cow_table(path: Path, commits: Mapping[str, Files], schema: pa.Schema) -> Path:
    """A table with one new file group per given file; `schema` is what the last commit says."""
    hoodie = path / ".hoodie"
    (hoodie / "archived").mkdir(parents=True)
    number = 0
    for instant, files in commits.items():
        stats: dict[str, list[dict[str, object]]] = {}
        for partition, tables in files.items():
            folder = path / partition
            folder.mkdir(parents=True, exist_ok=True)
            (folder / ".hoodie_partition_metadata").write_text(
                f"commitTime={instant}\npartitionDepth={partition.count('/') + bool(partition)}\n"
            )
            for rows in tables:
                file_id = f"{number:08d}-0000-0000-0000-000000000000-0"
                name = f"{file_id}_0-1-{number}_{instant}.parquet"
                pq.write_table(_with_meta(rows, instant, partition, name), folder / name)
                entry = {"fileId": file_id, "path": f"{partition}/{name}".lstrip("/")}
                stats.setdefault(partition, []).append({**entry, "numWrites": rows.num_rows})
                number += 1
        _commit(hoodie, instant, stats, schema)
    _properties(hoodie)
    return path


def _with_meta(rows: pa.Table, instant: str, partition: str, name: str) -> pa.Table:
    n = rows.num_rows
    keys = [f"{name[:8]}-{i}" for i in range(n)]
    sequence = [f"{instant}_0_{i}" for i in range(n)]
    meta = [[instant] * n, sequence, keys, [partition] * n, [name] * n]
    fields = [pa.field(column, pa.string()) for column in META_COLUMNS]
    arrays = [pa.array(values, pa.string()) for values in meta]
    return pa.Table.from_arrays([*arrays, *rows.columns], schema=pa.schema([*fields, *rows.schema]))


def _commit(hoodie: Path, instant: str, stats: Mapping[str, object], schema: pa.Schema) -> None:
    avro = to_json(from_arrow(schema, name="t_record", namespace="hoodie.t"))
    body = {
        "partitionToWriteStats": stats,
        "compacted": False,
        "extraMetadata": {"schema": avro},
        "operationType": "INSERT",
    }
    for state in ("commit.requested", "inflight"):
        (hoodie / f"{instant}.{state}").touch()
    (hoodie / f"{instant}.commit").write_text(json.dumps(body))


def _properties(hoodie: Path) -> None:
    properties = {
        "hoodie.table.name": "t",
        "hoodie.table.type": "COPY_ON_WRITE",
        "hoodie.table.version": "6",
        "hoodie.timeline.layout.version": "1",
        "hoodie.archivelog.folder": "archived",
        "hoodie.table.checksum": str(checksum("", "t")),
        "hoodie.table.recordkey.fields": "id",
        "hoodie.table.base.file.format": "PARQUET",
        "hoodie.table.timeline.timezone": "UTC",
        "hoodie.table.keygenerator.class": "org.apache.hudi.keygen.SimpleKeyGenerator",
        "hoodie.populate.meta.fields": "true",
    }
    text = "".join(f"{key}={value}\n" for key, value in properties.items())
    (hoodie / "hoodie.properties").write_text(text)
