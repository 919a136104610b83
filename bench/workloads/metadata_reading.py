"""Planning a selective query, by the metadata table or by folders and footers; looking keys up."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from bench.metadata_tables import SEED, KeyIndex, ManyFiles
from lakewright.codec.parquet import ParquetFooter
from lakewright.engine.options import ReadOptions
from lakewright.expr import ColumnRange, bind, can_match, parse
from lakewright.metadata.table import MetadataTable
from lakewright.runtime.spawn import ThreadSpawner
from lakewright.storage.local import LocalStorage
from lakewright.table import Table


class Counting(LocalStorage):
    """Counts what an object store would be asked."""

    def __init__(self, base: str, requests: Counter[str] | None = None) -> None:
        super().__init__(base)
        self.requests: Counter[str] = Counter() if requests is None else requests

    def child(self, path: str) -> Counting:
        """Counts together with this one."""
        return Counting(super().child(path).uri, self.requests)

    def read(self, path: str) -> bytes:
        """One request."""
        self.requests["read"] += 1
        return super().read(path)

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        """One request."""
        self.requests["read"] += 1
        return super().read_range(path, offset, length)

    def open_input(self, path: str) -> Any:
        """At least one request, for the footer."""
        self.requests["read"] += 1
        return super().open_input(path)

    def list(self, path: str = "") -> Any:
        """One request."""
        self.requests["list"] += 1
        return super().list(path)

    def names(self, path: str = "") -> Any:
        """One request."""
        self.requests["list"] += 1
        return super().names(path)


def by_metadata(storage: LocalStorage, spec: ManyFiles) -> list[str]:
    """The files that a query has to read, planned by the metadata table."""
    plan = Table(storage).scan(where=spec.where).plan()
    assert plan.listing == "metadata table"
    return [t.slice_.base.path for t in plan.tasks if t.slice_.base is not None]


def by_footers(storage: LocalStorage, spec: ManyFiles) -> list[str]:
    """The same, by listing folders and by the statistics in every footer."""
    options = ReadOptions(use_metadata_table=False)
    scan = Table(storage).scan(where=spec.where, options=options)
    where = bind(parse(spec.where), scan.snapshot.schema.arrow)
    kept = []
    for task in scan.plan().tasks:
        base = task.slice_.base
        assert base is not None
        with storage.open_input(base.path) as source:
            footer = ParquetFooter.read(source, base.path)
        if any(can_match(where, _ranges(group)) for group in footer.row_groups):
            kept.append(base.path)
    return kept


def _ranges(group: Any) -> Callable[[str], ColumnRange]:
    def of(column: str) -> ColumnRange:
        told = group.statistics(column)
        return ColumnRange(told.minimum, told.maximum, told.null_count, told.row_count)

    return of


def _planning(how: Callable[[LocalStorage, ManyFiles], list[str]]) -> Any:
    def prepare(params: dict[str, Any]) -> Callable[[], object]:
        spec = ManyFiles(**params["table"])
        storage = LocalStorage(str(spec.table()))
        return lambda: how(storage, spec)

    return prepare


def asked_keys(spec: KeyIndex, count: int) -> pa.Table:
    """Random keys of an index, with their places."""
    stored = spec.located()
    chosen = np.random.default_rng(SEED).choice(spec.keys, count, replace=False)
    return stored.take(pa.array(chosen)).combine_chunks()


def look_up(params: dict[str, Any]) -> Callable[[], object]:
    """Open the metadata table and find keys in its record index."""
    spec = KeyIndex(**params["index"])
    expected = asked_keys(spec, params["keys"])
    asked = expected["key"].combine_chunks()
    table = Table.open(spec.table())
    storage = LocalStorage(str(spec.table()))
    properties, timeline = table.properties, table.timeline

    def call() -> object:
        metadata = MetadataTable.open(storage, properties, timeline)
        assert metadata is not None
        found = metadata.record_index(asked, spawner=ThreadSpawner())
        assert found["file_id"].combine_chunks() == expected["file_id"].combine_chunks()
        return [str(found.num_rows)]

    return call


def look_up_warm(params: dict[str, Any]) -> Callable[[], object]:
    """The same, after some rounds that do not count."""
    call = look_up(params)
    for _ in range(params["warm_up"]):
        call()
    return call


CONTENDERS = {
    "metadata": _planning(by_metadata),
    "footers": _planning(by_footers),
    "look_up": look_up,
    "look_up_warm": look_up_warm,
}


def check(result: Any) -> str:
    """What the contenders must agree on."""
    return hashlib.md5("\n".join(sorted(result)).encode(), usedforsecurity=False).hexdigest()
