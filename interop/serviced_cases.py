"""The eight tables that lakewright and Hudi service in turns.

Table type × table version, with and without partitions, every rule of merging, a payload class of
its own, the bucket index, Parquet log blocks. Tables of version 6 belong to Hudi 0.15.0, one of
them to 1.0.2, which goes on with tables of that version too. (It goes by event time: the releases
do not agree about logs of OverwriteWithLatestAvroPayload.) Few columns and partitions: what
values and paths can be is proven by `interop.written` and `interop.keyed`. Pure values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from interop.keyed_cases import KeyedCase
from interop.written_rows import FLAT, GROWING, GROWN, NESTED, Columns

REGIONS = ("north", "Zürich")
DAYS = ("2024-01-30", "2024-02-01")
BLOCKS = "hoodie.logfile.data.block.format"
BY_HAND = {"hoodie.clean.automatic": "false", "hoodie.archive.automatic": "false"}
"""Services run when a step says so."""
KEPT = ("i64", "s", "dec18", "tm", "st", "arr")
"""Some columns of every kind."""


def serviced_columns(*, evolved: bool = False) -> Columns:
    """The columns before or after the schema changes."""
    kept = [(name, type_) for name, type_ in (*FLAT, *NESTED) if name in KEPT]
    return Columns.of(kept, GROWN if evolved else GROWING)


@dataclass(frozen=True)
class ServicedCase(KeyedCase):
    """One table."""

    owner: str
    log_blocks: str = "avro"

    @property
    def name(self) -> str:
        """Short, unique."""
        parts = [self.index.lower(), self.merge]
        if self.log_blocks != "avro":
            parts.append(self.log_blocks)
        if self.owner == "1.0.2" and self.version == 6:
            parts.append("newer")
        return f"v{self.version}_{self.type}_{'_'.join(parts)}"

    @property
    def title(self) -> str:
        """For people."""
        blocks = f", {self.log_blocks} log blocks" if self.log_blocks != "avro" else ""
        return f"{super().title}{blocks}, with Hudi {self.owner}"

    @property
    def hudi(self) -> str:
        """The Hudi that services and writes it."""
        return self.owner

    @property
    def blocks(self) -> str:
        """The format of log blocks."""
        return self.log_blocks

    @property
    def regions(self) -> Sequence[str | None]:
        """Values of the column `region`."""
        return REGIONS

    @property
    def days(self) -> Sequence[str | None]:
        """Values of the column `day`."""
        return DAYS

    @property
    def our_options(self) -> dict[str, str]:
        """The options of our writes."""
        return {**super().our_options, BLOCKS: self.log_blocks, **BY_HAND}


#    version, type, index, keys, paths, merging, owner, log blocks
KINDS: tuple[tuple[int, str, str, str, str, str, str, str], ...] = (
    (6, "mor", "BLOOM", "complex", "hive", "event", "0.15.0", "avro"),
    (6, "cow", "BLOOM", "nonpartitioned", "plain", "commit", "0.15.0", "avro"),
    (6, "mor", "SIMPLE", "simple", "plain", "partial", "0.15.0", "avro"),
    (6, "mor", "BUCKET", "simple", "hive", "event", "1.0.2", "avro"),
    (8, "mor", "BLOOM", "simple", "plain", "event", "1.0.2", "avro"),
    (8, "cow", "SIMPLE", "timestamp", "plain", "event", "1.0.2", "avro"),
    (8, "mor", "BUCKET", "nonpartitioned", "plain", "commit", "1.0.2", "avro"),
    (8, "mor", "SIMPLE", "simple", "encoded", "commit", "1.0.2", "parquet"),
)


def serviced_cases() -> list[ServicedCase]:
    """All eight."""
    return [
        ServicedCase(version, type_, keys, paths, index, merge, False, owner, blocks)  # type: ignore[arg-type]
        for version, type_, index, keys, paths, merge, owner, blocks in KINDS
    ]
