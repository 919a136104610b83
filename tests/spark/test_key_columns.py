"""Keys and paths as Spark columns, against the Arrow kernels, on rows of every type."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from lakewright.format.key_generator import KeyGeneratorType
from lakewright.format.key_text import column_at, key_text
from lakewright.format.keys import KeySpec, PartitionField, PartitionKind, TextPath, record_keys
from lakewright.format.partition_paths import partition_paths
from lakewright.spark.key_columns import partition_path_column, record_key_column

ROWS = 400
ZONED = pa.timestamp("us", "UTC")
EDGES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "text": (
        pa.string(),
        ["", "a", "é日🚀", "%25", "a/b:c=d", "x'\"\\{[]^?*#", "\x00\x1f\x7f", " "],
    ),
    "flag": (pa.bool_(), [True, False]),
    "small": (pa.int32(), [0, -1, 2**31 - 1, -(2**31)]),
    "big": (pa.int64(), [0, 2**63 - 1, -(2**63)]),
    "day": (pa.date32(), [0, -1, 19_000, 2_932_896, 2_932_897, -719_162, -500_000]),
    "money": (pa.decimal128(10, 2), ["0.00", "-1.50", "99999999.99"]),
    "wide": (pa.decimal128(38, 6), ["0.000000", "-0.000001", "1e31"]),
    "raw": (pa.binary(), [b"", b"\x00\xff", b"ab"]),
    "at": (ZONED, [0, -1, 1_483_005_240_120_000, 253_402_300_799_999_999, -62_135_596_800_000_000]),
}
INEXACT = {
    "real": pa.float64(),
    "tiny": pa.decimal128(20, 7),
    "local": pa.timestamp("us"),
    "coarse": pa.timestamp("ms", "UTC"),
}


def _values(name: str, chance: random.Random) -> pa.Array:
    kind, edges = EDGES[name]
    picked = [chance.choice([None, *edges]) for _ in range(ROWS)]
    if pa.types.is_decimal(kind):
        return pa.array([None if v is None else Decimal(v) for v in picked], kind)
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        plain = pa.int32() if pa.types.is_date(kind) else pa.int64()
        return pa.array(picked, plain).cast(kind)
    if name == "text":
        more = [chr(chance.choice([*range(1, 300), 0x20AC, 0x1F680])) for _ in range(ROWS)]
        picked = [None if v is None else v + more[i][: i % 2] for i, v in enumerate(picked)]
    return pa.array(picked, kind)


@pytest.fixture(scope="module")
def batch() -> pa.RecordBatch:
    """Rows of every type that Spark writes as the kernels do, and a struct of them."""
    chance = random.Random(7)
    columns = {name: _values(name, chance) for name in EDGES}
    nested = pa.StructArray.from_arrays([columns["text"], columns["big"]], ["text", "big"])
    return pa.RecordBatch.from_pydict({**columns, "inner": nested})


@pytest.fixture(scope="module")
def frame(
    spark: SparkSession, batch: pa.RecordBatch, tmp_path_factory: pytest.TempPathFactory
) -> DataFrame:
    """The same rows in Spark, in the same order."""
    path = Path(tmp_path_factory.mktemp("keys")) / "rows.parquet"
    pq.write_table(pa.Table.from_batches([batch]), path)
    return spark.read.option("datetimeRebaseMode", "CORRECTED").parquet(str(path)).coalesce(1)


def _spec(*fields: str, paths: tuple[str, ...] = (), **options: Any) -> KeySpec:
    options.setdefault("generator", KeyGeneratorType.COMPLEX)
    return KeySpec(fields, tuple(PartitionField(name) for name in paths), **options)


KEYS = [_spec(name) for name in (*EDGES, "inner.text", "inner.big")]
KEYS += [_spec("text", names_single_key=True), _spec(*EDGES), _spec("text", "small")]
PATHS = [_spec("text", paths=(name,)) for name in (*EDGES, "inner.text")]
PATHS += [
    _spec("text", paths=("text",), url_encode=True),
    _spec("text", paths=("text", "day", "at"), url_encode=True, hive_style=True),
    _spec("text", paths=("inner.text",), hive_style=True),
    _spec("text", paths=("day",), slash_separated_dates=True),
    _spec("text"),
]


@contextmanager
def _settings(spark: SparkSession, settings: dict[str, str]) -> Iterator[None]:
    before = {key: spark.conf.get(key) for key in settings}
    for key, value in settings.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key, old in before.items():
            spark.conf.set(key, str(old))


@pytest.mark.parametrize(
    "settings",
    [
        {"spark.sql.session.timeZone": "UTC", "spark.sql.ansi.enabled": "false"},
        pytest.param(
            {"spark.sql.session.timeZone": "America/New_York", "spark.sql.ansi.enabled": "true"},
            marks=pytest.mark.slow,
        ),
    ],
    ids=["utc", "new_york_ansi"],
)
@pytest.mark.slow
def test_keys_and_paths_are_those_of_the_kernels(
    spark: SparkSession, frame: DataFrame, batch: pa.RecordBatch, settings: dict[str, str]
) -> None:
    schema = batch.schema
    keys = [record_key_column(spec, schema) for spec in KEYS]
    paths = [partition_path_column(spec, schema) for spec in PATHS]
    made = [column for column in (*keys, *paths) if column is not None]
    assert len(made) == len(KEYS) + len(PATHS)
    with _settings(spark, settings):
        rows = frame.select(*[c.alias(f"c{i}") for i, c in enumerate(made)]).collect()
    for number, spec in enumerate(KEYS):
        formed = [row[number] for row in rows]
        whole = pa.array([key is not None for key in formed])
        wanted = record_keys(batch.filter(whole), spec).to_pylist()
        assert [key for key in formed if key is not None] == wanted, spec
        _all_hollow(batch.filter(pc.invert(whole)), spec)
    for number, spec in enumerate(PATHS, len(KEYS)):
        assert [row[number] for row in rows] == partition_paths(batch, spec).to_pylist(), spec


def _all_hollow(rows: pa.RecordBatch, spec: KeySpec) -> None:
    for name in spec.record_key_fields:
        text = key_text(column_at(rows, name), field=name)
        assert set(text.to_pylist()) <= {None, ""}, name


def test_what_spark_may_write_otherwise_is_left_to_the_kernels() -> None:
    schema = pa.schema([("text", pa.string()), ("at", ZONED), *INEXACT.items()])
    for name in INEXACT:
        assert record_key_column(_spec("text", name), schema) is None
        assert partition_path_column(_spec("text", paths=("text", name)), schema) is None
    assert record_key_column(_spec("at", text_path=TextPath.ROW), schema) is None
    assert partition_path_column(_spec("text", paths=("at",), sql_timestamps=True), schema) is None
    timed = KeySpec(
        ("text",), (PartitionField("text", PartitionKind.TIMESTAMP),), KeyGeneratorType.TIMESTAMP
    )
    assert partition_path_column(timed, schema) is None
    assert record_key_column(_spec(), schema) is None
    own = _spec("text", generator=KeyGeneratorType.USER_PROVIDED)
    assert record_key_column(own, schema) is None
    assert partition_path_column(own, schema) is None
