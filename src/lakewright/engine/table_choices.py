"""Options of Hudi's that say what a table is, under all their names.

Hudi takes the same choice under the name of a write option, of a table property and of older
releases. Here every choice has one name, that of the table property. Two names with different
values are a `ConfigError` that tells both; so is an option that contradicts an existing table.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from lakewright.errors import ConfigError, FormatError
from lakewright.format import property_keys as keys
from lakewright.format.key_generator import resolve_key_generator
from lakewright.format.table_properties import TableProperties

__all__ = [
    "TABLE_OPTIONS",
    "names",
    "refuse_contradictions",
    "table_choices",
    "truth",
    "without_merging",
]

_WRITE: Final = "hoodie.datasource.write."

TABLE_OPTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    keys.NAME: (f"{_WRITE}table.name",),
    keys.DATABASE: (),
    keys.TYPE: (f"{_WRITE}table.type", f"{_WRITE}storage.type"),
    keys.VERSION: ("hoodie.write.table.version",),
    keys.RECORD_KEY_FIELDS: (f"{_WRITE}recordkey.field",),
    keys.PARTITION_FIELDS: (f"{_WRITE}partitionpath.field",),
    keys.ORDERING_FIELDS: (
        f"{_WRITE}precombine.field",
        keys.PRECOMBINE_FIELD,
        "hoodie.payload.ordering.field",
    ),
    keys.KEY_GENERATOR_CLASS: (f"{_WRITE}keygenerator.class",),
    keys.KEY_GENERATOR_TYPE: (f"{_WRITE}keygenerator.type",),
    keys.HIVE_STYLE: (),
    keys.URL_ENCODE: (),
    keys.DROP_PARTITION_COLUMNS: (),
    keys.POPULATE_META_FIELDS: (),
    keys.PARTITION_METAFILE_BASE_FORMAT: (),
    keys.TIMELINE_TIMEZONE: (),
    keys.CDC_ENABLED: (),
    keys.CDC_MODE: (),
    keys.CLUSTERING_REMOVABLE: (),
    keys.LOG_COMPACTION_REMOVABLE: (),
    keys.PAYLOAD_CLASS: (f"{_WRITE}payload.class",),
    keys.MERGE_MODE: ("hoodie.write.record.merge.mode",),
    keys.MERGE_STRATEGY_ID: (
        "hoodie.write.record.merge.strategy.id",
        f"{_WRITE}record.merger.strategy",
        keys.MERGE_STRATEGY_ID_OLD,
    ),
}
"""Table properties, each with the other names of the same choice."""

_CANONICAL: Final = {
    spelling: key for key, others in TABLE_OPTIONS.items() for spelling in (key, *others)
}
_MERGING: Final = frozenset(
    {keys.ORDERING_FIELDS, keys.PAYLOAD_CLASS, keys.MERGE_MODE, keys.MERGE_STRATEGY_ID}
)
_FLAGS: Final = {
    keys.HIVE_STYLE: False,
    keys.URL_ENCODE: False,
    keys.DROP_PARTITION_COLUMNS: False,
    keys.POPULATE_META_FIELDS: True,
    keys.CDC_ENABLED: False,
    keys.CLUSTERING_REMOVABLE: False,
    keys.LOG_COMPACTION_REMOVABLE: True,
}


def names(text: str | None) -> tuple[str, ...]:
    """A comma-separated list without its empty parts."""
    return tuple(part.strip() for part in (text or "").split(",") if part.strip())


def truth(key: str, text: str) -> bool:
    """A switch; `ConfigError` for anything but true and false."""
    plain = text.strip().lower()
    if plain not in ("true", "false"):
        raise ConfigError(
            f"{key}={text} is neither true nor false.",
            hint="Set it to true or false.",
            context={"option": key, "value": text},
        )
    return plain == "true"


def table_choices(options: Mapping[str, str]) -> dict[str, str]:
    """What the options say about the table, by the names of table properties.

    Settings of time-based partitions are given under their present prefix.
    """
    found: dict[str, str] = {}
    told_by: dict[str, str] = {}
    for option, value in options.items():
        key = _canonical(option)
        if key is None:
            continue
        if key in found and found[key] != value:
            raise ConfigError(
                f"{option}={value} contradicts {told_by[key]}={found[key]}: both mean {key}.",
                hint="Give one of them.",
                context={"option": option, "other": told_by[key]},
            )
        found[key], told_by[key] = value, option
    return found


def without_merging(options: Mapping[str, str]) -> dict[str, str]:
    """The options that do not say how rows of one key meet."""
    return {
        option: value for option, value in options.items() if _canonical(option) not in _MERGING
    }


def _canonical(option: str) -> str | None:
    old = keys.TIME_KEYGEN_PREFIX_OLD
    if option.startswith(old):
        return keys.TIME_KEYGEN_PREFIX + option[len(old) :]
    if option.startswith(keys.TIME_KEYGEN_PREFIX):
        return option
    return _CANONICAL.get(option)


def refuse_contradictions(options: Mapping[str, str], properties: TableProperties) -> None:
    """Raise `ConfigError` if an option says of the table what it is not."""
    for key, value in table_choices(options).items():
        is_now = _contradicted(key, value, properties)
        if is_now is None:
            continue
        option = next(o for o in options if _canonical(o) == key)
        raise ConfigError(
            f"{option}={value} contradicts the table, which has {is_now}.",
            hint="Leave the option out: what a table is was decided when it was created.",
            context={"table": properties.name, "option": option, "value": value, "stored": is_now},
        )


def _contradicted(key: str, value: str, properties: TableProperties) -> str | None:
    """What the table has instead; None if it agrees or says nothing."""
    if key in (keys.KEY_GENERATOR_CLASS, keys.KEY_GENERATOR_TYPE):
        return _other_generator(key, value, properties)
    if key in _FLAGS:
        flag = properties.flag(key, _FLAGS[key])
        return None if truth(key, value) == flag else f"{key}={str(flag).lower()}"
    if key == keys.PARTITION_FIELDS:
        return _other_partition_fields(value, properties)
    if key in (keys.RECORD_KEY_FIELDS, keys.ORDERING_FIELDS):
        record_keys = key == keys.RECORD_KEY_FIELDS
        mine = properties.record_key_fields if record_keys else properties.ordering_fields
        # Without a stored ordering field, a write may name the one it combines its rows by.
        agrees = names(value) == mine or (not record_keys and not mine)
        return None if agrees else f"{key}={','.join(mine)}"
    if key == keys.TYPE:
        same = value.upper() == properties.table_type
        return None if same else f"{key}={properties.table_type}"
    if key in (keys.MERGE_STRATEGY_ID, keys.PAYLOAD_CLASS):
        typed = key == keys.PAYLOAD_CLASS
        stored = properties.payload_class if typed else properties.merge_strategy_id
    else:
        stored = properties.get(key)
    if not stored:
        return None
    cased = key.startswith(keys.TIME_KEYGEN_PREFIX) or key in (keys.NAME, keys.DATABASE)
    same = value == stored if cased else value.strip().upper() == stored.upper()
    return None if same else f"{key}={stored}"


def _other_partition_fields(value: str, properties: TableProperties) -> str | None:
    given = [name.partition(":") for name in names(value)]
    mine = list(zip(properties.partition_fields, properties.partition_field_types, strict=True))
    kinds = zip(given, mine, strict=False)
    agrees = [n for n, _, _ in given] == [n for n, _ in mine] and all(
        not kind or stored is None or kind.upper() == stored for (_, _, kind), (_, stored) in kinds
    )
    return (
        None if agrees else f"{keys.PARTITION_FIELDS}={properties.get(keys.PARTITION_FIELDS, '')}"
    )


def _other_generator(key: str, value: str, properties: TableProperties) -> str | None:
    by_class = key == keys.KEY_GENERATOR_CLASS
    try:
        given = resolve_key_generator(
            value if by_class else None,
            None if by_class else value,
            key_fields=len(properties.record_key_fields),
            partition_fields=len(properties.partition_fields),
            typed_partition_fields=False,
        )
    except FormatError as error:
        raise ConfigError(
            f"{key}={value} is not known.", hint=error.hint, context={"option": key}
        ) from None
    mine = properties.key_generator
    return None if given is mine else f"the key generator {mine}"
