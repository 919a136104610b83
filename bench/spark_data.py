"""Tables for the Spark benchmarks: copy-on-write from the rows of `bench.data`, and many files."""

from __future__ import annotations

import io
import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from bench.data import BASE_INSTANT, CACHE, META, MorTable, build
from lakewright.codec.avro.arrow_types import from_arrow
from lakewright.codec.avro.schema import to_json


def build_cow(spec: MorTable) -> Path:
    """The base files of a merge-on-read table as a copy-on-write table; its path."""
    source = build(spec)
    path = source.with_name(source.name.replace("mor-", "cow-"))
    hoodie = path / ".hoodie"
    if (hoodie / "hoodie.properties").exists():
        return path
    (hoodie / "archived").mkdir(parents=True, exist_ok=True)
    for file in source.glob("*.parquet"):
        if not (path / file.name).exists():
            os.link(file, path / file.name)
    shutil.copy(source / ".hoodie_partition_metadata", path)
    _timeline(hoodie, (source / ".hoodie" / f"{BASE_INSTANT}.deltacommit").read_text())
    properties = (source / ".hoodie" / "hoodie.properties").read_text()
    _finish(hoodie, properties.replace("MERGE_ON_READ", "COPY_ON_WRITE"))
    return path


@dataclass(frozen=True)
class ManyFiles:
    """A copy-on-write table of tiny files, to measure planning."""

    partitions: int = 1000
    files_per_partition: int = 10
    rows_per_file: int = 5

    @property
    def path(self) -> Path:
        """Where it is cached."""
        return CACHE / f"many-{self.partitions}-{self.files_per_partition}-{self.rows_per_file}"


def build_many(spec: ManyFiles) -> Path:
    """Make the table once; its path. The files of a partition hold the same rows."""
    hoodie = spec.path / ".hoodie"
    if (hoodie / "hoodie.properties").exists():
        return spec.path
    (hoodie / "archived").mkdir(parents=True, exist_ok=True)
    stats: dict[str, list[dict[str, object]]] = {}
    schema = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("region", pa.string())])
    for p in range(spec.partitions):
        partition = f"region={p:05d}"
        folder = spec.path / partition
        folder.mkdir(exist_ok=True)
        (folder / ".hoodie_partition_metadata").write_text(
            f"commitTime={BASE_INSTANT}\npartitionDepth=1\n"
        )
        data = _tiny(spec, p, partition, schema)
        for f in range(spec.files_per_partition):
            file_id = f"{p:08d}-{f:04d}-2222-3333-444444444444-0"
            name = f"{file_id}_{f}-1-{f}_{BASE_INSTANT}.parquet"
            (folder / name).write_bytes(data)
            entry = {"fileId": file_id, "path": f"{partition}/{name}", "prevCommit": "null"}
            sizes = {"fileSizeInBytes": len(data), "totalWriteBytes": len(data)}
            rows = {"numWrites": spec.rows_per_file, "numInserts": spec.rows_per_file}
            stats.setdefault(partition, []).append(
                {**entry, **sizes, **rows, "partitionPath": partition}
            )
    avro = to_json(from_arrow(schema, name="many_record", namespace="hoodie.many"))
    body = {
        "partitionToWriteStats": stats,
        "compacted": False,
        "extraMetadata": {"schema": avro},
        "operationType": "BULK_INSERT",
    }
    _timeline(hoodie, json.dumps(body))
    like = (build(MorTable(rows=1000, updates=100, inserts=10, groups=1)) / ".hoodie") / (
        "hoodie.properties"
    )
    text = like.read_text().replace("MERGE_ON_READ", "COPY_ON_WRITE")
    text = text.replace("NonpartitionedKeyGenerator", "SimpleKeyGenerator")
    extra = "hoodie.table.partition.fields=region\n"
    extra += "hoodie.datasource.write.hive_style_partitioning=true\n"
    _finish(hoodie, text + extra)
    return spec.path


def _tiny(spec: ManyFiles, p: int, partition: str, schema: pa.Schema) -> bytes:
    n = spec.rows_per_file
    keys = [f"k{p}-{i}" for i in range(n)]
    sequence = [f"{BASE_INSTANT}_{p}_{i}" for i in range(n)]
    meta = [[BASE_INSTANT] * n, sequence, keys, [partition] * n, [f"f{p}"] * n]
    columns = [*meta, keys, list(range(n)), [f"{p:05d}"] * n]
    names = pa.schema([*(pa.field(name, pa.string()) for name in META), *schema])
    arrays = [pa.array(c, f.type) for c, f in zip(columns, names, strict=True)]
    sink = io.BytesIO()
    pq.write_table(pa.table(arrays, schema=names), sink, compression="snappy")
    return sink.getvalue()


def _timeline(hoodie: Path, commit: str) -> None:
    (hoodie / f"{BASE_INSTANT}.commit.requested").touch()
    (hoodie / f"{BASE_INSTANT}.inflight").touch()
    (hoodie / f"{BASE_INSTANT}.commit").write_text(commit)


def _finish(hoodie: Path, properties: str) -> None:
    """The properties come last: where they are, the table is whole."""
    partial = hoodie / "partial"
    partial.write_text(properties)
    partial.rename(hoodie / "hoodie.properties")
