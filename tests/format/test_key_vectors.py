"""Keys and paths against recorded answers of Java 17 and of Hudi's own key generators."""

from __future__ import annotations

import base64
from collections import defaultdict
from decimal import Decimal
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lakewright.format.java_text import (
    date_text,
    decimal_text,
    floating_text,
    sql_timestamp_text,
)
from lakewright.format.key_generator import KeyGeneratorType
from lakewright.format.keys import KeySpec, PartitionField, PartitionKind, record_keys
from lakewright.format.partition_paths import partition_paths
from lakewright.format.partition_values import escape

Vectors = dict[str, list[list[str]]]
TYPES = {"long": pa.int64(), "double": pa.float64(), "string": pa.string()}


@pytest.fixture(scope="module")
def vectors() -> Vectors:
    """Recorded lines by their first word (`interop/key_vectors.py` makes them)."""
    found: Vectors = defaultdict(list)
    text = Path(__file__).with_name("key_vectors.tsv").read_text()
    for line in text.rstrip("\n").split("\n"):
        kind, *rest = line.split("\t")
        found[kind].append(rest)
    return found


def _text(encoded: str) -> str | None:
    return None if encoded == "null" else base64.b64decode(encoded).decode()


def test_floating_point_numbers(vectors: Vectors) -> None:
    for kind, whole in (("double", np.int64), ("float", np.int32)):
        bits = np.array([int(row[0]) for row in vectors[kind]], whole)
        values = bits.view(np.float64 if kind == "double" else np.float32)
        assert floating_text(pa.array(values)).to_pylist() == [row[1] for row in vectors[kind]]


def test_decimals(vectors: Vectors) -> None:
    for unscaled, scale, text in vectors["decimal"]:
        digits = tuple(map(int, unscaled.lstrip("-")))
        value = Decimal((int(unscaled.startswith("-")), digits, -int(scale)))
        assert decimal_text(pa.array([value], pa.decimal256(70, int(scale))))[0].as_py() == text


def test_dates(vectors: Vectors) -> None:
    days = pa.array([int(row[0]) for row in vectors["date"]], pa.int32()).cast(pa.date32())
    assert date_text(days).to_pylist() == [row[1] for row in vectors["date"]]


def test_timestamps_as_text(vectors: Vectors) -> None:
    for zone, micros, text in vectors["timestamp"]:
        array = pa.array([int(micros)], pa.timestamp("us", "UTC"))
        assert sql_timestamp_text(array, zone=zone)[0].as_py() == text, (zone, micros)


def test_escaped_folders(vectors: Vectors) -> None:
    for text, escaped in vectors["escape"]:
        assert escape(_text(text)) == _text(escaped)


def test_composite_keys_and_hive_paths(vectors: Vectors) -> None:
    rows = vectors["key"]
    batch = pa.RecordBatch.from_pydict(
        {
            "a": pa.array([_text(row[0]) for row in rows], pa.string()),
            "b": pa.array([None if row[1] == "null" else float(row[1]) for row in rows]),
            "p": pa.array([_text(row[2]) for row in rows], pa.string()),
        }
    )
    fields = (PartitionField("p"),)
    spec = KeySpec(("a", "b"), fields, KeyGeneratorType.COMPLEX, hive_style=True, url_encode=True)
    assert record_keys(batch, spec).to_pylist() == [_text(row[3]) for row in rows]
    assert partition_paths(batch, spec).to_pylist() == [_text(row[4]) for row in rows]


def test_time_partitions(vectors: Vectors) -> None:
    wrong = []
    for told, kind, value, path in vectors["time"]:
        settings = dict(pair.split("=", 1) for pair in told.split(";"))
        fields = (PartitionField("t", PartitionKind.TIMESTAMP),)
        spec = KeySpec(
            ("t",),
            fields,
            KeyGeneratorType.TIMESTAMP,
            time_settings=MappingProxyType(settings),
        )
        formed = partition_paths(_one(kind, value), spec)[0].as_py()
        if formed != path:
            wrong.append((told, value, path, formed))
    assert wrong == []


def _one(kind: str, value: str) -> pa.RecordBatch:
    read: Any = {"long": int, "double": float, "string": str}[kind]
    found = None if value == "null" else read(value)
    return pa.RecordBatch.from_pydict({"t": pa.array([found], TYPES[kind])})
