"""Keyed writes by bloom filters of the metadata table: fewer files are opened, nothing else."""

from __future__ import annotations

import pytest

from lakewright.engine.keyed import stored_filters
from lakewright.errors import MetadataTableError
from lakewright.metadata.file_groups import BLOOM_FILTERS
from lakewright.metadata.table import MetadataTable
from tests.engine.keyed.tables import QuickTable, Shape, asked_files, new_table, rows

OPTIONS = {
    "hoodie.metadata.enable": "true",
    "hoodie.metadata.index.bloom.filter.enable": "true",
    "hoodie.bloom.index.use.metadata": "true",
}
SHAPES = [
    Shape(type=type_, version=version, index=index)
    for version in (6, 8)
    for type_ in ("cow", "mor")
    for index in ("BLOOM", "GLOBAL_BLOOM")
]
EACH = pytest.mark.parametrize(
    "shape", SHAPES, ids=lambda s: f"v{s.version}-{s.type}-{s.index.lower()}"
)


def filled(shape: Shape) -> QuickTable:
    """Three files in one partition, one in another."""
    table = new_table(shape)
    for part in "abc":
        given = [(f"{part}{n}", "x", 1, n) for n in range(4)]
        small = {"hoodie.parquet.small.file.limit": "0"}
        table.upsert(rows(shape, given), options={**shape.options, **OPTIONS, **small})
    table.upsert(rows(shape, [("d0", "y", 1, 1)]), options={**shape.options, **OPTIONS})
    assert BLOOM_FILTERS in table.properties.metadata_partitions
    return table


@EACH
def test_only_files_whose_filter_may_hold_a_key_are_opened(
    shape: Shape, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = filled(shape)
    opened = asked_files(monkeypatch)
    given = rows(shape, [("b1", "x", 2, 9), ("new", "x", 2, 9)])
    done = table.upsert(given, options={**shape.options, **OPTIONS})
    assert (done.inserted, done.updated) == (1, 1)
    assert len(opened) == 1
    found = table.scan(columns=["id"]).to_arrow()["id"].to_pylist()
    assert len(found) == len({*found}) == 14


@EACH
def test_an_index_that_cannot_be_read_excludes_nothing_and_that_is_told(
    shape: Shape, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    table = filled(shape)

    def damaged(*_: object) -> object:
        raise MetadataTableError("damaged", hint="rebuild it")

    monkeypatch.setattr(MetadataTable, "bloom_filters", damaged)
    done = table.upsert(rows(shape, [("b1", "x", 2, 9)]), options={**shape.options, **OPTIONS})
    assert (done.inserted, done.updated) == (0, 1)
    assert "bloom filters of the metadata table not used: damaged" in caplog.text


def test_a_file_without_a_filter_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    table = filled(SHAPES[0])
    monkeypatch.setattr(stored_filters.MetadataTable, "bloom_filters", lambda *_: {})
    given = rows(SHAPES[0], [("b1", "x", 2, 9)])
    done = table.upsert(given, options={**SHAPES[0].options, **OPTIONS})
    assert (done.inserted, done.updated) == (0, 1)
