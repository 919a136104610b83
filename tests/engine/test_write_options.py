"""Options of writing: names, nearness of sources, contradictions, and that all are documented."""

from __future__ import annotations

import pickle
from enum import Enum
from pathlib import Path
from typing import Any

import pytest

from interop.cases import Traits
from interop.options import write_options
from lakewright.engine.hudi_options import REFUSED
from lakewright.engine.table_choices import TABLE_OPTIONS
from lakewright.engine.write_options import FailedWrites, SortMode, WriteOptions
from lakewright.errors import ConfigError, OptionError
from lakewright.format.table_properties import TableProperties

MAX_FILE_SIZE = "hoodie.parquet.max.file.size"
TABLE = TableProperties(
    {
        "hoodie.table.name": "trips",
        "hoodie.table.type": "MERGE_ON_READ",
        "hoodie.table.version": "8",
        "hoodie.timeline.layout.version": "2",
        "hoodie.table.recordkey.fields": "id",
        "hoodie.table.partition.fields": "region:SIMPLE,day:TIMESTAMP",
        "hoodie.table.keygenerator.type": "CUSTOM",
        "hoodie.table.precombine.field": "ts",
        "hoodie.record.merge.mode": "EVENT_TIME_ORDERING",
        "hoodie.keygen.timebased.output.dateformat": "yyyyMMdd",
        MAX_FILE_SIZE: "1000",
    }
)


def test_the_nearest_source_counts() -> None:
    assert WriteOptions.of().max_file_size == 120 << 20
    assert WriteOptions.from_hudi({}, table=TABLE).max_file_size == 1000
    assert WriteOptions.from_hudi({MAX_FILE_SIZE: "2000"}, table=TABLE).max_file_size == 2000
    nearest = WriteOptions.from_hudi({MAX_FILE_SIZE: "2000"}, table=TABLE, max_file_size=3000)
    assert nearest.max_file_size == 3000


def test_values_have_types() -> None:
    options = WriteOptions.from_hudi(
        {
            "hoodie.bulkinsert.sort.mode": "global_sort",
            "hoodie.bulkinsert.user.defined.partitioner.sort.columns": "a, b",
            "hoodie.parquet.compression.codec": "SNAPPY",
            "hoodie.index.bloom.fpp": "0.001",
            "hoodie.allow.empty.commit": "FALSE",
            "hoodie.cleaner.policy.failed.writes": "lazy",
            "hoodie.metadata.enable": "false",
            "hoodie.write.commit.callback.http.api.key": "secret",
        }
    )
    assert options.sort_mode is SortMode.GLOBAL_SORT
    assert options.sort_columns == ("a", "b")
    assert options.parquet_codec == "snappy"
    assert options.bloom_false_positives == 0.001
    assert options.allow_empty_commit is False
    assert options.failed_writes_policy is FailedWrites.LAZY
    assert options.metadata_table == "drop"
    assert "secret" not in repr(options)
    assert pickle.loads(pickle.dumps(options)) == options


def test_options_of_real_writers_are_accepted() -> None:
    for hudi, version in (("0.15.0", 6), ("1.0.2", 8), ("1.2.0", 9)):
        for keys in ("simple", "complex", "timestamp", "custom", "nonpartitioned"):
            for index in ("bloom", "bucket", "record"):
                traits = Traits(version, "mor", "x", keys=keys, index=index, metadata="stats")
                WriteOptions.from_hudi(write_options(traits, hudi, "t"))


def test_options_of_the_table_say_what_it_does_not_store() -> None:
    options = WriteOptions.from_hudi(
        {
            "hoodie.datasource.write.partitionpath.field": "region:SIMPLE,day:timestamp",
            "hoodie.deltastreamer.keygen.timebased.timestamp.type": "EPOCHMILLISECONDS",
            "hoodie.payload.event.time.field": "ts",
            "hoodie.write.lock.filesystem.expire": "5",
        },
        table=TABLE,
    )
    assert options.partition_types == {"region": "SIMPLE", "day": "TIMESTAMP"}
    assert options.time_settings == {"timestamp.type": "EPOCHMILLISECONDS"}
    assert options.merge_settings == {"hoodie.payload.event.time.field": "ts"}
    assert options.lock_settings == {"hoodie.write.lock.filesystem.expire": "5"}


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("hoodie.parquet.max.filesize", MAX_FILE_SIZE),
        ("hoodie.datasource.write.record.key.field", "hoodie.datasource.write.recordkey.field"),
        ("hodie.bulkinsert.sort.mode", "hoodie.bulkinsert.sort.mode"),
        ("hoodie.metrics.jmx.prot", "hoodie.metrics.jmx.port"),
    ],
)
def test_a_misspelt_option_is_told_the_nearest(given: str, meant: str) -> None:
    with pytest.raises(OptionError) as caught:
        WriteOptions.from_hudi({given: "1"})
    assert meant in caught.value.hint


def test_a_misspelt_keyword_is_told_the_nearest() -> None:
    with pytest.raises(OptionError) as caught:
        WriteOptions.of(max_filesize=1)
    assert "max_file_size" in caught.value.hint


def test_options_that_are_not_of_hudi_are_left_alone() -> None:
    assert WriteOptions.from_hudi({"path": "/x", "mergeSchema": "true"}) == WriteOptions.of()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({MAX_FILE_SIZE: "big"}, "max_file_size cannot be used"),
        ({MAX_FILE_SIZE: "0"}, "max_file_size cannot be used"),
        ({"hoodie.allow.empty.commit": "yes"}, "neither true nor false"),
        ({"hoodie.client.heartbeat.interval_in_ms": "10"}, "heartbeat_interval_ms"),
        ({"hoodie.parquet.compression.codec": "rar"}, "parquet_codec"),
        ({"hoodie.datasource.write.insert.drop.duplicates": "true"}, "drop_duplicates"),
        ({"hoodie.write.commit.callback.on": "true"}, "needs callback_url"),
        ({"hoodie.bulkinsert.user.defined.partitioner.class": "a.Mine"}, "cannot be run"),
        (
            {
                "hoodie.write.concurrency.mode": "optimistic_concurrency_control",
                "hoodie.clean.failed.writes.policy": "EAGER",
            },
            "would roll back the other writers",
        ),
        (
            {
                "hoodie.clean.failed.writes.policy": "EAGER",
                "hoodie.cleaner.policy.failed.writes": "LAZY",
            },
            "both mean failed_writes",
        ),
        (
            {
                "hoodie.datasource.write.recordkey.field": "a",
                "hoodie.table.recordkey.fields": "b",
            },
            "both mean hoodie.table.recordkey.fields",
        ),
        ({"hoodie.precommit.validators": "a.Validator"}, "cannot be honoured"),
        ({"hoodie.datasource.hive_sync.enable": "true"}, "catalogs are not told"),
    ],
)
def test_values_that_cannot_be_are_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        WriteOptions.from_hudi(options)


@pytest.mark.parametrize(
    ("option", "value", "stored"),
    [
        ("hoodie.table.name", "other", "hoodie.table.name=trips"),
        ("hoodie.datasource.write.table.type", "COPY_ON_WRITE", "MERGE_ON_READ"),
        ("hoodie.write.table.version", "6", "hoodie.table.version=8"),
        ("hoodie.datasource.write.recordkey.field", "id,sub", "recordkey.fields=id"),
        ("hoodie.datasource.write.partitionpath.field", "region", "region:SIMPLE,day:TIMESTAMP"),
        ("hoodie.datasource.write.partitionpath.field", "region:SIMPLE,day:SIMPLE", "TIMESTAMP"),
        ("hoodie.datasource.write.precombine.field", "day", "ordering.fields=ts"),
        ("hoodie.datasource.write.keygenerator.class", "org.apache.hudi.keygen.X", "CUSTOM"),
        ("hoodie.datasource.write.keygenerator.type", "SIMPLE", "CUSTOM"),
        ("hoodie.datasource.write.hive_style_partitioning", "true", "hive_style_partitioning=fal"),
        ("hoodie.populate.meta.fields", "false", "populate.meta.fields=true"),
        ("hoodie.write.record.merge.mode", "COMMIT_TIME_ORDERING", "EVENT_TIME_ORDERING"),
        ("hoodie.keygen.timebased.output.dateformat", "yyyy", "dateformat=yyyyMMdd"),
    ],
)
def test_a_contradiction_with_the_table_names_both(option: str, value: str, stored: str) -> None:
    with pytest.raises(ConfigError) as caught:
        WriteOptions.from_hudi({option: value}, table=TABLE)
    assert f"{option}={value}" in caught.value.message
    assert stored in caught.value.message


def test_saying_again_what_the_table_is_is_fine() -> None:
    WriteOptions.from_hudi(
        {
            "hoodie.table.name": "trips",
            "hoodie.datasource.write.table.type": "merge_on_read",
            "hoodie.datasource.write.recordkey.field": "id",
            "hoodie.datasource.write.partitionpath.field": "region,day",
            "hoodie.datasource.write.keygenerator.class": (
                "org.apache.hudi.keygen.CustomKeyGenerator"
            ),
            "hoodie.datasource.write.precombine.field": "ts",
            "hoodie.datasource.write.hive_style_partitioning": "false",
        },
        table=TABLE,
    )


def test_options_with_the_prefix_are_kept_for_the_commit() -> None:
    assert WriteOptions.from_hudi({"_source": "kafka"}).commit_metadata == {"_source": "kafka"}
    prefix = {"hoodie.datasource.write.commitmeta.key.prefix": "job."}
    options = WriteOptions.from_hudi({**prefix, "job.id": "7", "_x": "1"})
    assert options.commit_metadata == {"job.id": "7"}
    assert options.commit_metadata_prefix == "job."


def test_several_writers_leave_dead_writes_to_their_heartbeats() -> None:
    several = WriteOptions.of(concurrency_mode="optimistic_concurrency_control")
    assert several.multi_writer
    assert several.failed_writes_policy is FailedWrites.LAZY
    assert WriteOptions.of().failed_writes_policy is FailedWrites.EAGER


def _shown(default: Any) -> str:
    if isinstance(default, Enum):
        return str(default.value)
    if isinstance(default, bool):
        return str(default).lower()
    return "none" if default is None or default in ((), {}) else str(default)


def test_every_option_is_documented() -> None:
    text = (Path(__file__).parents[2] / "docs" / "write-options.md").read_text()
    missing = []
    for name, info in WriteOptions.model_fields.items():
        extra = info.json_schema_extra
        assert isinstance(extra, dict)
        hudi = "<br>".join(f"`{n}`" for n in extra["hudi"]) or "–"  # type: ignore[union-attr]
        row = f"| `{name}` | {_shown(info.default)} | {hudi} | {info.description} |"
        if row not in text:
            missing.append(row)
    missing += [name for name in (*TABLE_OPTIONS, *REFUSED) if f"| `{name}` |" not in text]
    assert missing == []
