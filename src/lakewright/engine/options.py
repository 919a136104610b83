"""Options of reading, typed and checked, with the defaults in one place."""

from __future__ import annotations

import os

from pydantic import BaseModel, ConfigDict, Field

MIB = 1 << 20
GIB = 1 << 30


class ReadOptions(BaseModel):
    """How a scan works; none of it changes what a scan returns."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    threads: int = Field(default=0, ge=0, description="Slices read at once; 0 = one per core.")
    batch_rows: int = Field(default=131_072, ge=1, description="Rows of a batch at the most.")
    merge_memory: int = Field(
        default=GIB, ge=0, description="Bytes of decoded log rows held in memory per slice."
    )
    scratch_folder: str | None = Field(
        default=None, description="Where log rows above `merge_memory` spill; None = the system's."
    )
    use_metadata_table: bool = Field(
        default=True, description="List files and skip by statistics through the metadata table."
    )
    keys_are_unique: bool = Field(
        default=False,
        description="No key has two rows, so that the record index alone says where a key is; "
        "otherwise this is found out by counting, which tables with logs do not allow.",
    )

    @property
    def thread_count(self) -> int:
        """Threads that work at once."""
        return self.threads or os.cpu_count() or 1
