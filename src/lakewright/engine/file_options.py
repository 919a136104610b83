"""Options of writing that decide about files: how rows are arranged, sized and encoded."""

from __future__ import annotations

from enum import Enum
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["FileOptions", "SortMode", "option"]

MIB = 1 << 20


class SortMode(Enum):
    """How the rows of a bulk insert are arranged before they are written."""

    NONE = "NONE"
    GLOBAL_SORT = "GLOBAL_SORT"
    PARTITION_SORT = "PARTITION_SORT"
    PARTITION_PATH_REPARTITION = "PARTITION_PATH_REPARTITION"
    PARTITION_PATH_REPARTITION_AND_SORT = "PARTITION_PATH_REPARTITION_AND_SORT"


def option(default: Any, description: str, *hudi: str, **checks: Any) -> Any:
    """A field with its default, what it means, and the names that Hudi knows it under."""
    return Field(
        default=default, description=description, json_schema_extra={"hudi": list(hudi)}, **checks
    )


class FileOptions(BaseModel):
    """How data files come about."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    # -- arrangement and tasks ----------------------------------------------------------------
    sort_mode: SortMode = option(
        SortMode.NONE,
        "How the rows of a bulk insert are arranged before they are written.",
        "hoodie.bulkinsert.sort.mode",
    )
    sort_columns: tuple[str, ...] = option(
        (),
        "Columns that a bulk insert sorts by; they take the place of the sort mode.",
        "hoodie.bulkinsert.user.defined.partitioner.sort.columns",
    )
    sort_by_record_key_last: bool = option(
        False,
        "Rows that are equal in the sort columns are sorted by record key.",
        "hoodie.bulkinsert.sort.suffix.record_key",
    )
    partitioner_class: str | None = option(
        None,
        "A partitioner class of Hudi's that sorts by columns; other classes cannot be run.",
        "hoodie.bulkinsert.user.defined.partitioner.class",
    )
    bulk_insert_parallelism: int = option(
        0,
        "Tasks of a bulk insert; 0: as many as the input has.",
        "hoodie.bulkinsert.shuffle.parallelism",
        ge=0,
    )
    insert_parallelism: int = option(
        0,
        "Tasks of an insert before file sizing; 0: as many as the input has.",
        "hoodie.insert.shuffle.parallelism",
        ge=0,
    )
    upsert_parallelism: int = option(
        0,
        "Tasks of an upsert; 0: as many as the input has.",
        "hoodie.upsert.shuffle.parallelism",
        ge=0,
    )
    delete_parallelism: int = option(
        0,
        "Tasks of a delete; 0: as many as the input has.",
        "hoodie.delete.shuffle.parallelism",
        ge=0,
    )
    finalize_parallelism: int = option(
        200,
        "Files that the end of a write deletes at once.",
        "hoodie.finalize.write.parallelism",
        ge=1,
    )
    rollback_parallelism: int = option(
        100, "Files that a rollback deletes at once.", "hoodie.rollback.parallelism", ge=1
    )
    marker_delete_parallelism: int = option(
        100, "Markers that are deleted at once.", "hoodie.markers.delete.parallelism", ge=1
    )

    # -- base files ---------------------------------------------------------------------------
    parquet_codec: Literal["zstd", "snappy", "gzip", "lz4", "brotli", "uncompressed"] = option(
        "zstd",
        "Compression of base files (Hudi's own default is gzip).",
        "hoodie.parquet.compression.codec",
    )
    parquet_codec_level: int | None = option(
        1, "Level of the compression; only zstd, gzip and brotli have levels."
    )
    max_file_size: int = option(
        120 * MIB,
        "Size in bytes at which a base file is closed and the next one begun.",
        "hoodie.parquet.max.file.size",
        ge=1,
    )
    small_file_limit: int = option(
        100 * MIB,
        "Base files below this size in bytes get new rows; 0 or less: none do.",
        "hoodie.parquet.small.file.limit",
    )
    small_file_candidates: int = option(
        1,
        "Small files of a partition that one write into a MERGE_ON_READ table fills.",
        "hoodie.merge.small.file.group.candidates.limit",
        ge=0,
    )
    small_file_factor: int = option(
        64,
        "A write into a MERGE_ON_READ table fills small files that are at most so many times as "
        "large as its new rows, or tiny; 0: however large.",
        ge=0,
    )
    block_size: int = option(
        120 * MIB, "Size of a row group in bytes.", "hoodie.parquet.block.size", ge=1
    )
    page_size: int = option(MIB, "Size of a data page in bytes.", "hoodie.parquet.page.size", ge=1)
    compression_ratio: float = option(
        0.1,
        "Bytes on storage for each byte in memory, before a file has told its own ratio.",
        "hoodie.parquet.compression.ratio",
        gt=0,
    )
    dictionary_encoding: bool = option(
        True,
        "Columns of few values are stored as dictionaries.",
        "hoodie.parquet.dictionary.enabled",
    )
    record_size_estimate: int = option(
        1024,
        "Bytes of a row on storage, before a commit has told it.",
        "hoodie.copyonwrite.record.size.estimate",
        ge=1,
    )
    record_size_threshold: float = option(
        1.0,
        "Only commits of more than this many small files' bytes tell the size of a row.",
        "hoodie.record.size.estimation.threshold",
        ge=0,
    )
    record_size_commits: int = option(
        5,
        "Newest commits that are asked for the size of a row.",
        "_hoodie.record.size.estimator.max.commits",
        ge=0,
    )
    record_size_metadata: int = option(
        0,
        "Bytes of each file that are not rows, left out of the size of a row.",
        "hoodie.record.size.estimator.average.metadata.size",
        ge=0,
    )
    insert_auto_split: bool = option(
        True,
        "New file groups of an insert are sized by the size of a row.",
        "hoodie.copyonwrite.insert.auto.split",
    )
    insert_split_size: int = option(
        500_000,
        "Rows of a new file group where `insert_auto_split` is off.",
        "hoodie.copyonwrite.insert.split.size",
        ge=1,
    )

    # -- log files ----------------------------------------------------------------------------
    log_block_format: Literal["avro", "parquet"] | None = option(
        None,
        "Format of log blocks; None: as Hudi chooses it.",
        "hoodie.logfile.data.block.format",
    )
    log_file_max_size: int = option(
        1024 * MIB,
        "Size in bytes at which a log file is closed and the next one begun.",
        "hoodie.logfile.max.size",
        ge=1,
    )
    log_block_max_size: int = option(
        256 * MIB, "Size of a log block in bytes.", "hoodie.logfile.data.block.max.size", ge=1
    )
    record_positions: bool = option(
        True,
        "Log blocks tell which rows of the base file they change (table version 8).",
        "hoodie.write.record.positions",
    )
    log_compression_ratio: float = option(
        0.35,
        "Bytes in a base file for each byte of log, when small files are looked for.",
        "hoodie.logfile.to.parquet.compression.ratio",
        gt=0,
    )

    # -- bloom filters ------------------------------------------------------------------------
    bloom_filter: bool = option(
        True, "Base files get a bloom filter of their keys.", "hoodie.parquet.bloom.filter.enabled"
    )
    bloom_filter_type: Literal["SIMPLE", "DYNAMIC_V0"] = option(
        "DYNAMIC_V0", "Kind of the bloom filter.", "hoodie.bloom.index.filter.type"
    )
    bloom_entries: int = option(
        60_000, "Keys that a bloom filter is sized for.", "hoodie.index.bloom.num_entries", ge=1
    )
    bloom_false_positives: float = option(
        1e-9,
        "Share of absent keys that a bloom filter may take for present.",
        "hoodie.index.bloom.fpp",
        gt=0,
        lt=1,
    )
    bloom_max_entries: int = option(
        100_000,
        "Keys up to which a dynamic bloom filter grows.",
        "hoodie.bloom.index.filter.dynamic.max.entries",
        ge=1,
    )
