"""How a table forms record keys and partition paths, as one declarative value.

A `KeySpec` is everything the key generator of a table depends on: fields, generator, folder style,
escaping, the settings of time-based partitions, and the two choices that Hudi does not store in the
table (how a COMPLEX generator writes a single key field, and which of its two code paths turned
timestamps into text). It is plain data, so that the Arrow kernels here and expressions of other
engines are compiled from the same value.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType

from lakewright.errors import FormatError
from lakewright.format.key_generator import KeyGeneratorType
from lakewright.format.table_properties import TableProperties

__all__ = ["KeySpec", "PartitionField", "PartitionKind", "TextPath"]

SLASH_SEPARATED_DATES = "hoodie.datasource.write.slash.separated.date.partitioning"
CONSISTENT_TIMESTAMPS = "hoodie.datasource.write.keygenerator.consistent.logical.timestamp.enabled"


class TextPath(Enum):
    """Which of Hudi's two code paths turns values into text; they differ in timestamps only."""

    AVRO = "avro"
    """Upserts and inserts: timestamps as their stored number."""
    ROW = "row"
    """Bulk inserts by rows: timestamps as `java.sql.Timestamp` writes them."""


class PartitionKind(Enum):
    """How the value of a partition field becomes a part of the path."""

    SIMPLE = "SIMPLE"
    TIMESTAMP = "TIMESTAMP"
    UNKNOWN = "UNKNOWN"
    """Either: version 6 does not store the types of a CUSTOM generator."""


@dataclass(frozen=True, slots=True)
class PartitionField:
    """One field of the partition path; `name` may be a dotted path into structs."""

    name: str
    kind: PartitionKind = PartitionKind.SIMPLE


@dataclass(frozen=True, slots=True)
class KeySpec:
    """Everything that record keys and partition paths of a table depend on."""

    record_key_fields: tuple[str, ...]
    partition_fields: tuple[PartitionField, ...]
    generator: KeyGeneratorType
    hive_style: bool = False
    url_encode: bool = False
    slash_separated_dates: bool = False
    drops_partition_columns: bool = False
    names_single_key: bool = False
    """A key of one field is `field:value` and not the bare value."""
    text_path: TextPath = TextPath.AVRO
    zone: str = "UTC"
    """The JVM's zone, for timestamps of the row path and time partitions without a zone."""
    sql_timestamps: bool = False
    """Timestamps in paths are `yyyy-MM-dd HH:mm:ss`, escaped, as Spark SQL writes them."""
    time_settings: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Settings of time-based partitions by the last part of their property names."""

    @classmethod
    def from_properties(
        cls,
        properties: TableProperties,
        *,
        names_single_key: bool = False,
        text_path: TextPath | None = None,
        zone: str = "UTC",
        partition_kinds: Mapping[str, PartitionKind] = MappingProxyType({}),
    ) -> KeySpec:
        """The spec of a stored table.

        `names_single_key` and `text_path` are choices of the table's writers that no property
        holds; the defaults are those of virtual keys and of upserts. `partition_kinds` tells what
        version 6 does not store of a CUSTOM generator.
        """
        generator = properties.key_generator
        consistent = properties.flag(CONSISTENT_TIMESTAMPS, False)
        return cls(
            record_key_fields=properties.record_key_fields,
            partition_fields=_partition_fields(properties, generator, partition_kinds),
            generator=generator,
            hive_style=properties.hive_style,
            url_encode=properties.url_encode,
            slash_separated_dates=properties.flag(SLASH_SEPARATED_DATES, False),
            drops_partition_columns=properties.drop_partition_columns,
            names_single_key=names_single_key,
            text_path=text_path or (TextPath.ROW if consistent else TextPath.AVRO),
            zone=zone,
            time_settings=MappingProxyType(properties.time_keygen_settings),
        )

    @property
    def forms_partition_paths(self) -> bool:
        """Whether paths follow from columns by known rules."""
        return self.generator is not KeyGeneratorType.USER_PROVIDED


def _partition_fields(
    properties: TableProperties,
    generator: KeyGeneratorType,
    told: Mapping[str, PartitionKind],
) -> tuple[PartitionField, ...]:
    if generator in (KeyGeneratorType.NON_PARTITION, KeyGeneratorType.GLOBAL_DELETE):
        return ()
    default = {
        KeyGeneratorType.TIMESTAMP: PartitionKind.TIMESTAMP,
        KeyGeneratorType.CUSTOM: PartitionKind.UNKNOWN,
    }.get(generator, PartitionKind.SIMPLE)
    pairs = zip(properties.partition_fields, properties.partition_field_types, strict=True)
    return tuple(
        PartitionField(name, told.get(name, default) if kind is None else _kind(kind, name))
        for name, kind in pairs
    )


def _kind(text: str, name: str) -> PartitionKind:
    if text.upper() in ("SIMPLE", "TIMESTAMP"):
        return PartitionKind(text.upper())
    raise FormatError(
        f"Partition field {name} has the unknown type {text}.",
        hint="hoodie.table.partition.fields takes SIMPLE or TIMESTAMP after a colon.",
        context={"property": "hoodie.table.partition.fields", "field": name, "type": text},
    )
