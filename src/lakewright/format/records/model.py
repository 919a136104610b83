"""How typed records and their Avro form become each other.

A record class is a frozen dataclass whose attributes are the fields of `definitions`, in snake
case. Reading decodes with the schema embedded in the file, matches fields by name, fills fields of
newer releases with their defaults and skips fields nobody knows here, so files of every release
read alike. Writing uses the schema of the table version's own writers. Content that does not fit
raises `CorruptFileError` with the path; nothing is guessed.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from enum import Enum
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple, Self, TypeVar

from lakewright.codec.avro.container import SYNC_SIZE, read_container, write_container
from lakewright.codec.avro.datum import write_datum
from lakewright.codec.avro.schema import (
    Array,
    AvroType,
    Map,
    Primitive,
    Record,
    Union,
    parse_schema,
)
from lakewright.errors import CorruptFileError, FormatError
from lakewright.format.records.definitions import (
    NAMESPACE,
    FieldSpec,
    TypeSpec,
    record_fields,
    schema_json,
)
from lakewright.format.version import TableVersion

__all__ = [
    "AvroRecord",
    "Content",
    "MisfitError",
    "content_of",
    "encode_body",
    "encode_container",
    "value_decoder",
]


class Content(Enum):
    """What an instant file holds, told by its first bytes."""

    EMPTY = "empty"
    AVRO = "avro"
    JSON = "json"


def content_of(data: bytes, *, path: str) -> Content:
    """The kind of content; `CorruptFileError` if it is none of them."""
    if not data:
        return Content.EMPTY
    if data[:4] == b"Obj\x01":
        return Content.AVRO
    if data[:256].lstrip()[:1] == b"{":
        return Content.JSON
    raise CorruptFileError(
        "An instant file holds neither Avro nor JSON.",
        hint="The file is damaged or no instant file; restore it from another copy of the table.",
        context={"path": path, "offset": 0},
    )


class MisfitError(ValueError):
    """A decoded value does not have the type its field demands; never leaves this package."""


class _Attribute(NamedTuple):
    avro: str
    name: str
    decode: Callable[[Any], Any]
    spec: FieldSpec


class AvroRecord:
    """Base of all record classes."""

    __slots__ = ()
    avro_name: ClassVar[str]
    """Name of the Avro record, without its namespace."""

    def __init_subclass__(cls) -> None:
        # Called again for the copy that `dataclass(slots=True)` makes; the last one wins.
        for name in cls.avro_names():
            _CLASSES[name] = cls

    @classmethod
    def read(cls, data: bytes, *, path: str = "") -> Self:
        """The record of an Avro container file."""
        name, value = _read_one(data, cls.avro_name, path)
        if name not in cls.avro_names():
            raise _unreadable(f"an Avro {name} instead of {cls.avro_name}", path)
        return _typed(cls, value, path)

    @classmethod
    def avro_names(cls) -> tuple[str, ...]:
        """Avro records the class stands for, without namespace."""
        return (cls.avro_name,)

    @classmethod
    def from_avro(cls, value: Mapping[str, Any]) -> Self:
        """The record of a decoded Avro value; `MisfitError` if a field does not fit."""
        return cls(**attribute_values(cls.avro_name, value))

    def to_avro(self) -> dict[str, Any]:
        """The record as plain values by Avro field name."""
        return {a.avro: _plain(getattr(self, a.name)) for a in _attributes(self.avro_name)}

    def write(self, version: TableVersion) -> bytes:
        """The bytes of an instant file as writers of a table version make them."""
        return encode_container(self.to_avro(), schema_json(self.avro_name, version.record_level))


_CLASSES: dict[str, type[AvroRecord]] = {}
R = TypeVar("R", bound=AvroRecord)


def read_record(data: bytes, *, path: str = "") -> AvroRecord:
    """The record of an Avro container file, of whichever kind its schema names."""
    name, value = _read_one(data, "record", path)
    kind = _CLASSES.get(name)
    if kind is None:
        raise _unreadable(f"an unknown Avro record {name}", path)
    return _typed(kind, value, path)


def _typed(kind: type[R], value: Any, path: str) -> R:
    try:
        return kind.from_avro(value)
    except MisfitError as error:
        raise _unreadable(f"a {kind.avro_name} with {error}", path) from error


def record_class(name: str) -> type[AvroRecord]:
    """The class of an Avro record, by its name without namespace."""
    return _CLASSES[name]


def _read_one(data: bytes, wanted: str, path: str) -> tuple[str, Any]:
    """Name, without Hudi's namespace, and value of the only record of a container file."""
    if content_of(data, path=path) is not Content.AVRO:
        raise _unreadable(f"no Avro {wanted}", path)
    container = read_container(data, path=path)
    if not isinstance(container.schema, Record):
        raise _unreadable(f"an Avro {type(container.schema).__name__}, no {wanted}", path)
    if len(container.records) != 1:
        raise _unreadable(f"{len(container.records)} records instead of one", path)
    return container.schema.name.removeprefix(f"{NAMESPACE}."), container.records[0]


def attribute_values(record: str, value: Mapping[str, Any]) -> dict[str, Any]:
    """Constructor arguments from a decoded Avro value: by name, missing fields by default."""
    if not isinstance(value, Mapping):
        raise MisfitError(f"{type(value).__name__} where a {record} belongs")
    arguments = {}
    for attribute in _attributes(record):
        if attribute.avro in value:
            try:
                arguments[attribute.name] = attribute.decode(value[attribute.avro])
            except MisfitError as error:
                raise MisfitError(f"{attribute.avro}: {error}") from None
        elif attribute.spec.has_default or attribute.spec.type.nullable:
            arguments[attribute.name] = attribute.spec.default
        else:
            raise MisfitError(f"no field {attribute.avro}")
    return arguments


@lru_cache(maxsize=64)
def _attributes(record: str) -> tuple[_Attribute, ...]:
    return tuple(
        _Attribute(spec.name, snake_case(spec.name), value_decoder(spec.type), spec)
        for spec in record_fields(record)
    )


@lru_cache(maxsize=512)
def snake_case(name: str) -> str:
    """`partitionToWriteStats` as `partition_to_write_stats`."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


_PYTHON: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "bytes": (bytes,),
    "boolean": (bool,),
    "int": (int,),
    "long": (int,),
    "double": (float, int),
}


def value_decoder(spec: TypeSpec) -> Callable[[Any], Any]:
    """A function that checks a decoded value against a type and makes its records typed."""
    decode = _plain_decoder(spec)
    if not spec.nullable:
        return decode
    return lambda value: None if value is None else decode(value)


def _plain_decoder(spec: TypeSpec) -> Callable[[Any], Any]:
    if spec.is_record:
        return lambda value: _CLASSES[spec.kind].from_avro(value)
    if spec.item is not None:
        item = value_decoder(spec.item)
        if spec.kind == "array":
            return lambda value: [item(v) for v in _expect(value, list)]
        return lambda value: {_expect(k, str): item(v) for k, v in _expect(value, dict).items()}
    kinds = _PYTHON[spec.kind]

    def scalar(value: Any) -> Any:
        if type(value) not in kinds:
            raise MisfitError(f"{type(value).__name__} where {spec.kind} belongs")
        return value

    return scalar


def _expect(value: Any, kind: type) -> Any:
    if not isinstance(value, kind):
        raise MisfitError(f"{type(value).__name__} where {kind.__name__} belongs")
    return value


def _plain(value: Any) -> Any:
    if isinstance(value, AvroRecord):
        return value.to_avro()
    if isinstance(value, Mapping):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    return value


def encode_container(value: Mapping[str, Any], schema: str, *, sync: bytes | None = None) -> bytes:
    """A container file with one record, of the fields that `schema` has.

    The sync marker is derived from the record if not given, so equal records have equal bytes.
    """
    known = [_known_fields(value, parse_schema(schema))]
    if sync is not None:
        return write_container(schema, known, sync=sync)
    unmarked = bytes(SYNC_SIZE)
    data = write_container(schema, known, sync=unmarked)
    begin = len(write_container(schema, [], sync=unmarked)) - SYNC_SIZE
    mark = hashlib.blake2b(data, digest_size=SYNC_SIZE, person=b"lakewright").digest()
    return b"".join((data[:begin], mark, data[begin + SYNC_SIZE : -SYNC_SIZE], mark))


def encode_body(value: Mapping[str, Any], schema: str) -> bytes:
    """The bytes of a record without a container, of the fields that `schema` has."""
    kind = parse_schema(schema)
    return write_datum(_known_fields(value, kind), kind)


def _known_fields(value: Any, schema: AvroType) -> Any:
    """`value` without the fields of newer releases that `schema` does not have."""
    if value is None:
        return None
    match schema:
        case Union(branches=branches):
            inner = [b for b in branches if not (isinstance(b, Primitive) and b.kind == "null")]
            return _known_fields(value, inner[0]) if len(inner) == 1 else value
        case Record(fields=fields):
            names = {field.name: field.type for field in fields}
            return {k: _known_fields(v, names[k]) for k, v in value.items() if k in names}
        case Array(items=items):
            return [_known_fields(v, items) for v in value]
        case Map(values=values):
            return {k: _known_fields(v, values) for k, v in value.items()}
        case _:
            return value


def _unreadable(what: str, path: str) -> FormatError:
    return CorruptFileError(
        f"An instant file holds {what}.",
        hint="The file is damaged or was written by something that is not Hudi; restore it from "
        "another copy of the table.",
        context={"path": path, "offset": 0},
    )
