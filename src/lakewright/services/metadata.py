"""The metadata table of a table, for people: what it is, whether it is right, how to get another.

Looking changes nothing and needs no lock. A verification beside running writers pins what was
committed when it began; if it finds differences and the table changed meanwhile, it says so, since
a clean may have taken files that were to be looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass

from lakewright.engine.first_records import new_secondary_index, refuse_unknown
from lakewright.engine.index_building import build_beside_writers, refuse_other_kind
from lakewright.engine.indexed_columns import defined_columns
from lakewright.engine.metadata_verification import verify_metadata
from lakewright.engine.options import ReadOptions
from lakewright.engine.snapshot import Snapshot, load_snapshot
from lakewright.errors import InputError
from lakewright.format.properties import load_properties
from lakewright.format.timeline import load_timeline
from lakewright.merge.registry import MergerRegistry
from lakewright.metadata.file_groups import (
    COLUMN_STATS,
    FILES,
    PARTITION_STATS,
    RECORD_INDEX,
    SECONDARY_PREFIX,
)
from lakewright.metadata.summary import MetadataSummary, describe_metadata
from lakewright.metadata.table import METADATA_FOLDER
from lakewright.metadata.verification import Compared, Difference, Finding
from lakewright.runtime.clock import Clock
from lakewright.runtime.events import EventHook
from lakewright.storage.base import Storage
from lakewright.txn.access import Access
from lakewright.txn.metadata_creation import drop_indexes, drop_metadata_table
from lakewright.txn.metadata_gate import has_metadata_table

__all__ = ["CHANGED_MEANWHILE", "Built", "MetadataService", "Rebuilt"]

CHANGED_MEANWHILE = "the table changed while it was verified; differences may come from that"


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """What became of a metadata table."""

    indexes: tuple[str, ...]
    """Those that it has now; none if something pending forbids to begin."""
    left_out: tuple[str, ...]
    """Those that it had or was to have, and that are not built here."""


@dataclass(frozen=True, slots=True)
class Built:
    """What was added to a metadata table."""

    indexes: tuple[str, ...]
    """Those that it did not have before."""
    left_out: tuple[str, ...]
    """Those that this table cannot have, or none while something pending forbids to begin."""


@dataclass(frozen=True, slots=True)
class MetadataService:
    """`table.metadata`."""

    storage: Storage
    clock: Clock
    options: ReadOptions
    registry: MergerRegistry
    access: Callable[[], Access]
    """The means to change the table; asked for only by what changes it."""
    on_event: EventHook

    def describe(self) -> MetadataSummary | None:
        """What the metadata table is; None if the table has none."""
        properties = load_properties(self.storage, clock=self.clock)
        return describe_metadata(self.storage, properties, load_timeline(self.storage, properties))

    def verify(self, *indexes: str) -> Iterator[Finding]:
        """Hold every record of all indexes, or of those named, against the table's files.

        Gives each difference, and after each index how much was compared.

        >>> for finding in table.metadata.verify("files"): print(finding)  # doctest: +SKIP
        """
        snapshot = self._now()
        differences = 0
        for finding in verify_metadata(
            snapshot,
            only=indexes,
            options=self.options,
            registry=self.registry,
            on_event=self.on_event,
        ):
            differences += isinstance(finding, Difference)
            yield finding
        if differences:
            now = load_timeline(self.storage, snapshot.properties)
            if now.completed().instants != snapshot.timeline.completed().instants:
                yield Compared("", 0, 0, note=CHANGED_MEANWHILE)

    def drop(self, *indexes: str) -> bool:
        """Remove the metadata table, or some indexes of it, in the order that is safe for readers;
        False if there is none.

        Readers then list folders; a Hudi writer with hoodie.metadata.enable=true builds it again,
        and an index that it is told to have.

        >>> table.metadata.drop("secondary_index_by_city")  # doctest: +SKIP
        """
        access = self.access()
        if indexes:
            return self._drop_some(access, frozenset(indexes))
        if not has_metadata_table(access.properties()) and not self.storage.exists(METADATA_FOLDER):
            return False
        drop_metadata_table(access)
        return True

    def _drop_some(self, access: Access, indexes: frozenset[str]) -> bool:
        properties = access.properties()
        present = {*properties.metadata_partitions, *properties.metadata_partitions_inflight}
        if COLUMN_STATS in indexes:
            indexes |= {PARTITION_STATS}
        left = present - indexes
        by_records = {i for i in left if i.startswith(SECONDARY_PREFIX)}
        for needed, needy in ((FILES, left), (RECORD_INDEX, by_records)):
            if needed in indexes and needy:
                raise InputError(
                    f"The index {needed} is needed by {', '.join(sorted(needy))}.",
                    hint="Drop these too, or the whole metadata table by naming no index.",
                    context={"table": self.storage.uri},
                )
        if present <= indexes:
            drop_metadata_table(access)
            return bool(present)
        if not indexes & present:
            return False
        drop_indexes(access, indexes, forgotten=True)
        return True

    def rebuild(self, *indexes: str) -> Rebuilt:
        """Drop the metadata table and build it anew from the files, beside running writers.

        By default it gets the indexes that it had, as far as they are built here. Whoever writes
        between the two steps writes a table without metadata table, which is then listed.
        """
        refuse_unknown(self._now(), indexes)
        access = self.access()
        before = access.properties()
        had, columns = before.metadata_partitions, defined_columns(access.storage, before)
        wanted = _with_records(indexes or had)
        drop_metadata_table(access)
        build_beside_writers(access, wanted, self.registry, columns=columns)
        built = access.properties().metadata_partitions
        return Rebuilt(built, tuple(sorted(wanted.union(had).difference(built))))

    def build(
        self,
        *indexes: str,
        secondary: Mapping[str, str] | None = None,
        per_partition: bool | None = None,
    ) -> Built:
        """Add indexes to the metadata table, or begin one, while others go on writing.

        `secondary` names new secondary indexes and the column of each; they find rows by way of the
        record index, which is built with them. With `per_partition` the record index keeps the keys
        of each partition apart, where a key is one row in each; Hudi before 1.1 must not write the
        table then. Without it the index is for all keys, unless the table says otherwise.

        >>> table.metadata.build("column_stats", secondary={"by_city": "city"})  # doctest: +SKIP
        """
        now = self._now()
        refuse_unknown(now, indexes)
        if RECORD_INDEX in indexes:
            refuse_other_kind(now, per_partition)
        elif per_partition is not None:
            raise InputError(
                "Only a record index can be one per partition, and none is to be built.",
                hint=f"Name {RECORD_INDEX} too.",
                context={"table": self.storage.uri},
            )
        defined = [new_secondary_index(now, *each) for each in (secondary or {}).items()]
        wanted = _with_records((*indexes, *(definition.name for definition in defined)))
        access = self.access()
        before = frozenset(access.properties().metadata_partitions)
        build_beside_writers(
            access, wanted, self.registry, defined=defined, per_partition=per_partition
        )
        have = access.properties().metadata_partitions
        return Built(
            tuple(index for index in have if index not in before),
            tuple(sorted(wanted.difference(have))),
        )

    def _now(self) -> Snapshot:
        return load_snapshot(self.storage, clock=self.clock, use_metadata_table=False)


def _with_records(indexes: Collection[str]) -> frozenset[str]:
    """Indexes, and the record index if one of them finds rows by way of it."""
    secondary = any(name.startswith(SECONDARY_PREFIX) for name in indexes)
    return frozenset((*indexes, RECORD_INDEX) if secondary else indexes)
