"""The sixteen tables that lakewright writes and Hudi reads and goes on writing.

Table type × table version × key generator; the forms of partition paths and the odd partition
values are spread over them. Pure values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Literal

from interop.cases import Traits
from interop.options import write_options
from interop.written_rows import Row

# Without encoding a slash makes a folder level, so it is left to the encoded tables.
PLAIN_REGIONS = ("north", "a b", "Zürich", "🚀", "ü%1", "", None)
ENCODED_REGIONS = (*PLAIN_REGIONS, "x/y", "c:d=e", "50%/°")
DAYS = ("2024-01-30", "2024-02-01", "1969-12-31", None)
TIME_SETTINGS = {
    "timestamp.type": "DATE_STRING",
    "input.dateformat": "yyyy-MM-dd",
    "output.dateformat": "yyyyMMdd",
    "timezone": "UTC",
}
PATHS = {
    ("simple", 6, "cow"): "hive_encoded",
    ("simple", 6, "mor"): "plain",
    ("simple", 8, "cow"): "plain",
    ("simple", 8, "mor"): "encoded",
    ("complex", 6, "cow"): "encoded",
    ("complex", 6, "mor"): "hive_encoded",
    ("complex", 8, "cow"): "hive",
    ("complex", 8, "mor"): "hive_encoded",
    ("timestamp", 6, "mor"): "hive",
    ("timestamp", 8, "cow"): "hive_encoded",
}
LOCK = {
    "hoodie.write.concurrency.mode": "optimistic_concurrency_control",
    "hoodie.write.lock.provider": (
        "org.apache.hudi.client.transaction.lock.FileSystemBasedLockProvider"
    ),
    "hoodie.cleaner.policy.failed.writes": "LAZY",
    "hoodie.clean.failed.writes.policy": "LAZY",
}
# Hudi 1.0 compacts into files with Spark's old form of lists, and then loses the lists of these
# files when it fills them with inserts.
NO_SMALL_FILES = {"hoodie.parquet.small.file.limit": "0"}


@dataclass(frozen=True)
class WrittenCase:
    """One table."""

    version: int
    type: Literal["cow", "mor"]
    keys: str
    paths: str

    @property
    def name(self) -> str:
        """Short, unique."""
        return f"v{self.version}_{self.type}_{self.keys}"

    @property
    def regions(self) -> Sequence[str | None]:
        """Values of the column `region`; fewer where days multiply them."""
        known = ENCODED_REGIONS if "encoded" in self.paths else PLAIN_REGIONS
        return known[::-2] if self.keys == "complex" else known

    @property
    def days(self) -> Sequence[str | None]:
        """Values of the column `day`."""
        return DAYS[::3] if self.keys == "complex" else DAYS

    @property
    def occ(self) -> bool:
        """Whether Hudi writes under optimistic concurrency with a lock, or as the only writer."""
        return self.keys in ("simple", "timestamp")

    @property
    def key_fields(self) -> tuple[str, ...]:
        """Columns of the record key."""
        return ("id", "sub") if self.keys == "complex" else ("id",)

    @property
    def partition_fields(self) -> tuple[str, ...]:
        """Columns of the partition path."""
        return {
            "simple": ("region",),
            "complex": ("region", "day"),
            "nonpartitioned": (),
            "timestamp": ("day",),
        }[self.keys]

    def partition_of(self, row: Row) -> tuple[str, ...]:
        """What tells the partition of a row from others; empty and null are one partition."""
        values = tuple(row[name] or "" for name in self.partition_fields)
        return tuple(v or "1970-01-01" for v in values) if self.keys == "timestamp" else values

    def key_of(self, row: Row) -> tuple[Any, ...]:
        """What tells a record from others."""
        return (*self.partition_of(row), *(row[name] for name in self.key_fields))

    @property
    def choices(self) -> Mapping[str, Any]:
        """What `Table.create` needs besides the columns."""
        timed = {"key_generator": "TIMESTAMP", "time_settings": TIME_SETTINGS}
        return {
            "name": self.name,
            "type": self.type,
            "version": self.version,
            "key": self.key_fields,
            "partition": self.partition_fields,
            "ordering": ("ts",),
            "merge_mode": "EVENT_TIME_ORDERING",
            "hive_style": "hive" in self.paths,
            "url_encode": "encoded" in self.paths,
            **(timed if self.keys == "timestamp" else {}),
        }

    def hudi_options(self, hudi: str) -> dict[str, str]:
        """The options of Hudi's writes."""
        traits = Traits(self.version, self.type, "written", keys=self.keys, paths=self.paths)
        return {
            **write_options(traits, hudi, self.name),
            "hoodie.compact.inline": "false",
            **(LOCK if self.occ else {}),
            **(NO_SMALL_FILES if self.type == "mor" and self.version == 8 else {}),
        }


def written_cases() -> list[WrittenCase]:
    """All sixteen."""
    kinds = product(("simple", "complex", "nonpartitioned", "timestamp"), (6, 8), ("cow", "mor"))
    return [
        WrittenCase(version, type_, keys, PATHS.get((keys, version, type_), "plain"))  # type: ignore[arg-type]
        for keys, version, type_ in kinds
    ]
