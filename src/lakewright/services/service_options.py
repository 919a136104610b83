"""Options of services from those of a write; the defaults are Hudi's.

Every service has one way from Hudi's names to its own options, whoever starts it: a write, a
program or the command line.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from enum import Enum
from typing import Any, Final, TypeVar

from lakewright.engine.write_options import WriteOptions
from lakewright.errors import OptionError
from lakewright.services.archive_options import ArchiveOptions
from lakewright.services.clean_options import CleanOptions
from lakewright.services.compaction_plan import (
    CompactionOptions,
    CompactionStrategy,
    CompactionTrigger,
)
from lakewright.services.metadata_options import MetadataUpkeep

__all__ = [
    "archive_options_of",
    "clean_options_of",
    "compaction_options",
    "compaction_options_of",
    "metadata_upkeep_of",
]

Choice = TypeVar("Choice", bound=Enum)

_NUMBERS: Final = {
    "hoodie.compact.inline.max.delta.commits": "commits",
    "hoodie.compact.inline.max.delta.seconds": "seconds",
    "hoodie.compaction.target.io": "target_io_mb",
    "hoodie.compaction.logfile.size.threshold": "log_bytes",
    "hoodie.compaction.logfile.num.threshold": "log_files",
    "hoodie.compaction.daybased.target.partitions": "partitions",
    "hoodie.parquet.max.file.size": "parquet_max_bytes",
    "hoodie.memory.compaction.max.size": "merge_memory",
}
_TRIGGER: Final = "hoodie.compact.inline.trigger.strategy"
_STRATEGY: Final = "hoodie.compaction.strategy"


def compaction_options(given: Mapping[str, str]) -> CompactionOptions:
    """The options of a compaction; `OptionError` names what cannot be understood."""
    chosen: dict[str, Any] = {
        field: _number(key, given[key]) for key, field in _NUMBERS.items() if key in given
    }
    if _TRIGGER in given:
        chosen["trigger"] = _choice(_TRIGGER, given[_TRIGGER], CompactionTrigger)
    if _STRATEGY in given:
        name = given[_STRATEGY].rpartition(".")[2]
        chosen["strategy"] = _choice(_STRATEGY, name, CompactionStrategy)
    return replace(CompactionOptions(), **chosen)


def compaction_options_of(write: WriteOptions) -> CompactionOptions:
    """What a write's options say about compaction."""
    settings = {**write.service_settings, "hoodie.parquet.max.file.size": str(write.max_file_size)}
    return compaction_options(settings)


def clean_options_of(write: WriteOptions) -> CleanOptions:
    """What a write's options say about cleaning."""
    chosen = CleanOptions.of(write.service_settings)
    return replace(chosen, drop_metadata_table=write.metadata_table == "drop")


def archive_options_of(write: WriteOptions) -> ArchiveOptions:
    """What a write's options say about archiving."""
    return ArchiveOptions.of(write.service_settings)


def metadata_upkeep_of(write: WriteOptions) -> MetadataUpkeep:
    """What a write's options say about the metadata table's own services.

    They follow those of the table, as far as these are on.
    """
    clean = clean_options_of(write) if write.clean_automatic else CleanOptions()
    archive = archive_options_of(write) if write.archive_automatic else ArchiveOptions()
    return MetadataUpkeep.of(write.service_settings, clean, archive)


def _number(key: str, text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = -1
    if number < 0:
        raise OptionError(
            f"{key} must be a number that is not negative, not {text!r}.",
            hint="Leave it out to get the default.",
            context={"option": key, "value": text},
        )
    return number


def _choice(key: str, text: str, kind: type[Choice]) -> Choice:
    for member in kind:
        if text in (member.value, member.name):
            return member
    known = ", ".join(str(member.value) for member in kind)
    raise OptionError(
        f"{key} cannot be {text!r}.",
        hint=f"Choose one of {known}.",
        context={"option": key, "value": text},
    )
