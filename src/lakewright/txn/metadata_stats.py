"""The write stat with which those of the metadata table begin: Hudi puts zeros there."""

from __future__ import annotations

from typing import Final

from lakewright.format.records import WriteStat

__all__ = ["NOTHING_WRITTEN"]

NOTHING_WRITTEN: Final = WriteStat(
    num_writes=0,
    num_deletes=0,
    num_update_writes=0,
    num_inserts=0,
    total_write_bytes=0,
    total_write_errors=0,
    file_size_in_bytes=0,
    total_log_records=0,
    total_log_blocks=0,
    total_log_files_compacted=0,
    total_log_size_compacted=0,
    total_updated_records_compacted=0,
    total_corrupt_log_block=0,
    total_rollback_blocks=0,
)
