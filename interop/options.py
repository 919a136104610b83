"""From traits to Hudi's write options, for each release's own names of things."""

from __future__ import annotations

from interop.cases import Options, Traits

KEY_GENERATORS = "org.apache.hudi.keygen."
PAYLOADS = "org.apache.hudi.common.model."
PAYLOAD_CLASSES = {
    "overwrite": PAYLOADS + "OverwriteWithLatestAvroPayload",
    "default": PAYLOADS + "DefaultHoodieRecordPayload",
    "event_payload": PAYLOADS + "EventTimeAvroPayload",
    "partial_payload": PAYLOADS + "PartialUpdateAvroPayload",
    "non_defaults": PAYLOADS + "OverwriteNonDefaultsWithLatestAvroPayload",
    "dms": PAYLOADS + "AWSDmsAvroPayload",
    "mysql": PAYLOADS + "debezium.MySqlDebeziumAvroPayload",
    "postgres": PAYLOADS + "debezium.PostgresDebeziumAvroPayload",
}
MYSQL_ORDERING = {6: "_event_seq", 8: "_event_seq", 9: "_event_bin_file,_event_pos"}

# Small and quick: no timeline server, two of everything.
ALWAYS = {
    "hoodie.embed.timeline.server": "false",
    "hoodie.write.markers.type": "DIRECT",
    "hoodie.upsert.shuffle.parallelism": "2",
    "hoodie.insert.shuffle.parallelism": "2",
    "hoodie.bulkinsert.shuffle.parallelism": "2",
    "hoodie.delete.shuffle.parallelism": "2",
    "hoodie.bloom.index.parallelism": "2",
    "hoodie.simple.index.parallelism": "2",
    "hoodie.finalize.write.parallelism": "2",
    "hoodie.rollback.parallelism": "2",
    "hoodie.cleaner.parallelism": "2",
    "hoodie.archive.delete.parallelism": "2",
    "hoodie.markers.delete.parallelism": "2",
    "hoodie.clean.automatic": "false",
    "hoodie.archive.automatic": "false",
    "hoodie.parquet.max.file.size": "1048576",
    "hoodie.metadata.index.column.stats.enable": "false",
    "hoodie.metadata.index.partition.stats.enable": "false",
}
EVERY_INDEX = {
    "hoodie.metadata.enable": "true",
    "hoodie.metadata.index.column.stats.enable": "true",
    "hoodie.metadata.index.partition.stats.enable": "true",
    "hoodie.metadata.index.bloom.filter.enable": "true",
    "hoodie.metadata.record.index.enable": "true",
}
"""A metadata table with all indexes that every release can build."""


def write_options(traits: Traits, hudi: str, name: str) -> dict[str, str]:
    """The options of every write into a table of these traits."""
    kind = {"cow": "COPY_ON_WRITE", "mor": "MERGE_ON_READ"}[traits.type]
    return {
        **ALWAYS,
        "hoodie.table.name": name,
        "hoodie.datasource.write.table.type": kind,
        "hoodie.datasource.write.precombine.field": ordering_fields(traits),
        **_version(traits, hudi),
        **_keys(traits),
        **_paths(traits),
        **_merge(traits, hudi),
        **_index(traits),
        **_metadata(traits),
        **_blocks(traits),
    }


def ordering_fields(traits: Traits) -> str:
    """The ordering field, or fields, of a table."""
    if traits.merge == "mysql":
        return MYSQL_ORDERING[traits.table_version]
    return {"postgres": "_event_lsn"}.get(traits.merge, "ts")


def _version(traits: Traits, hudi: str) -> Options:
    if hudi.startswith("0."):
        return {}
    return {
        "hoodie.write.table.version": str(traits.table_version),
        "hoodie.write.auto.upgrade": "false",
    }


def _keys(traits: Traits) -> Options:
    key = "hoodie.datasource.write.recordkey.field"
    partition = "hoodie.datasource.write.partitionpath.field"
    generator = "hoodie.datasource.write.keygenerator.class"
    timestamp = "hoodie.keygen.timebased."
    from_text = {
        f"{timestamp}timestamp.type": "DATE_STRING",
        f"{timestamp}input.dateformat": "yyyy-MM-dd",
        f"{timestamp}output.dateformat": "yyyyMMdd",
        f"{timestamp}timezone": "UTC",
    }
    match traits.keys:
        case "simple":
            return {key: "id", partition: "region"}
        case "complex":
            chosen = KEY_GENERATORS + "ComplexKeyGenerator"
            return {key: "id,sub", partition: "region,day", generator: chosen}
        case "nonpartitioned":
            chosen = KEY_GENERATORS + "NonpartitionedKeyGenerator"
            return {key: "id", generator: chosen}
        case "timestamp":
            chosen = KEY_GENERATORS + "TimestampBasedKeyGenerator"
            return {key: "id", partition: "day", generator: chosen, **from_text}
        case "custom":
            chosen = KEY_GENERATORS + "CustomKeyGenerator"
            both = "region:SIMPLE,day:TIMESTAMP"
            return {key: "id,sub", partition: both, generator: chosen, **from_text}
        case _:
            raise ValueError(traits.keys)


def _paths(traits: Traits) -> Options:
    hive = "hoodie.datasource.write.hive_style_partitioning"
    encode = "hoodie.datasource.write.partitionpath.urlencode"
    return {
        "plain": {},
        "hive": {hive: "true"},
        "encoded": {encode: "true"},
        "hive_encoded": {hive: "true", encode: "true"},
    }[traits.paths]


def _merge(traits: Traits, hudi: str) -> Options:
    payload = "hoodie.datasource.write.payload.class"
    mode = "hoodie.write.record.merge.mode"
    old = hudi.startswith("0.") or traits.table_version == 6
    match traits.merge:
        case "event":
            return {payload: PAYLOAD_CLASSES["default"]} if old else {mode: "EVENT_TIME_ORDERING"}
        case "commit":
            overwrite = {payload: PAYLOAD_CLASSES["overwrite"]}
            return overwrite if old else {mode: "COMMIT_TIME_ORDERING"}
        case other:
            return {payload: PAYLOAD_CLASSES[other]}


def _index(traits: Traits) -> Options:
    match traits.index:
        case "bloom":
            return {"hoodie.index.type": "BLOOM"}
        case "bucket":
            return {
                "hoodie.index.type": "BUCKET",
                "hoodie.bucket.index.num.buckets": "2",
                "hoodie.storage.layout.type": "BUCKET",
                "hoodie.storage.layout.partitioner.class": (
                    "org.apache.hudi.table.action.commit.SparkBucketIndexPartitioner"
                ),
            }
        case "record":
            return {
                "hoodie.index.type": "RECORD_INDEX",
                "hoodie.metadata.record.index.enable": "true",
                "hoodie.metadata.record.index.min.filegroup.count": "2",
                "hoodie.metadata.record.index.max.filegroup.count": "2",
            }
        case _:
            raise ValueError(traits.index)


def _metadata(traits: Traits) -> Options:
    enable = "hoodie.metadata.enable"
    match traits.metadata:
        case "off":
            return {enable: "false"}
        case "files":
            return {enable: "true"}
        case "stats":
            return {
                enable: "true",
                "hoodie.metadata.index.column.stats.enable": "true",
                "hoodie.metadata.index.column.stats.file.group.count": "1",
                "hoodie.metadata.index.partition.stats.enable": "true",
            }
        case _:
            raise ValueError(traits.metadata)


def _blocks(traits: Traits) -> Options:
    if traits.type == "cow":
        return {}
    return {"hoodie.logfile.data.block.format": traits.blocks}
