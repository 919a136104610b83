"""A table that does not exist yet: every choice of its creation as one value.

`NewTable.properties()` gives the pairs that Hudi stores for the same choices: those of Hudi 0.15
for version 6, those of Hudi 1.0 for version 8. Beyond Hudi's own pairs a few are kept that its
releases take from the options of every write and then forget (`remembered`), because here the table
says how it is written. A choice that cannot work is refused before anything is written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal, cast
from uuid import UUID

import pyarrow as pa

from lakewright.codec.avro.arrow_types import arrow_schema, from_arrow
from lakewright.codec.avro.schema import parse_schema, to_json
from lakewright.codec.avro.types import Record
from lakewright.engine.new_table_checks import check_columns, check_fields, check_key_generator
from lakewright.engine.table_choices import names, table_choices, truth
from lakewright.engine.time_settings import check_time_settings, time_settings
from lakewright.errors import ConfigError, FormatError, SchemaError
from lakewright.format import property_keys as keys
from lakewright.format.creation_schema import creation_schema
from lakewright.format.key_generator import (
    KeyGeneratorType,
    key_generator_class,
    resolve_key_generator,
)
from lakewright.format.table_properties import checksum
from lakewright.format.table_schema import record_name
from lakewright.format.version import SUPPORTED_VERSIONS, TableVersion
from lakewright.merge.inference import behaviour_properties, infer_behaviour
from lakewright.merge.names import EVENT_TIME_PAYLOAD, PAYLOAD_ID, MergeMode

__all__ = ["NewTable"]

CDC_MODES = ("DATA_BEFORE_AFTER", "DATA_BEFORE", "OP_KEY_ONLY")
TYPES = {"cow": "COPY_ON_WRITE", "mor": "MERGE_ON_READ"}
ARCHIVE_FOLDERS = {True: "history", False: "archived"}
_STORED_AS_GIVEN = (keys.CLUSTERING_REMOVABLE, keys.LOG_COMPACTION_REMOVABLE)


def _no_pairs() -> Mapping[str, str]:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTable:
    """Everything that is decided when a table is created."""

    name: str
    schema: pa.Schema | Record | str
    """Data columns: an Arrow schema, an Avro record or its JSON text."""
    type: Literal["cow", "mor"] = "cow"
    version: int = 8
    database: str = ""
    key_fields: tuple[str, ...] = ()
    """Columns of the record key; none: keys are generated."""
    partition_fields: tuple[str, ...] = ()
    """Columns of the partition path; `column:SIMPLE` or `column:TIMESTAMP` for CUSTOM."""
    ordering_fields: tuple[str, ...] = ()
    key_generator: str | None = None
    """A type (`SIMPLE`, `CUSTOM_AVRO`) or a class of Hudi's; None: what the fields suggest."""
    hive_style: bool = False
    url_encode: bool = False
    merge_mode: str | None = None
    payload_class: str | None = None
    merge_strategy_id: str | None = None
    populate_meta_fields: bool = True
    drop_partition_columns: bool = False
    partition_metafile_base_format: bool = False
    timeline_timezone: Literal["LOCAL", "UTC"] = "LOCAL"
    cdc: str | None = None
    """What change data holds: `DATA_BEFORE_AFTER`, `DATA_BEFORE` or `OP_KEY_ONLY`; None: no change
    data."""
    time_settings: Mapping[str, str] = field(default_factory=_no_pairs)
    """Settings of time-based partitions, by their full names or without their prefix."""
    extra: Mapping[str, str] = field(default_factory=_no_pairs)
    """Further properties, stored as they are."""

    @classmethod
    def from_hudi(
        cls, options: Mapping[str, str], schema: pa.Schema | Record | str, *, version: int = 8
    ) -> NewTable:
        """The table that a first write with these options of Hudi's makes.

        `version` counts where the options name none. Options that say nothing about a table are
        left to `WriteOptions`.
        """
        given = table_choices(options)
        cdc = (
            given.get(keys.CDC_MODE, CDC_MODES[0]) if _on(given, keys.CDC_ENABLED, False) else None
        )
        return cls(
            name=given.get(keys.NAME, ""),
            schema=schema,
            type=cast("Literal['cow', 'mor']", _type(given.get(keys.TYPE, TYPES["cow"]))),
            version=_number(given.get(keys.VERSION), version),
            database=given.get(keys.DATABASE, ""),
            key_fields=names(given.get(keys.RECORD_KEY_FIELDS)),
            partition_fields=names(given.get(keys.PARTITION_FIELDS)),
            ordering_fields=names(given.get(keys.ORDERING_FIELDS)),
            key_generator=given.get(keys.KEY_GENERATOR_CLASS) or given.get(keys.KEY_GENERATOR_TYPE),
            hive_style=_on(given, keys.HIVE_STYLE, False),
            url_encode=_on(given, keys.URL_ENCODE, False),
            merge_mode=given.get(keys.MERGE_MODE),
            payload_class=given.get(keys.PAYLOAD_CLASS),
            merge_strategy_id=given.get(keys.MERGE_STRATEGY_ID),
            populate_meta_fields=_on(given, keys.POPULATE_META_FIELDS, True),
            drop_partition_columns=_on(given, keys.DROP_PARTITION_COLUMNS, False),
            partition_metafile_base_format=_on(given, keys.PARTITION_METAFILE_BASE_FORMAT, False),
            timeline_timezone=cast(
                "Literal['LOCAL', 'UTC']", given.get(keys.TIMELINE_TIMEZONE, "LOCAL")
            ),
            cdc=cdc,
            time_settings={k: v for k, v in given.items() if k.startswith(keys.TIME_KEYGEN_PREFIX)},
            extra={key: given[key] for key in _STORED_AS_GIVEN if key in given},
        )

    def properties(self) -> dict[str, str]:
        """The pairs of `hoodie.properties`, checked; `ConfigError` or `SchemaError` if they cannot
        be."""
        version = self._checked_version()
        generator, avro_twin = self._generator()
        record = self.avro_schema()
        fields = arrow_schema(record)
        check_columns(record.fields, self.name)
        check_key_generator(self, generator)
        check_fields(self, fields, version)
        timed = self._timed_fields(generator)
        settings = time_settings(self.time_settings)
        check_time_settings(settings, timed, fields)
        values = {
            keys.NAME: self.name,
            keys.TYPE: self._choice("type", TYPES),
            keys.VERSION: str(version.number),
            keys.LAYOUT_VERSION: str(version.layout_version),
            keys.ARCHIVE_FOLDER: ARCHIVE_FOLDERS[version.timeline_in_own_folder],
            keys.BASE_FILE_FORMAT: "PARQUET",
            keys.CREATE_SCHEMA: to_json(creation_schema(record)),
            keys.PARTITION_FIELDS: self._stored_partition_fields(version, generator),
            keys.TIMELINE_TIMEZONE: self._timezone(),
            **self._flags(),
            **self._merging(version),
            **{keys.TIME_KEYGEN_PREFIX + k: v for k, v in settings.items()},
        }
        if self.key_fields:
            values[keys.RECORD_KEY_FIELDS] = ",".join(self.key_fields)
        if version.key_generator_stored_as_type:
            values[keys.KEY_GENERATOR_TYPE] = generator + ("_AVRO" if avro_twin else "")
        else:
            values[keys.KEY_GENERATOR_CLASS] = key_generator_class(generator, avro=avro_twin)
        if version.timeline_in_own_folder:
            values[keys.INITIAL_VERSION] = str(version.number)
            values[keys.TIMELINE_PATH] = "timeline"
            values[keys.HISTORY_PATH] = "history"
            values[keys.MULTIPLE_FORMATS] = "false"
        if self.database or not version.timeline_in_own_folder:
            values[keys.DATABASE] = self.database
        values = self._with_extra(values)
        values[keys.CHECKSUM] = checksum(self.database, self.name)
        return values

    def remembered(self) -> frozenset[str]:
        """Stored keys that the Hudi release of this version leaves to the options of each write."""
        version, (generator, _) = self._checked_version(), self._generator()
        stored = self.properties()
        timed = {k for k in stored if k.startswith(keys.TIME_KEYGEN_PREFIX)}
        if generator is KeyGeneratorType.TIMESTAMP:
            forgets_type = not version.timeline_in_own_folder
            timed &= {f"{keys.TIME_KEYGEN_PREFIX}timestamp.type"} if forgets_type else set()
        if not version.merge_mode_stored and self.type == "cow":
            timed |= {keys.PAYLOAD_CLASS} & set(stored)
        return frozenset(timed)

    def avro_schema(self) -> Record:
        """The data columns as an Avro record with Hudi's names."""
        if isinstance(self.schema, Record):
            return self.schema
        if isinstance(self.schema, str):
            parsed = parse_schema(self.schema)
            if not isinstance(parsed, Record):
                raise SchemaError(
                    "The schema of a new table is not a record.",
                    hint="Give an Avro record with one field for each column.",
                    context={"table": self.name},
                )
            return parsed
        name, namespace = record_name(self.name)
        return from_arrow(self.schema, name=name, namespace=namespace)

    # -- parts of the properties --------------------------------------------------------------

    def _flags(self) -> dict[str, str]:
        told = {
            keys.HIVE_STYLE: self.hive_style,
            keys.URL_ENCODE: self.url_encode,
            keys.DROP_PARTITION_COLUMNS: self.drop_partition_columns,
            keys.POPULATE_META_FIELDS: self.populate_meta_fields,
            keys.PARTITION_METAFILE_BASE_FORMAT: self.partition_metafile_base_format,
            keys.CDC_ENABLED: self.cdc is not None,
        }
        flags = {key: "true" if flag else "false" for key, flag in told.items()}
        if self.cdc is not None:
            flags[keys.CDC_MODE] = self._choice("cdc", {mode: mode for mode in CDC_MODES})
        return flags

    def _merging(self, version: TableVersion) -> dict[str, str]:
        mode = self._mode()
        payload, chosen = self.payload_class, self.payload_class is not None or mode is not None
        if not version.merge_mode_stored and payload is None and mode is not None:
            payload = infer_behaviour(version, mode=mode).payload_class
        stored = behaviour_properties(
            version,
            merge_on_read=self.type == "mor",
            mode=mode,
            payload=payload,
            strategy=self._strategy(),
            ordering_fields=self.ordering_fields,
        )
        if version.merge_mode_stored and mode is None and payload == EVENT_TIME_PAYLOAD:
            # Release 1.0 runs this class as a payload and refuses to write where another mode is.
            stored[keys.MERGE_MODE] = MergeMode.CUSTOM.value
            stored[keys.MERGE_STRATEGY_ID] = str(PAYLOAD_ID)
        event_time = stored.get(keys.MERGE_MODE) == MergeMode.EVENT_TIME.value
        if (event_time or mode is MergeMode.EVENT_TIME) and not self.ordering_fields:
            raise ConfigError(
                "Event-time ordering needs an ordering field, and none is given.",
                hint="Name the column that orders versions of a row, or merge by commit time.",
                context={"table": self.name, "merge_mode": MergeMode.EVENT_TIME.value},
            )
        if not version.merge_mode_stored and chosen and payload is not None:
            stored[keys.PAYLOAD_CLASS] = payload
        return stored

    def _mode(self) -> MergeMode | None:
        if self.merge_mode is None:
            return None
        return MergeMode(self._choice("merge_mode", {mode.value: mode.value for mode in MergeMode}))

    def _strategy(self) -> UUID | None:
        text = self.merge_strategy_id
        try:
            return UUID(text) if text else None
        except ValueError:
            raise ConfigError(
                f"merge_strategy_id={text} is not a strategy id.",
                hint="A merge strategy id is a UUID.",
                context={"table": self.name},
            ) from None

    def _timezone(self) -> str:
        return self._choice("timeline_timezone", {"LOCAL": "LOCAL", "UTC": "UTC"})

    def _choice(self, name: str, known: Mapping[str, str]) -> str:
        value = str(getattr(self, name))
        for spelling in (value, value.upper(), value.lower()):
            if spelling in known:
                return known[spelling]
        raise ConfigError(
            f"{name}={value} is not known.",
            hint=f"Choose one of {', '.join(known)}.",
            context={"table": self.name, "option": name},
        )

    def _generator(self) -> tuple[KeyGeneratorType, bool]:
        """The generator, and whether its Avro twin is meant."""
        given = self.key_generator or ""
        try:
            found = resolve_key_generator(
                given if "." in given else None,
                given if given and "." not in given else None,
                key_fields=len(self.key_fields),
                partition_fields=len(self.partition_fields),
                typed_partition_fields=any(":" in name for name in self.partition_fields),
            )
        except FormatError as error:
            raise ConfigError(
                f"key_generator={given} is not known.",
                hint=error.hint,
                context={"table": self.name},
            ) from None
        return found, given.upper().endswith("_AVRO") or "Avro" in given

    def _timed_fields(self, generator: KeyGeneratorType) -> tuple[str, ...]:
        pairs = [name.partition(":") for name in self.partition_fields]
        if generator is KeyGeneratorType.TIMESTAMP:
            return tuple(name for name, _, _ in pairs)
        return tuple(name for name, _, kind in pairs if kind.upper() == "TIMESTAMP")

    def _stored_partition_fields(self, version: TableVersion, generator: KeyGeneratorType) -> str:
        typed = version.typed_partition_fields and generator is KeyGeneratorType.CUSTOM
        return ",".join(
            f"{name}:{kind.upper()}" if typed and kind else name
            for name, _, kind in (given.partition(":") for given in self.partition_fields)
        )

    def _checked_version(self) -> TableVersion:
        version = TableVersion.of(self.version)
        if not version.writable:
            names = " and ".join(str(v) for v in SUPPORTED_VERSIONS if v.writable)
            raise ConfigError(
                f"Tables of version {version} are read only here.",
                hint=f"Create the table with version {names}.",
                context={"table": self.name, "version": version.number},
            )
        return version

    def _with_extra(self, values: dict[str, str]) -> dict[str, str]:
        owned = {**values, keys.CHECKSUM: ""}
        for key, value in self.extra.items():
            if key in owned and owned[key] != value:
                raise ConfigError(
                    f"{key}={value} contradicts {key}={owned[key]}, which the other choices mean.",
                    hint="Leave the property out, or change the choice that it belongs to.",
                    context={"table": self.name, "property": key},
                )
        return values | dict(self.extra)


def _on(given: Mapping[str, str], key: str, default: bool) -> bool:
    return truth(key, given[key]) if key in given else default


def _type(text: str) -> str:
    """The short name of a table type; what is unknown stays, to be refused with the rest."""
    return next((short for short, long in TYPES.items() if long == text.upper()), text)


def _number(text: str | None, default: int) -> int:
    if text is None:
        return default
    if not text.strip().isdecimal():
        raise ConfigError(
            f"{keys.VERSION}={text} is not a number.",
            hint="Give the number of a table version.",
            context={"option": keys.VERSION, "value": text},
        )
    return int(text)
