"""Which services run with a write, beside it or after it. Pure: options in, a value out.

As with Hudi, cleaning and archiving are on and compaction is off; a stream is the exception, beside
which a merge-on-read table is compacted. Options are read before the write begins, so that a bad
one is told while nothing has happened yet.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Self

from lakewright.engine.write_options import WriteOptions
from lakewright.services.archive_options import ArchiveOptions
from lakewright.services.clean_options import CleanOptions
from lakewright.services.compaction_plan import CompactionOptions
from lakewright.services.metadata_options import MetadataUpkeep
from lakewright.services.service_options import (
    archive_options_of,
    clean_options_of,
    compaction_options_of,
    metadata_upkeep_of,
)

__all__ = ["Compacting", "ServiceSwitches"]


class Compacting(Enum):
    """What becomes of logs."""

    SCHEDULED = "scheduled"
    """A plan is put on the timeline, for somebody else to execute."""
    DONE = "done"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceSwitches:
    """The services to run, each with its options; None is not at all."""

    clean: CleanOptions | None = None
    archive: ArchiveOptions | None = None
    compaction: CompactionOptions | None = None
    compacting: Compacting = Compacting.DONE
    metadata: MetadataUpkeep | None = None
    """The services of the metadata table."""
    not_done: tuple[str, ...] = ()
    """Options that ask for services which are not run here."""

    @classmethod
    def after(cls, write: WriteOptions) -> Self:
        """What runs after the commit of a write."""
        if not write.table_services:
            return cls()
        compacts = write.compact_inline or write.compact_schedule_inline
        scheduled = write.compact_schedule_inline
        cleans = write.clean_automatic and not write.clean_async
        archives = write.archive_automatic and not write.archive_async
        return cls(
            clean=clean_options_of(write) if cleans else None,
            archive=archive_options_of(write) if archives else None,
            compaction=compaction_options_of(write) if compacts else None,
            compacting=Compacting.SCHEDULED if scheduled else Compacting.DONE,
            metadata=metadata_upkeep_of(write),
            not_done=tuple(_not_done(write)),
        )

    @classmethod
    def beside(cls, write: WriteOptions) -> Self:
        """What runs beside a write, and is waited for after its commit."""
        if not write.table_services:
            return cls()
        cleans = write.clean_automatic and write.clean_async
        archives = write.archive_automatic and write.archive_async
        return cls(
            clean=clean_options_of(write) if cleans else None,
            archive=archive_options_of(write) if archives else None,
        )

    @classmethod
    def beside_stream(cls, write: WriteOptions) -> Self:
        """What runs beside the batches of a stream, and is not waited for."""
        inline = write.compact_inline or write.compact_schedule_inline
        compacts = write.table_services and write.compact_async and not inline
        return cls(compaction=compaction_options_of(write) if compacts else None)

    @classmethod
    def all(cls, write: WriteOptions) -> Self:
        """Every service that is not switched off, for a run of its own."""
        return cls(
            clean=clean_options_of(write) if write.clean_automatic else None,
            archive=archive_options_of(write) if write.archive_automatic else None,
            compaction=compaction_options_of(write),
            metadata=metadata_upkeep_of(write),
        )

    @property
    def anything(self) -> bool:
        """Whether there is a service to run."""
        services = (self.clean, self.archive, self.compaction, self.metadata)
        return any(one is not None for one in services)


def _not_done(write: WriteOptions) -> Iterator[str]:
    asked = {
        "hoodie.clustering.inline": write.cluster_inline,
        "hoodie.clustering.schedule.inline": write.cluster_schedule_inline,
        "hoodie.log.compaction.inline": write.log_compact_inline,
    }
    return (option for option, wanted in asked.items() if wanted)
