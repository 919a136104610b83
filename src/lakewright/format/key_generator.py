"""Which key generator a table uses: the type, from a stored class, a stored type, or inference.

A stored class wins over a stored type, and a type over inference, as in Hudi. The row and the Avro
twin of a generator form the same keys and are one type here. A class nobody knows is
`USER_PROVIDED`: reading such a table works, forming keys for it is refused elsewhere.
"""

from __future__ import annotations

from enum import StrEnum

from lakewright.errors import FormatError

__all__ = ["KeyGeneratorType", "key_generator_class", "resolve_key_generator"]


class KeyGeneratorType(StrEnum):
    """Key generators by Hudi's type name; each stands for its `_AVRO` twin too."""

    SIMPLE = "SIMPLE"
    COMPLEX = "COMPLEX"
    TIMESTAMP = "TIMESTAMP"
    CUSTOM = "CUSTOM"
    NON_PARTITION = "NON_PARTITION"
    GLOBAL_DELETE = "GLOBAL_DELETE"
    AUTO_RECORD = "AUTO_RECORD"
    HOODIE_TABLE_METADATA = "HOODIE_TABLE_METADATA"
    SPARK_SQL = "SPARK_SQL"
    SPARK_SQL_UUID = "SPARK_SQL_UUID"
    SPARK_SQL_MERGE_INTO = "SPARK_SQL_MERGE_INTO"
    USER_PROVIDED = "USER_PROVIDED"


_BY_CLASS = {
    "SimpleKeyGenerator": KeyGeneratorType.SIMPLE,
    "SimpleAvroKeyGenerator": KeyGeneratorType.SIMPLE,
    "ComplexKeyGenerator": KeyGeneratorType.COMPLEX,
    "ComplexAvroKeyGenerator": KeyGeneratorType.COMPLEX,
    "TimestampBasedKeyGenerator": KeyGeneratorType.TIMESTAMP,
    "TimestampBasedAvroKeyGenerator": KeyGeneratorType.TIMESTAMP,
    "CustomKeyGenerator": KeyGeneratorType.CUSTOM,
    "CustomAvroKeyGenerator": KeyGeneratorType.CUSTOM,
    "NonpartitionedKeyGenerator": KeyGeneratorType.NON_PARTITION,
    "NonpartitionedAvroKeyGenerator": KeyGeneratorType.NON_PARTITION,
    "GlobalDeleteKeyGenerator": KeyGeneratorType.GLOBAL_DELETE,
    "GlobalAvroDeleteKeyGenerator": KeyGeneratorType.GLOBAL_DELETE,
    "AutoRecordGenWrapperKeyGenerator": KeyGeneratorType.AUTO_RECORD,
    "AutoRecordGenWrapperAvroKeyGenerator": KeyGeneratorType.AUTO_RECORD,
    "HoodieTableMetadataKeyGenerator": KeyGeneratorType.HOODIE_TABLE_METADATA,
    "SqlKeyGenerator": KeyGeneratorType.SPARK_SQL,
    "UuidKeyGenerator": KeyGeneratorType.SPARK_SQL_UUID,
    "MergeIntoKeyGenerator": KeyGeneratorType.SPARK_SQL_MERGE_INTO,
}

KEY_GENERATOR_PACKAGE = "org.apache.hudi.keygen."
_HUDI_PACKAGES = ("org.apache.hudi.", "com.uber.hoodie.", "org.apache.spark.sql.hudi.")


def resolve_key_generator(
    class_name: str | None,
    type_name: str | None,
    *,
    key_fields: int,
    partition_fields: int,
    typed_partition_fields: bool,
) -> KeyGeneratorType:
    """The generator of a table from what its properties store and how many fields they name."""
    if class_name:
        known = _BY_CLASS.get(class_name.rsplit(".", 1)[-1])
        ours = class_name.startswith(_HUDI_PACKAGES)
        return known if known is not None and ours else KeyGeneratorType.USER_PROVIDED
    if type_name:
        try:
            return KeyGeneratorType(type_name.upper().removesuffix("_AVRO"))
        except ValueError:
            raise FormatError(
                f"hoodie.table.keygenerator.type={type_name} names no key generator.",
                hint=f"Set it to one of {', '.join(KeyGeneratorType)} (or its _AVRO twin).",
                context={"property": "hoodie.table.keygenerator.type", "value": type_name},
            ) from None
    if partition_fields == 0:
        return KeyGeneratorType.NON_PARTITION
    if typed_partition_fields:
        return KeyGeneratorType.CUSTOM
    if partition_fields == 1 and key_fields <= 1:
        return KeyGeneratorType.SIMPLE
    return KeyGeneratorType.COMPLEX


def key_generator_class(generator: KeyGeneratorType, *, avro: bool = False) -> str:
    """The class of Hudi's that stands for a generator, or its Avro twin."""
    names = [name for name, kind in _BY_CLASS.items() if kind is generator]
    return KEY_GENERATOR_PACKAGE + names[1 if avro else 0]
