"""Write stats of the metadata table's commits, with the zeros that Hudi's writers put there."""

from __future__ import annotations

from collections.abc import Sequence

from lakewright.format.records import WriteStat

__all__ = ["written_stat"]


def written_stat(
    *,
    file_id: str,
    prev_commit: str,
    path: str | None = None,
    partition_path: str | None = None,
    num_writes: int = 0,
    num_deletes: int = 0,
    num_update_writes: int = 0,
    num_inserts: int = 0,
    total_write_bytes: int = 0,
    file_size_in_bytes: int = 0,
    log_version: int | None = None,
    log_offset: int | None = None,
    base_file: str | None = None,
    log_files: Sequence[str] | None = None,
    prev_base_file: str | None = None,
) -> WriteStat:
    """The stat of one file, or of a file group that is going to get one."""
    return WriteStat(
        file_id=file_id,
        path=path,
        prev_commit=prev_commit,
        partition_path=partition_path,
        num_writes=num_writes,
        num_deletes=num_deletes,
        num_update_writes=num_update_writes,
        num_inserts=num_inserts,
        total_write_bytes=total_write_bytes,
        total_write_errors=0,
        file_size_in_bytes=file_size_in_bytes,
        total_log_records=0,
        total_log_blocks=0,
        total_log_files_compacted=0,
        total_log_size_compacted=0,
        total_updated_records_compacted=0,
        total_corrupt_log_block=0,
        total_rollback_blocks=0,
        log_version=log_version,
        log_offset=log_offset,
        base_file=base_file,
        log_files=log_files,
        prev_base_file=prev_base_file,
    )
