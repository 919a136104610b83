"""Table properties as typed values: what each key means and what its absence means.

`TableProperties` wraps the stored pairs and never changes them; unknown keys stay visible through
`values`. Accessors answer with Hudi's defaults. Nothing here reads storage.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, tzinfo
from typing import Final

from lakewright.errors import UnsupportedTableError
from lakewright.format import property_keys as keys
from lakewright.format.instant_times import LOCAL_ZONE
from lakewright.format.key_generator import KeyGeneratorType, resolve_key_generator
from lakewright.format.version import TableVersion

__all__ = ["META_FOLDER", "TableProperties", "checksum", "stored_number"]

META_FOLDER = ".hoodie"


_VERSIONS: Final = {str(number): TableVersion.of(number) for number in (6, 8, 9)}
"""By what most tables say, since everybody asks for it all the time."""


def checksum(database: str | None, table: str) -> str:
    """The stored checksum: CRC-32 of `<database>.<table>`, the dot always there."""
    return str(zlib.crc32(f"{database or ''}.{table}".encode()))


@dataclass(frozen=True, slots=True)
class TableProperties:
    """The properties of one table; accessors answer with Hudi's defaults."""

    values: Mapping[str, str]

    def get(self, key: str, default: str | None = None) -> str | None:
        """The stored text of a key."""
        return self.values.get(key, default)

    def flag(self, key: str, default: bool) -> bool:
        """A boolean as Java parses it: `true` in any case, anything else is false."""
        text = self.values.get(key)
        return default if text is None else text.strip().lower() == "true"

    def names(self, key: str) -> tuple[str, ...]:
        """A comma-separated list without its empty parts."""
        parts = (part.strip() for part in self.values.get(key, "").split(","))
        return tuple(part for part in parts if part)

    def _enum(self, key: str, default: str, old_key: str | None = None) -> str:
        old = self.values.get(old_key, "") if old_key else ""
        return (self.values.get(key, "") or old).strip().upper() or default

    @property
    def name(self) -> str:
        """Name of the table."""
        return self.values.get(keys.NAME, "")

    @property
    def database(self) -> str:
        """Name of the database, empty if there is none."""
        return self.values.get(keys.DATABASE, "")

    @property
    def table_type(self) -> str:
        """`COPY_ON_WRITE` or `MERGE_ON_READ`."""
        return self._enum(keys.TYPE, "COPY_ON_WRITE")

    @property
    def is_merge_on_read(self) -> bool:
        """Whether file groups may have log files."""
        return self.table_type == "MERGE_ON_READ"

    @property
    def version(self) -> TableVersion:
        """The table version, to be asked by capability."""
        found = _VERSIONS.get(self.values.get(keys.VERSION, ""))
        return found or TableVersion.of(stored_number(self.values, keys.VERSION))

    @property
    def timeline_folder(self) -> str:
        """Folder of the active timeline, below the base path."""
        if not self.version.timeline_in_own_folder:
            return META_FOLDER
        return f"{META_FOLDER}/{self.values.get(keys.TIMELINE_PATH) or 'timeline'}"

    @property
    def history_folder(self) -> str:
        """Folder of the archived timeline, below the base path."""
        if not self.version.timeline_in_own_folder:
            return f"{META_FOLDER}/{self.values.get(keys.ARCHIVE_FOLDER) or 'archived'}"
        return f"{self.timeline_folder}/{self.values.get(keys.HISTORY_PATH) or 'history'}"

    @property
    def timeline_timezone(self) -> str:
        """`LOCAL` or `UTC`."""
        return self._enum(keys.TIMELINE_TIMEZONE, "LOCAL")

    @property
    def timeline_zone(self) -> tzinfo:
        """The zone of instant times; `LOCAL` is taken as this machine's."""
        return UTC if self.timeline_timezone == "UTC" else LOCAL_ZONE

    @property
    def base_file_format(self) -> str:
        """Format of base files, upper case."""
        return self._enum(keys.BASE_FILE_FORMAT, "PARQUET", keys.BASE_FILE_FORMAT_OLD)

    @property
    def log_file_format(self) -> str:
        """Format of log files, upper case."""
        return self._enum(keys.LOG_FILE_FORMAT, "HOODIE_LOG", keys.LOG_FILE_FORMAT_OLD)

    @property
    def record_key_fields(self) -> tuple[str, ...]:
        """Columns of the record key; empty if keys are generated."""
        return self.names(keys.RECORD_KEY_FIELDS)

    @property
    def partition_fields(self) -> tuple[str, ...]:
        """Columns of the partition path, without the types of custom key generators."""
        return tuple(name for name, _ in self._partition_fields())

    @property
    def partition_field_types(self) -> tuple[str | None, ...]:
        """`SIMPLE` or `TIMESTAMP` beside each partition field; None where no type is stored."""
        return tuple(kind for _, kind in self._partition_fields())

    def _partition_fields(self) -> list[tuple[str, str | None]]:
        split = (name.partition(":") for name in self.names(keys.PARTITION_FIELDS))
        return [(name, kind.upper() or None) for name, _, kind in split]

    @property
    def ordering_fields(self) -> tuple[str, ...]:
        """Columns that order versions of a record, most significant first."""
        return self.names(keys.ORDERING_FIELDS) or self.names(keys.PRECOMBINE_FIELD)

    @property
    def payload_class(self) -> str | None:
        """Stored payload class, with today's package name."""
        return _class_name(self.values.get(keys.PAYLOAD_CLASS))

    @property
    def legacy_payload_class(self) -> str | None:
        """Payload class a version 9 table was created with and no longer uses."""
        return _class_name(self.values.get(keys.LEGACY_PAYLOAD_CLASS))

    @property
    def merge_mode(self) -> str | None:
        """Stored merge mode, upper case."""
        return self._enum(keys.MERGE_MODE, "") or None

    @property
    def merge_strategy_id(self) -> str | None:
        """Stored merge strategy id, from either key."""
        stored = self.values.get(keys.MERGE_STRATEGY_ID)
        return stored or self.values.get(keys.MERGE_STRATEGY_ID_OLD) or None

    @property
    def partial_update_mode(self) -> str | None:
        """Stored partial update mode, where the version gives it a meaning."""
        if not self.version.partial_update_modes:
            return None
        return self._enum(keys.PARTIAL_UPDATE_MODE, "") or None

    @property
    def merge_properties(self) -> dict[str, str]:
        """Options of the merger, without their prefix."""
        return self._below(keys.MERGE_PROPERTY_PREFIX)

    @property
    def time_keygen_settings(self) -> dict[str, str]:
        """Settings of the timestamp key generator by suffix, from either prefix."""
        old = self._below(keys.TIME_KEYGEN_PREFIX_OLD)
        return {**old, **self._below(keys.TIME_KEYGEN_PREFIX)}

    def _below(self, prefix: str) -> dict[str, str]:
        return {k[len(prefix) :]: v for k, v in self.values.items() if k.startswith(prefix)}

    @property
    def key_generator(self) -> KeyGeneratorType:
        """The key generator the stored class, the stored type or the fields say."""
        kinds = self.partition_field_types
        return resolve_key_generator(
            self.key_generator_class,
            self.values.get(keys.KEY_GENERATOR_TYPE),
            key_fields=len(self.record_key_fields),
            partition_fields=len(kinds),
            typed_partition_fields=bool(kinds) and kinds[0] is not None,
        )

    @property
    def key_generator_class(self) -> str | None:
        """Stored class of the key generator, with today's package name."""
        return _class_name(self.values.get(keys.KEY_GENERATOR_CLASS))

    @property
    def hive_style(self) -> bool:
        """Partition folders are `column=value`."""
        return self.flag(keys.HIVE_STYLE, False)

    @property
    def url_encode(self) -> bool:
        """Partition values are escaped."""
        return self.flag(keys.URL_ENCODE, False)

    @property
    def drop_partition_columns(self) -> bool:
        """Partition columns are not in the data files."""
        return self.flag(keys.DROP_PARTITION_COLUMNS, False)

    @property
    def populate_meta_fields(self) -> bool:
        """Meta columns are filled; otherwise keys are formed from data columns."""
        mode = self._enum(keys.META_FIELDS_MODE, "")
        return mode == "ALL" if mode else self.flag(keys.POPULATE_META_FIELDS, True)

    @property
    def partition_metafile_base_format(self) -> bool:
        """Partition metadata files are in the base file format."""
        return self.flag(keys.PARTITION_METAFILE_BASE_FORMAT, False)

    @property
    def cdc_enabled(self) -> bool:
        """Writers add change data to their commits."""
        return self.flag(keys.CDC_ENABLED, False)

    @property
    def cdc_mode(self) -> str:
        """What change data holds: `DATA_BEFORE_AFTER`, `DATA_BEFORE` or `OP_KEY_ONLY`."""
        return self._enum(keys.CDC_MODE, "DATA_BEFORE_AFTER")

    @property
    def create_schema(self) -> str | None:
        """Avro schema the table was created with, without meta columns."""
        return self.values.get(keys.CREATE_SCHEMA) or None

    @property
    def metadata_partitions(self) -> tuple[str, ...]:
        """Finished partitions of the metadata table, which is usable if `files` is one."""
        return self.names(keys.METADATA_PARTITIONS)

    @property
    def metadata_partitions_inflight(self) -> tuple[str, ...]:
        """Partitions of the metadata table that are being built and must not be read."""
        return self.names(keys.METADATA_PARTITIONS_INFLIGHT)

    @property
    def index_definitions_path(self) -> str | None:
        """File of the index definitions, below the base path."""
        return self.values.get(keys.INDEX_DEFINITIONS_PATH) or None


def _class_name(stored: str | None) -> str | None:
    if not stored:
        return None
    old = "com.uber.hoodie"
    return f"org.apache.hudi{stored[len(old) :]}" if stored.startswith(f"{old}.") else stored


def stored_number(values: Mapping[str, str], key: str) -> int:
    """A small number that must be stored; `UnsupportedTableError` if it is not."""
    text = values.get(key, "").strip()
    if not (text.isascii() and text.isdigit() and len(text) < 6):
        raise UnsupportedTableError(
            f"{key} is {f'{text!r}, not a number' if text else 'missing'}.",
            hint="Releases of Hudi disagree on what that means, so it is not guessed: restore the "
            "property with the release that wrote the table.",
            context={"property": key, "value": text},
        )
    return int(text)
