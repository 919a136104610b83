"""The sixteen tables of keyed writes: table type × table version × index.

Key generators, forms of partition paths and rules of merging are spread over them, so that each
index meets several. Pure values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from interop.cases import DIALECT_OF_TABLE_VERSION, Traits
from interop.options import PAYLOAD_CLASSES, write_options
from interop.written_cases import LOCK, NO_SMALL_FILES, WrittenCase
from interop.written_rows import Row

MODES = {"event": "EVENT_TIME_ORDERING", "commit": "COMMIT_TIME_ORDERING"}
PAYLOADS = {"event": "default", "commit": "overwrite", "partial": "partial_payload"}
BUCKETS = "3"
# Hudi 0.15 looks at the rows of base files before it moves them to other partitions, and cannot
# where a column has got a wider type since.
STAYING = {"hoodie.simple.index.update.partition.path": "false"}


@dataclass(frozen=True)
class KeyedCase(WrittenCase):
    """One table."""

    index: str
    merge: str
    """event, commit or partial: at version 6 the payload classes that mean it."""
    small_files: bool
    """Whether inserts may join base files that are there. Where they do, rows leave the log of a
    file group at times that only its files tell, so the rule of merging must not care."""

    @property
    def name(self) -> str:
        """Short, unique."""
        return f"v{self.version}_{self.type}_{self.index.lower()}"

    @property
    def title(self) -> str:
        """For people."""
        kind = {"cow": "Copy-on-Write", "mor": "Merge-on-Read"}[self.type]
        return f"{kind}, version {self.version}, {self.index.lower().replace('_', ' ')} index"

    @property
    def hudi(self) -> str:
        """The Hudi that the table belongs to: it reads after every step, and writes."""
        return DIALECT_OF_TABLE_VERSION[self.version]

    @property
    def blocks(self) -> str:
        """The format of log blocks."""
        return "avro"

    @property
    def is_global(self) -> bool:
        """Whether a key is one row in the whole table."""
        return self.index.startswith("GLOBAL")

    @property
    def fails_on_risen(self) -> bool:
        """Whether Hudi of the table's version fails on keys that come again behind a deletion."""
        return self.version == 8 and self.type == "mor" and self.merge == "event"

    @property
    def occ(self) -> bool:
        """Whether Hudi writes with a lock, or as the only writer."""
        return self.keys in ("simple", "timestamp")

    def identity(self, row: Row) -> tuple[Any, ...]:
        """What tells the record of a row from others for this index."""
        key = tuple(row[name] for name in self.key_fields)
        return key if self.is_global else (*self.partition_of(row), *key)

    @property
    def choices(self) -> Mapping[str, Any]:
        """What `Table.create` needs besides the columns."""
        made = {**super().choices, "name": self.name}
        if self.version == 6:
            del made["merge_mode"]
            made["payload_class"] = PAYLOAD_CLASSES[PAYLOADS[self.merge]]
        else:
            made["merge_mode"] = MODES[self.merge]
        return made

    @property
    def our_options(self) -> dict[str, str]:
        """The options of our writes."""
        return {**self._index_options, **({} if self.small_files else NO_SMALL_FILES)}

    def hudi_options(self, hudi: str) -> dict[str, str]:
        """The options of Hudi's writes."""
        traits = Traits(
            self.version,
            self.type,
            "keyed",
            keys=self.keys,
            paths=self.paths,
            merge={"partial": "partial_payload"}.get(self.merge, self.merge),
            index="bucket" if self.index == "BUCKET" else "bloom",
            blocks=self.blocks,
        )
        full = not self.small_files or (self.type == "mor" and self.version == 8)
        return {
            **write_options(traits, hudi, self.name),
            **self._index_options,
            "hoodie.compact.inline": "false",
            **(LOCK if self.occ else {}),
            **(NO_SMALL_FILES if full else {}),
            **(STAYING if self.name == "v6_mor_global_simple" else {}),
        }

    @property
    def _index_options(self) -> dict[str, str]:
        told = {"hoodie.index.type": self.index}
        if self.index == "BUCKET":
            told["hoodie.bucket.index.num.buckets"] = BUCKETS
        return told


#    version, type, index, keys, paths, merging, small files
KINDS: tuple[tuple[int, str, str, str, str, str, bool], ...] = (
    (6, "cow", "BLOOM", "nonpartitioned", "plain", "commit", True),
    (6, "cow", "SIMPLE", "timestamp", "hive", "event", True),
    (6, "cow", "GLOBAL_BLOOM", "simple", "hive_encoded", "commit", True),
    (6, "cow", "BUCKET", "complex", "encoded", "event", True),
    (6, "mor", "BLOOM", "complex", "hive_encoded", "event", False),
    (6, "mor", "SIMPLE", "simple", "plain", "partial", False),
    (6, "mor", "GLOBAL_SIMPLE", "timestamp", "plain", "commit", False),
    (6, "mor", "BUCKET", "nonpartitioned", "plain", "event", False),
    (8, "cow", "BLOOM", "simple", "plain", "event", True),
    (8, "cow", "SIMPLE", "nonpartitioned", "plain", "commit", True),
    (8, "cow", "GLOBAL_SIMPLE", "complex", "hive", "event", True),
    (8, "cow", "BUCKET", "timestamp", "hive_encoded", "commit", True),
    (8, "mor", "BLOOM", "timestamp", "plain", "event", False),
    (8, "mor", "SIMPLE", "nonpartitioned", "plain", "commit", True),
    (8, "mor", "GLOBAL_BLOOM", "simple", "encoded", "event", False),
    (8, "mor", "BUCKET", "complex", "hive_encoded", "commit", False),
)


def keyed_cases() -> list[KeyedCase]:
    """All sixteen."""
    return [
        KeyedCase(version, type_, keys, paths, index, merge, small)  # type: ignore[arg-type]
        for version, type_, index, keys, paths, merge, small in KINDS
    ]
