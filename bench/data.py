"""Seeded data for the benchmarks: the `events20` rows and merge-on-read tables made of them.

The tables are written byte by byte in the layout of table version 6, so that every reader of that
version (ours, the Rust one, Hudi itself) can be measured on the same bytes.
"""

from __future__ import annotations

import json
import shutil
import time
import zlib
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakewright.codec.avro.arrow_types import from_arrow
from lakewright.codec.avro.columns import encode_records
from lakewright.codec.avro.schema import to_json
from lakewright.format.log_block import BlockType, HeaderKey, encode_block
from lakewright.format.log_content import encode_avro_content

CACHE = Path(".cache/bench")
BASE_INSTANT = "20260101000000000"
FIRST_DELTA = 20260101000100000
MODEL = "org.apache.hudi.common.model"
META = (
    "_hoodie_commit_time",
    "_hoodie_commit_seqno",
    "_hoodie_record_key",
    "_hoodie_partition_path",
    "_hoodie_file_name",
)


def cached(name: str, fill: Callable[[Path], None]) -> Path:
    """A folder of the cache; filled if it is not there."""
    path = (CACHE / name).resolve()
    if not path.exists():
        partial = path.with_suffix(".partial")
        shutil.rmtree(partial, ignore_errors=True)
        fill(partial)
        partial.rename(path)
    return path


@dataclass(frozen=True)
class MorTable:
    """A merge-on-read table to build: sizes and shape of the logs."""

    rows: int = 2_000_000
    updates: int = 340_000
    inserts: int = 60_000
    groups: int = 4
    logs_per_slice: int = 1
    blocks_per_log: int = 1
    row_group_rows: int = 250_000
    codec: str = "snappy"
    seed: int = 46

    @property
    def path(self) -> Path:
        """Where it is cached."""
        text = json.dumps(asdict(self), sort_keys=True)
        return CACHE / f"mor-{zlib.crc32(text.encode()):08x}"


def uuid_keys(rng: np.random.Generator, n: int) -> pa.Array:
    """Random keys that look like UUIDs."""
    digits = np.frombuffer(rng.bytes(16 * n).hex().encode(), np.uint8).reshape(n, 32)
    text = np.full((n, 36), ord("-"), np.uint8)
    for begin, end, at in ((0, 8, 0), (8, 12, 9), (12, 16, 14), (16, 20, 19), (20, 32, 24)):
        text[:, at : at + end - begin] = digits[:, begin:end]
    offsets = np.arange(0, 36 * (n + 1), 36, dtype=np.int32)
    return pa.Array.from_buffers(pa.string(), n, [None, pa.py_buffer(offsets), pa.py_buffer(text)])


def _nulls(rng: np.random.Generator, values: pa.Array, share: float) -> pa.Array:
    return pc.if_else(pa.array(rng.random(len(values)) >= share), values, None)


def _words(rng: np.random.Generator, n: int, distinct: int, prefix: str) -> pa.Array:
    return _vocabulary(distinct, prefix).take(pa.array(rng.integers(0, distinct, n)))


@cache
def _vocabulary(distinct: int, prefix: str) -> pa.Array:
    return pa.array([f"{prefix}{i:06d}" for i in range(distinct)])


def events20(rng: np.random.Generator, keys: pa.Array, ordering: np.ndarray) -> pa.Table:
    """Twenty mixed columns for the given keys and ordering values."""
    n = len(keys)
    micros = 1_700_000_000_000_000 + rng.integers(0, 10**14, n)
    columns: dict[str, pa.Array] = {
        "id": keys,
        "ts": pa.array(ordering, pa.int64()),
        "source": pa.array(np.full(n, "app")),
        "i1": _nulls(rng, pa.array(rng.integers(0, 100, n), pa.int32()), 0.02),
        "i2": pa.array(rng.integers(-(2**31), 2**31, n), pa.int32()),
        "l1": pa.array(rng.integers(0, 1000, n)),
        "l2": _nulls(rng, pa.array(rng.integers(0, 2**40, n)), 0.05),
        "l3": pa.array(rng.integers(-(2**62), 2**62, n)),
        "d1": pa.array(rng.random(n)),
        "d2": _nulls(rng, pa.array(rng.normal(size=n)), 0.1),
        "d3": pa.array(np.round(rng.random(n) * 100, 2)),
        "f1": pa.array(rng.random(n).astype(np.float32)),
        "b1": pa.array(rng.random(n) < 0.5),
        "b2": _nulls(rng, pa.array(rng.random(n) < 0.1), 0.02),
        "s1": _words(rng, n, 10, "city-"),
        "s2": _nulls(rng, _words(rng, n, 1000, "rider-"), 0.05),
        "s3": _words(rng, n, 100_000, "driver-"),
        "s4": _nulls(rng, _words(rng, n, 900_000, "text-of-20-ch-"), 0.02),
        "at": pa.array(micros, pa.timestamp("us", "UTC")),
        "day": _nulls(
            rng, pa.array(rng.integers(0, 20000, n).astype(np.int32)).cast(pa.date32()), 0.02
        ),
    }
    return pa.table(columns)


def _with_meta(table: pa.Table, instant: str, file_name: str, first: int) -> pa.Table:
    n = table.num_rows
    sequence = pc.binary_join_element_wise(
        pa.scalar(instant), "0", pa.array(np.arange(first, first + n)).cast(pa.string()), "_"
    )
    meta = [
        pa.array(np.full(n, instant)),
        sequence,
        table["id"].combine_chunks(),
        pa.array(np.full(n, "")),
        pa.array(np.full(n, file_name)),
    ]
    names = [*META, *table.column_names]
    return pa.table([*meta, *table.columns], names=names)


def build(spec: MorTable) -> Path:
    """Make the table once; its path."""
    if (spec.path / ".hoodie" / "hoodie.properties").exists():
        return spec.path
    began = time.perf_counter()
    rng = np.random.default_rng(spec.seed)
    (spec.path / ".hoodie" / "archived").mkdir(parents=True, exist_ok=True)
    keys = uuid_keys(rng, spec.rows + spec.inserts)
    group_of = rng.integers(0, spec.groups, len(keys))
    ordering = rng.integers(0, 10**9, spec.rows)
    updated = rng.integers(0, spec.rows, spec.updates)
    stale = rng.random(spec.updates) < 0.1
    moved = ordering[updated] + np.where(stale, -1, 1) * rng.integers(1, 10**6, spec.updates)
    incoming = np.concatenate([updated, np.arange(spec.rows, spec.rows + spec.inserts)])
    incoming_ts = np.concatenate([moved, rng.integers(0, 10**9, spec.inserts)])
    shuffle = rng.permutation(len(incoming))
    incoming, incoming_ts = incoming[shuffle], incoming_ts[shuffle]
    stats: dict[str, list[dict[str, object]]] = {"base": [], "log": []}
    for g in range(spec.groups):
        mine = np.flatnonzero(group_of[: spec.rows] == g)
        rows = events20(rng, keys.take(pa.array(mine)), ordering[mine])
        log_mine = np.flatnonzero(group_of[incoming] == g)
        log = events20(rng, keys.take(pa.array(incoming[log_mine])), incoming_ts[log_mine])
        _write_group(spec, g, rows, log, stats)
    _write_timeline(spec, rows.schema, stats)
    print(f"built {spec.path} in {time.perf_counter() - began:.1f} s")
    return spec.path


def _write_group(spec: MorTable, g: int, rows: pa.Table, log: pa.Table, stats: dict) -> None:
    file_id = f"{g:08d}-1111-2222-3333-444444444444-0"
    name = f"{file_id}_{g}-1-{g}_{BASE_INSTANT}.parquet"
    pq.write_table(
        _with_meta(rows, BASE_INSTANT, name, 0),
        spec.path / name,
        compression=spec.codec,
        row_group_size=spec.row_group_rows,
        use_dictionary=[
            "_hoodie_commit_time",
            "_hoodie_partition_path",
            "_hoodie_file_name",
            "source",
            "s1",
            "s2",
            "i1",
            "l1",
        ],
    )
    stats["base"].append(
        {
            "fileId": file_id,
            "path": name,
            "prevCommit": "null",
            "numWrites": rows.num_rows,
            "numInserts": rows.num_rows,
        }
    )
    per_log = -(-log.num_rows // spec.logs_per_slice)
    for v in range(spec.logs_per_slice):
        part = log.slice(v * per_log, per_log)
        instant = str(FIRST_DELTA + 1000 * v)
        log_name = f".{file_id}_{BASE_INSTANT}.log.{v + 1}_{g}-2-{g}"
        (spec.path / log_name).write_bytes(_log_bytes(spec, part, instant, file_id))
        stats["log"].append(
            {
                "instant": instant,
                "fileId": file_id,
                "path": log_name,
                "prevCommit": BASE_INSTANT,
                "numWrites": part.num_rows,
            }
        )


def _log_bytes(spec: MorTable, part: pa.Table, instant: str, file_id: str) -> bytes:
    rows = _with_meta(part, instant, file_id, 0).combine_chunks()
    schema = from_arrow(rows.schema, name="events_record", namespace="hoodie.events")
    per_block = max(1, -(-rows.num_rows // spec.blocks_per_log))
    out = []
    for start in range(0, rows.num_rows, per_block):
        batch = rows.slice(start, per_block).combine_chunks().to_batches()[0]
        headers = {HeaderKey.INSTANT_TIME: instant, HeaderKey.SCHEMA: to_json(schema)}
        out.append(
            encode_block(
                BlockType.AVRO_DATA, headers, encode_avro_content(*encode_records(batch, schema))
            )
        )
    return b"".join(out)


def _write_timeline(spec: MorTable, schema: pa.Schema, stats: dict) -> None:
    hoodie = spec.path / ".hoodie"
    avro = to_json(from_arrow(schema, name="events_record", namespace="hoodie.events"))

    def commit(instant: str, entries: list[dict[str, object]], operation: str) -> None:
        for e in entries:
            size = (spec.path / str(e["path"])).stat().st_size
            e |= {"partitionPath": "", "fileSizeInBytes": size, "totalWriteBytes": size}
        body = {
            "partitionToWriteStats": {"": entries},
            "compacted": False,
            "extraMetadata": {"schema": avro},
            "operationType": operation,
        }
        (hoodie / f"{instant}.deltacommit.requested").touch()
        (hoodie / f"{instant}.deltacommit.inflight").touch()
        (hoodie / f"{instant}.deltacommit").write_text(json.dumps(body))

    commit(BASE_INSTANT, stats["base"], "BULK_INSERT")
    for instant in sorted({str(e["instant"]) for e in stats["log"]}):
        entries = [
            {k: v for k, v in e.items() if k != "instant"}
            for e in stats["log"]
            if e["instant"] == instant
        ]
        commit(instant, entries, "UPSERT")
    (spec.path / ".hoodie_partition_metadata").write_text(
        "#partition metadata\n#Thu Jan 01 00:00:00 UTC 2026\n"
        f"commitTime={BASE_INSTANT}\npartitionDepth=0\n"
    )
    properties = {
        "hoodie.table.name": "events",
        "hoodie.table.type": "MERGE_ON_READ",
        "hoodie.table.version": "6",
        "hoodie.timeline.layout.version": "1",
        "hoodie.archivelog.folder": "archived",
        "hoodie.table.checksum": str(zlib.crc32(b".events")),
        "hoodie.table.recordkey.fields": "id",
        "hoodie.table.precombine.field": "ts",
        "hoodie.table.base.file.format": "PARQUET",
        "hoodie.table.timeline.timezone": "UTC",
        "hoodie.table.keygenerator.class": "org.apache.hudi.keygen.NonpartitionedKeyGenerator",
        "hoodie.compaction.payload.class": f"{MODEL}.DefaultHoodieRecordPayload",
        "hoodie.compaction.record.merger.strategy": "eeb8d96f-b1e4-49fd-bbf8-28ac514178e5",
        "hoodie.populate.meta.fields": "true",
        "hoodie.datasource.write.drop.partition.columns": "false",
    }
    text = "#bench\n" + "".join(f"{k}={v}\n" for k, v in properties.items())
    (hoodie / "hoodie.properties").write_text(text)
