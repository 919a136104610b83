"""From the options of a write to the policies of its files."""

from __future__ import annotations

from lakewright.codec.parquet_writer import ParquetPolicy
from lakewright.engine.sizing import SizingPolicy
from lakewright.engine.write_context import BloomPolicy, LogPolicy
from lakewright.engine.write_options import WriteOptions
from lakewright.format.table_properties import TableProperties
from lakewright.metadata.batch import indexes_of
from lakewright.metadata.file_groups import COLUMN_STATS, PARTITION_STATS

__all__ = ["bloom_policy", "log_policy", "parquet_policy", "sizing_policy"]

_OF_COLUMNS = (COLUMN_STATS, PARTITION_STATS)
_LEVELLED = ("zstd",)
"""Codecs whose level the default of the options is meant for."""


def parquet_policy(options: WriteOptions) -> ParquetPolicy:
    """How base files are encoded."""
    given = "parquet_codec_level" in options.model_fields_set
    level = options.parquet_codec_level if given or options.parquet_codec in _LEVELLED else None
    return ParquetPolicy(
        codec=options.parquet_codec,
        level=level,
        row_group_bytes=options.block_size,
        page_bytes=options.page_size,
        dictionary="auto" if options.dictionary_encoding else (),
    )


def bloom_policy(options: WriteOptions) -> BloomPolicy | None:
    """The bloom filters of base files; None for none."""
    if not options.bloom_filter:
        return None
    return BloomPolicy(
        kind=options.bloom_filter_type,
        entries=options.bloom_entries,
        fpp=options.bloom_false_positives,
        max_entries=options.bloom_max_entries,
    )


def log_policy(options: WriteOptions, properties: TableProperties) -> LogPolicy:
    """How log files are written."""
    return LogPolicy(
        parquet=options.log_block_format == "parquet",
        max_block_bytes=options.log_block_max_size,
        positions=options.record_positions,
        statistics=not indexes_of(properties).isdisjoint(_OF_COLUMNS),
    )


def sizing_policy(options: WriteOptions) -> SizingPolicy:
    """Sizes that decide where new rows go."""
    return SizingPolicy(
        max_file_bytes=options.max_file_size,
        small_file_limit=options.small_file_limit,
        record_size_estimate=options.record_size_estimate,
        record_size_threshold=options.record_size_threshold,
        record_size_commits=options.record_size_commits,
        record_size_metadata=options.record_size_metadata,
        insert_auto_split=options.insert_auto_split,
        insert_split_size=options.insert_split_size,
        small_file_candidates=options.small_file_candidates,
        small_file_factor=options.small_file_factor,
    )
