"""A new metadata table: its properties, its first records, the times of its beginnings.

Pure. The `files` index begins with what a listing of the table found, as far as it was committed:
files of pending writes come with their own commits. Where names do not tell who wrote a log file, a
table must have nothing pending.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from lakewright.format import property_keys as keys
from lakewright.format.file_names import LogFileName, parse_data_file
from lakewright.format.partitions import ListedFile
from lakewright.format.table_properties import TableProperties, checksum
from lakewright.format.timeline import Timeline, is_beginning_time
from lakewright.metadata.definitions import IndexDefinition
from lakewright.metadata.encoding import MetadataRecords
from lakewright.metadata.file_changes import FileChanges
from lakewright.metadata.file_groups import IndexGroups

__all__ = ["NewIndex", "committed_files", "first_instant", "is_beginning", "metadata_properties"]

_FIRST: Final = "00000000000000"
_FIRST_SUFFIX: Final = 10
"""Version 6 numbers the beginnings of indexes from here, behind the time of the last commit."""
_SUFFIX_DIGITS: Final = 3
_DIGITS: Final = 17
_CLASSES: Final = "org.apache.hudi.metadata."


@dataclass(frozen=True, slots=True)
class NewIndex:
    """An index that begins with these records."""

    groups: IndexGroups
    """For as long as the index lives; partitions that come later get their own."""
    records: Mapping[str | None, MetadataRecords]
    """By the scope of their keys: a partition, or None for all."""
    definition: IndexDefinition | None = None

    @classmethod
    def of(
        cls,
        name: str,
        count: int,
        records: MetadataRecords,
        definition: IndexDefinition | None = None,
    ) -> NewIndex:
        """One with so many file groups for all keys."""
        return cls(IndexGroups.whole(name, count), {None: records}, definition)

    @property
    def name(self) -> str:
        """The partition of the metadata table."""
        return self.groups.index


def metadata_properties(data: TableProperties) -> TableProperties:
    """The properties of the metadata table of a table, in Hudi's words."""
    version = data.version
    name = f"{data.name}_metadata"
    values = {
        keys.NAME: name,
        keys.TYPE: "MERGE_ON_READ",
        keys.VERSION: str(version),
        keys.LAYOUT_VERSION: str(version.layout_version),
        keys.ARCHIVE_FOLDER: "history" if version.history_is_lsm else "archived",
        keys.BASE_FILE_FORMAT: "HFILE",
        keys.RECORD_KEY_FIELDS: "key",
        keys.POPULATE_META_FIELDS: "false",
        keys.PAYLOAD_CLASS: f"{_CLASSES}HoodieMetadataPayload",
        keys.DROP_PARTITION_COLUMNS: "false",
    }
    if version.timeline_in_own_folder:
        values |= {keys.TIMELINE_PATH: "timeline", keys.HISTORY_PATH: "history"}
    if version.key_generator_stored_as_type:
        values[keys.KEY_GENERATOR_TYPE] = "HOODIE_TABLE_METADATA"
    else:
        values[keys.KEY_GENERATOR_CLASS] = f"{_CLASSES}HoodieTableMetadataKeyGenerator"
    if version.merge_mode_stored:
        values[keys.INITIAL_VERSION] = str(version)
        values[keys.MERGE_MODE] = "CUSTOM"
        values[keys.MERGE_STRATEGY_ID] = "00000000-0000-0000-0000-000000000000"
    else:
        values[keys.MERGE_STRATEGY_ID_OLD] = "eeb8d96f-b1e4-49fd-bbf8-28ac514178e5"
    values[keys.CHECKSUM] = checksum(None, name)
    return TableProperties(values)


def first_instant(data: TableProperties, timeline: Timeline, taken: Iterable[str] = ()) -> str:
    """The time of the next beginning of an index, later than those of `taken`: what a process that
    only stood still writes into its own file groups is older."""
    base, first = _FIRST, 0
    if data.version.metadata_operation_suffixes:
        base, first = _latest(timeline) or _FIRST, _FIRST_SUFFIX
    suffixes = [time[len(base) :] for time in taken if time.startswith(base)]
    numbers = [int(suffix) for suffix in suffixes if len(suffix) == _SUFFIX_DIGITS]
    return f"{base}{max([first, *(number + 1 for number in numbers)]):0{_SUFFIX_DIGITS}d}"


def is_beginning(instant: str) -> bool:
    """Whether a time of the metadata table is that of the beginning of an index."""
    base, suffix = instant[:_DIGITS], instant[_DIGITS:]
    return is_beginning_time(base) or (suffix.isdigit() and int(suffix) >= _FIRST_SUFFIX)


def committed_files(timeline: Timeline, listing: Mapping[str, Iterable[ListedFile]]) -> FileChanges:
    """What a listing found, without files of writes that are not completed.

    A partition without any is told by the first write into it.
    """
    latest = _latest(timeline) or ""
    pending = {i.requested_time for i in timeline.pending()}
    pending -= {i.requested_time for i in timeline.completed()}
    plans = {i.requested_time for i in timeline.pending_compactions()}

    def counts(file: ListedFile) -> bool:
        parsed = parse_data_file(file.name)
        if parsed is None or not file.size:
            return False
        # A log may have the time of a compaction that is only planned, and that it is behind.
        left_out = pending - plans if isinstance(parsed, LogFileName) else pending
        return parsed.instant <= latest and parsed.instant not in left_out

    found = {p: {f.name: f.size for f in files if counts(f)} for p, files in listing.items()}
    written = {partition: sizes for partition, sizes in found.items() if sizes}
    return FileChanges(written, partitions=tuple(sorted(written)))


def _latest(timeline: Timeline) -> str | None:
    """The greatest time of a completed instant."""
    return max((i.requested_time for i in timeline.completed()), default=None)
