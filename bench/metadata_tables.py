"""Tables that reading through the metadata table is measured on, each made once.

`ManyFiles` is a copy-on-write table of many small base files, whose metadata table has their
listing and their statistics. `KeyIndex` has a record index that is much larger than itself.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench.data import cached
from lakewright import Table
from lakewright.format.settling import YOUNG_MS
from lakewright.format.version import TableVersion
from lakewright.metadata.creation import NewIndex
from lakewright.metadata.file_groups import RECORD_INDEX
from lakewright.metadata.payloads import record_index_records
from lakewright.txn.metadata_creation import build_metadata_table

__all__ = ["KeyIndex", "ManyFiles"]

SEED = 11
VERSION = TableVersion.of(8)
SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("ts", pa.int64()),
        ("part", pa.string()),
        *((f"n{i}", pa.int64()) for i in range(4)),
        *((f"x{i}", pa.float64()) for i in range(4)),
        *((f"t{i}", pa.string()) for i in range(4)),
    ]
)
QUIET = {
    "hoodie.clean.automatic": "false",
    "hoodie.archive.automatic": "false",
    "hoodie.metadata.enable": "false",
}


@dataclass(frozen=True)
class ManyFiles:
    """Every commit adds one file to every partition; `ts` says of which commit a row is."""

    files: int = 5_000
    partitions: int = 50
    rows: int = 100
    """Of each file."""

    def table(self) -> Path:
        """Where it is, made if it is not there."""
        return cached(f"statistics-{self.files}-{self.partitions}-{self.rows}", self._fill)

    @property
    def where(self) -> str:
        """A filter that one commit's files can answer."""
        number = self.files // self.partitions // 2
        return f"ts >= {1000 * number} and ts < {1000 * number + self.rows}"

    def _fill(self, path: Path) -> None:
        table = Table.create(
            path, schema=SCHEMA, version=8, key=["id"], ordering=["ts"], partition=["part"]
        )
        for number in range(self.files // self.partitions):
            table.bulk_insert(self._rows(number), options=QUIET)
        table.metadata.rebuild("column_stats")
        # Readers look twice at instants of the last minute, which is not what is measured.
        time.sleep(YOUNG_MS / 1000)

    def _rows(self, number: int) -> pa.Table:
        rng = np.random.default_rng([SEED, number])
        count = self.rows * self.partitions
        owner = np.repeat(np.arange(self.partitions), self.rows)
        ids = np.char.add(f"{number:05d}-", np.arange(count).astype(str))
        columns = [ids, 1000 * number + np.arange(count) % self.rows]
        columns.append(np.char.add("p", np.char.zfill(owner.astype(str), 3)))
        columns += [rng.integers(0, 10**9, count) for _ in range(4)]
        columns += [rng.random(count) for _ in range(4)]
        columns += [rng.integers(0, 10**6, count).astype(str) for _ in range(4)]
        arrays = [pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)]
        return pa.table(arrays, schema=SCHEMA)


@dataclass(frozen=True)
class KeyIndex:
    """A table of one row, whose record index has many random keys."""

    keys: int = 1_000_000
    groups: int = 10
    places: int = 100
    """File groups that the index names."""

    def table(self) -> Path:
        """Where it is, made if it is not there."""
        return cached(f"record-index-{self.keys}-{self.groups}", self._fill)

    def located(self) -> pa.Table:
        """The keys and their places."""
        return pq.read_table(self.table() / "keys.parquet")

    def _fill(self, path: Path) -> None:
        schema = pa.schema([("id", pa.string())])
        table = Table.create(path, schema=schema, version=8, key=["id"])
        table.append(pa.table({"id": ["one"]}), options=QUIET)
        located = self._located()
        pq.write_table(located, path / "keys.parquet")
        records = record_index_records(located, version=VERSION)
        index = NewIndex.of(RECORD_INDEX, self.groups, records)
        build_metadata_table(table.opened(None)[0], lambda *_: [index])

    def _located(self) -> pa.Table:
        rng = np.random.default_rng([SEED, self.keys])
        raw = rng.integers(0, 256, (self.keys, 16), dtype=np.uint8).tobytes().hex()
        keys = [str(UUID(raw[i : i + 32])) for i in range(0, len(raw), 32)]
        ids = [f"{UUID(bytes=rng.bytes(16))}-0" for _ in range(self.places)]
        place = pa.array(rng.integers(0, self.places, self.keys))
        partitions = pa.array([f"p{n % 10}" for n in range(self.places)])
        return pa.table(
            {
                "key": pa.array(keys, pa.string()),
                "partition": partitions.take(place),
                "file_id": pa.array(ids).take(place),
                "instant_ms": pa.array(np.full(self.keys, 1_766_264_468_078)),
            }
        )
