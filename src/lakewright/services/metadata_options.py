"""When the services of a metadata table run, and how much they keep. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Self

from lakewright.errors import OptionError
from lakewright.services.archive_options import ArchiveOptions
from lakewright.services.clean_options import CleanOptions

__all__ = ["MetadataUpkeep"]

COMMITS_KEY: Final = "hoodie.metadata.compact.max.delta.commits"


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataUpkeep:
    """When the metadata table is compacted, and what its table keeps."""

    compact_commits: int = 10
    """After so many commits its logs are compacted."""
    clean: CleanOptions = field(default_factory=CleanOptions)
    archive: ArchiveOptions = field(default_factory=ArchiveOptions)

    @classmethod
    def of(cls, options: Mapping[str, str], clean: CleanOptions, archive: ArchiveOptions) -> Self:
        """The options that Hudi's names say, beside those of the table's own services."""
        text = options.get(COMMITS_KEY, "10").strip()
        if not text.isdecimal() or int(text) < 1:
            raise OptionError(
                f"The option {COMMITS_KEY} has the value {text!r}, which it cannot have.",
                hint="Give a number of commits, at least 1.",
                context={"option": COMMITS_KEY, "value": text},
            )
        return cls(compact_commits=int(text), clean=clean, archive=archive)
