"""Whether the choices of a new table can work together and with its columns.

Each function raises `ConfigError` (choices that contradict) or `SchemaError` (columns that do not
fit) with the name of the culprit and what to do; nothing is written before all have passed.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from typing import NoReturn, Protocol

import pyarrow as pa
import pyarrow.types as pt

from lakewright.codec.avro.types import Field
from lakewright.errors import ConfigError, SchemaError
from lakewright.format.key_generator import KeyGeneratorType
from lakewright.format.table_schema import META_COLUMNS, OPERATION_COLUMN
from lakewright.format.version import TableVersion

__all__ = ["Choices", "check_columns", "check_fields", "check_key_generator", "column_type"]

_LEGAL_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_GENERATORS = (
    KeyGeneratorType.SIMPLE,
    KeyGeneratorType.COMPLEX,
    KeyGeneratorType.TIMESTAMP,
    KeyGeneratorType.CUSTOM,
    KeyGeneratorType.NON_PARTITION,
)
_VIRTUAL_KEYS = (
    KeyGeneratorType.SIMPLE,
    KeyGeneratorType.COMPLEX,
    KeyGeneratorType.NON_PARTITION,
)


class Choices(Protocol):
    """What these checks look at of a new table."""

    @property
    def name(self) -> str:
        """Name of the table."""
        ...

    @property
    def key_fields(self) -> tuple[str, ...]:
        """Columns of the record key."""
        ...

    @property
    def partition_fields(self) -> tuple[str, ...]:
        """Columns of the partition path, with types where given."""
        ...

    @property
    def ordering_fields(self) -> tuple[str, ...]:
        """Columns that order versions of a row."""
        ...

    @property
    def populate_meta_fields(self) -> bool:
        """Whether rows store their keys."""
        ...

    @property
    def drop_partition_columns(self) -> bool:
        """Whether partition columns stay out of the files."""
        ...


def check_columns(fields: Sequence[Field], table: str) -> None:
    """Names of table and columns that every engine can use, each once."""
    if not table.strip() or table != table.strip() or not table.isprintable() or "/" in table:
        raise ConfigError(
            f"{table!r} is not a name for a table.",
            hint="Use letters, digits and underscores.",
            context={"table": table},
        )
    if not fields:
        raise SchemaError(
            "A table needs at least one column.",
            hint="Give the schema of the rows to be written.",
            context={"table": table},
        )
    seen: dict[str, str] = {}
    for name in (f.name for f in fields):
        if name in (*META_COLUMNS, OPERATION_COLUMN):
            _refuse_column(table, name, "is reserved: Hudi fills it itself", "Leave it out.")
        if not _LEGAL_NAME.fullmatch(name):
            _refuse_column(table, name, "is no legal Avro name", "Use letters, digits and _.")
        if name.lower() in seen:
            what = f"is the same as {seen[name.lower()]!r} to engines that ignore case"
            _refuse_column(table, name, what, "Rename one of them.")
        seen[name.lower()] = name


def _refuse_column(table: str, name: str, what: str, hint: str) -> NoReturn:
    raise SchemaError(
        f"The column name {name!r} {what}.", hint=hint, context={"table": table, "column": name}
    )


def check_key_generator(choices: Choices, generator: KeyGeneratorType) -> None:
    """A generator that we can run, with as many fields as it takes."""
    keys, partitions = len(choices.key_fields), len(choices.partition_fields)
    typed = [":" in name for name in choices.partition_fields]
    if generator not in _GENERATORS:
        _contradiction(
            choices,
            f"The key generator {generator} cannot be run here",
            f"Use one of {', '.join(_GENERATORS)}.",
        )
    single = generator in (KeyGeneratorType.SIMPLE, KeyGeneratorType.TIMESTAMP)
    if single and keys > 1:
        _contradiction(
            choices,
            f"The key generator {generator} takes one key field, not {keys}",
            "Use COMPLEX or CUSTOM.",
        )
    if single and partitions != 1:
        _contradiction(
            choices,
            f"The key generator {generator} takes one partition field, not {partitions}",
            "Use COMPLEX for several, NON_PARTITION for none.",
        )
    if generator is KeyGeneratorType.NON_PARTITION and partitions:
        _contradiction(
            choices,
            f"The key generator NON_PARTITION contradicts the partition fields "
            f"{', '.join(choices.partition_fields)}",
            "Leave one of them out.",
        )
    if generator is KeyGeneratorType.CUSTOM and not all(typed):
        _contradiction(
            choices,
            "The key generator CUSTOM needs a type with every partition field",
            "Write column:SIMPLE or column:TIMESTAMP.",
        )
    if generator is not KeyGeneratorType.CUSTOM and any(typed):
        _contradiction(
            choices,
            f"The key generator {generator} takes no types with partition fields",
            "Use CUSTOM, or leave the types out.",
        )
    if not choices.populate_meta_fields and (generator not in _VIRTUAL_KEYS or not keys):
        _contradiction(
            choices,
            f"Rows without meta columns need keys that can be formed again, not those of "
            f"{generator if keys else 'a table without key fields'}",
            "Use SIMPLE, COMPLEX or NON_PARTITION with key fields, or keep the meta columns.",
        )


def check_fields(choices: Choices, schema: pa.Schema, version: TableVersion) -> None:
    """Key, partition and ordering fields that exist and have types that can be used so."""
    names = [given.partition(":") for given in choices.partition_fields]
    for name, colon, kind in names:
        if colon and kind.upper() not in ("SIMPLE", "TIMESTAMP"):
            _contradiction(
                choices,
                f"Partition field {name} has the unknown type {kind}",
                "Write SIMPLE or TIMESTAMP after the colon.",
            )
    partitions = tuple(name for name, _, _ in names)
    roles = {
        "key": choices.key_fields,
        "partition": partitions,
        "ordering": choices.ordering_fields,
    }
    for role, fields in roles.items():
        if len(set(fields)) != len(fields):
            _contradiction(choices, f"A {role} field is given twice", "Name each once.")
        for name in fields:
            _check_usable(schema, name, role, choices.name)
    if len(choices.ordering_fields) > 1 and not version.partial_update_modes:
        _contradiction(
            choices,
            f"Version {version} takes one ordering field, not {len(choices.ordering_fields)}",
            "Give the one column that orders versions of a row.",
        )
    if choices.drop_partition_columns:
        _check_dropping(choices, partitions)


def _check_dropping(choices: Choices, partitions: tuple[str, ...]) -> None:
    if not partitions:
        _contradiction(
            choices,
            "drop_partition_columns needs partition fields, and the table has none",
            "Leave it out.",
        )
    used = [n for n in (*choices.key_fields, *choices.ordering_fields) if n in partitions]
    if used:
        _contradiction(
            choices,
            f"The column {used[0]} orders or identifies rows and cannot be dropped from the files",
            "Keep partition columns, or partition by another column.",
        )


def _check_usable(schema: pa.Schema, name: str, role: str, table: str) -> None:
    kind = column_type(schema, name)
    if kind is None:
        near = difflib.get_close_matches(name, schema.names, n=1, cutoff=0.5)
        raise SchemaError(
            f"The {role} field {name!r} is not among the columns.",
            hint=f"Did you mean {near[0]!r}?"
            if near
            else f"The columns are: {', '.join(schema.names)}.",
            context={"table": table, "field": name},
        )
    if pt.is_nested(kind) or pt.is_null(kind):
        raise SchemaError(
            f"The {role} field {name} has type {kind}, which cannot be a {role} field.",
            hint="Use a column of text, numbers, dates or timestamps.",
            context={"table": table, "field": name, "type": str(kind)},
        )


def column_type(schema: pa.Schema, name: str) -> pa.DataType | None:
    """The type of a (dotted) column; None if there is none."""
    if name in schema.names:
        return schema.field(name).type
    first, *rest = name.split(".")
    kind = schema.field(first).type if first in schema.names else None
    for part in rest:
        if kind is None or not pt.is_struct(kind) or kind.get_field_index(part) < 0:
            return None
        kind = kind.field(kind.get_field_index(part)).type
    return kind


def _contradiction(choices: Choices, message: str, hint: str) -> NoReturn:
    raise ConfigError(f"{message}.", hint=hint, context={"table": choices.name})
