"""Avro types as values: what a parsed schema is made of.

Every type is frozen and hashable. Named references are resolved to the named type itself; a schema
that contains itself does not exist here (see `schema.parse_schema`). `props` keeps every attribute
of the JSON object that the type does not consume, in its order, so that the schema can be written
again as it was read; it does not take part in equality.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

__all__ = [
    "NO_DEFAULT",
    "PRIMITIVES",
    "Array",
    "AvroType",
    "Enum",
    "Field",
    "Fixed",
    "Map",
    "NoDefault",
    "Primitive",
    "Record",
    "Union",
    "fixed_size",
    "min_size",
    "nests_blocks",
]

PRIMITIVES: Final = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")


class NoDefault(enum.Enum):
    """The type of `NO_DEFAULT`."""

    NO_DEFAULT = "no default"


NO_DEFAULT: Final = NoDefault.NO_DEFAULT
"""A field without a default; `None` is the default null."""


def _no_props() -> dict[str, Any]:
    return {}


@dataclass(frozen=True, slots=True)
class Primitive:
    """One of the eight primitive kinds, with the logical type that is valid on it."""

    kind: str
    logical: str | None = None
    precision: int | None = None
    scale: int | None = None
    props: Mapping[str, Any] = field(default_factory=_no_props, compare=False)


@dataclass(frozen=True, slots=True)
class Fixed:
    """`size` bytes; `name` is the full name."""

    name: str
    size: int
    logical: str | None = None
    precision: int | None = None
    scale: int | None = None
    props: Mapping[str, Any] = field(default_factory=_no_props, compare=False)


@dataclass(frozen=True, slots=True)
class Enum:
    """One of `symbols`, stored as its index; `name` is the full name."""

    name: str
    symbols: tuple[str, ...]
    doc: str | None = field(default=None, compare=False)
    props: Mapping[str, Any] = field(default_factory=_no_props, compare=False)


@dataclass(frozen=True, slots=True)
class Array:
    """A sequence of `items`, stored in blocks."""

    items: AvroType
    props: Mapping[str, Any] = field(default_factory=_no_props, compare=False)


@dataclass(frozen=True, slots=True)
class Map:
    """String keys to `values`, stored in blocks."""

    values: AvroType
    props: Mapping[str, Any] = field(default_factory=_no_props, compare=False)


@dataclass(frozen=True, slots=True)
class Union:
    """One of `branches`, stored as its index and the value."""

    branches: tuple[AvroType, ...]

    @property
    def null_index(self) -> int | None:
        """The index of the null branch."""
        for index, branch in enumerate(self.branches):
            if isinstance(branch, Primitive) and branch.kind == "null":
                return index
        return None

    @property
    def optional(self) -> AvroType | None:
        """T of `[null, T]` and `[T, null]`; None for any other union."""
        if len(self.branches) != 2 or self.null_index is None:
            return None
        return self.branches[1 - self.null_index]


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a record; `default` is the JSON value or `NO_DEFAULT`."""

    name: str
    type: AvroType
    default: Any = field(default=NO_DEFAULT, hash=False)
    doc: str | None = field(default=None, compare=False)
    aliases: tuple[str, ...] = ()
    props: Mapping[str, Any] = field(default_factory=_no_props, compare=False)


@dataclass(frozen=True, slots=True)
class Record:
    """Named fields, stored one after the other; `name` is the full name."""

    name: str
    fields: tuple[Field, ...]
    doc: str | None = field(default=None, compare=False)
    props: Mapping[str, Any] = field(default_factory=_no_props, compare=False)

    def __hash__(self) -> int:
        # Of the whole tree it would cost more than what is looked up by it.
        return hash((self.name, len(self.fields)))

    @property
    def namespace(self) -> str:
        """The full name without its last part; empty when there is none."""
        return self.name.rpartition(".")[0]

    def field(self, name: str) -> Field | None:
        """The field of that name."""
        return next((f for f in self.fields if f.name == name), None)


AvroType: TypeAlias = Primitive | Fixed | Enum | Array | Map | Union | Record

_FIXED_WIDTH: Final = {"null": 0, "boolean": 1, "float": 4, "double": 8}


def fixed_size(schema: AvroType) -> int | None:
    """The encoded size when it is the same for every value."""
    match schema:
        case Primitive(kind=kind):
            return _FIXED_WIDTH.get(kind)
        case Fixed(size=size):
            return size
        case Record(fields=fields):
            total = 0
            for entry in fields:
                size_of_field = fixed_size(entry.type)
                if size_of_field is None:
                    return None
                total += size_of_field
            return total
        case _:
            return None


def nests_blocks(schema: AvroType) -> bool:
    """Whether a value can hold arrays or maps."""
    match schema:
        case Array() | Map():
            return True
        case Union(branches=branches):
            return any(nests_blocks(branch) for branch in branches)
        case Record(fields=fields):
            return any(nests_blocks(entry.type) for entry in fields)
        case _:
            return False


def min_size(schema: AvroType) -> int:
    """The smallest encoded size of a value: what bounds a declared item count."""
    match schema:
        case Primitive(kind=kind):
            return _FIXED_WIDTH.get(kind, 1)
        case Fixed(size=size):
            return size
        case Record(fields=fields):
            return sum(min_size(entry.type) for entry in fields)
        case _:
            return 1
