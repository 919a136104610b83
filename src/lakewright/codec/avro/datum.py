"""One Avro value as Python objects: plans, commit metadata and other small records.

Records are dicts, arrays lists, maps dicts, enums their symbol; a logical type is left as the
number or the bytes that store it. A union value is the plain value; on writing, the branch that
fits best is chosen, or the one that a `Branch` names. Fields that a dict does not have take the
schema's default.

Bytes that do not follow the schema are `CorruptFileError`s with the offset, values that do not fit
it `SchemaError`s. Work and memory are bounded by the number of bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, TypeAlias

from lakewright.codec.avro.scalar import Damage, block_count, read_long
from lakewright.codec.avro.types import (
    NO_DEFAULT,
    Array,
    AvroType,
    Enum,
    Field,
    Fixed,
    Map,
    Primitive,
    Record,
    Union,
    min_size,
)
from lakewright.codec.avro.writers import refuse
from lakewright.errors import CorruptFileError

__all__ = ["Branch", "DatumReader", "datum_reader", "read_datum", "write_datum"]

EMPTY_ITEMS_MAX: Final = 1 << 16
"""Items without bytes (nulls, empty records) that one array may have; nothing else bounds them."""

DatumReader: TypeAlias = Callable[[bytes | memoryview, int, int], tuple[Any, int]]
"""(data, position, end) to the value and the position behind it; raises `Damage`."""

_Writer: TypeAlias = Callable[[Any, bytearray], None]


@dataclass(frozen=True, slots=True)
class Branch:
    """A union value for one branch, by its index."""

    index: int
    value: Any


def read_datum(data: bytes | memoryview, schema: AvroType, offset: int = 0) -> tuple[Any, int]:
    """The value that begins at `offset`, and the offset behind it."""
    try:
        return datum_reader(schema)(data, offset, len(data))
    except Damage as damage:
        raise CorruptFileError(
            f"An Avro value cannot be decoded: {damage.what}.",
            hint="The bytes are damaged, or were written with another schema than the one given.",
            context={"offset": damage.offset},
        ) from damage


def write_datum(value: Any, schema: AvroType) -> bytes:
    """The encoded value."""
    out = bytearray()
    _writer(schema)(value, out)
    return bytes(out)


@lru_cache(maxsize=256)
def datum_reader(schema: AvroType) -> DatumReader:
    """The function that reads values of `schema`."""
    match schema:
        case Primitive(kind=kind):
            return _PRIMITIVE_READERS[kind]
        case Fixed(size=size):
            return lambda data, pos, end: _take(data, pos, size, end)
        case Enum(symbols=symbols):
            return _enum_reader(symbols)
        case Array(items=items):
            return _array_reader(datum_reader(items), min_size(items))
        case Map(values=values):
            return _map_reader(datum_reader(values), 1 + min_size(values))
        case Union(branches=branches):
            return _union_reader([datum_reader(branch) for branch in branches])
        case Record(fields=fields):
            return _record_reader([(entry.name, datum_reader(entry.type)) for entry in fields])


def _take(data: bytes | memoryview, pos: int, size: int, end: int) -> tuple[bytes, int]:
    behind = pos + size
    if behind > end:
        raise Damage(pos, "a value ends behind the end of the bytes")
    return bytes(data[pos:behind]), behind


def _read_boolean(data: bytes | memoryview, pos: int, end: int) -> tuple[bool, int]:
    value, behind = _take(data, pos, 1, end)
    if value[0] > 1:
        raise Damage(pos, "a boolean is neither 0 nor 1")
    return value == b"\x01", behind


def _read_int(data: bytes | memoryview, pos: int, end: int) -> tuple[int, int]:
    value, behind = read_long(data, pos, end)
    if not -(1 << 31) <= value < 1 << 31:
        raise Damage(pos, "an int has more than 32 bits")
    return value, behind


def _read_float(data: bytes | memoryview, pos: int, end: int) -> tuple[float, int]:
    value, behind = _take(data, pos, 4, end)
    return struct.unpack("<f", value)[0], behind


def _read_double(data: bytes | memoryview, pos: int, end: int) -> tuple[float, int]:
    value, behind = _take(data, pos, 8, end)
    return struct.unpack("<d", value)[0], behind


def _read_bytes(data: bytes | memoryview, pos: int, end: int) -> tuple[bytes, int]:
    size, behind = read_long(data, pos, end)
    if size < 0:
        raise Damage(pos, "a length is negative")
    return _take(data, behind, size, end)


def _read_string(data: bytes | memoryview, pos: int, end: int) -> tuple[str, int]:
    value, behind = _read_bytes(data, pos, end)
    try:
        return value.decode("utf-8"), behind
    except UnicodeDecodeError:
        raise Damage(pos, "a string is not UTF-8") from None


_PRIMITIVE_READERS: Final[dict[str, DatumReader]] = {
    "null": lambda _data, pos, _end: (None, pos),
    "boolean": _read_boolean,
    "int": _read_int,
    "long": read_long,
    "float": _read_float,
    "double": _read_double,
    "bytes": _read_bytes,
    "string": _read_string,
}


def _enum_reader(symbols: tuple[str, ...]) -> DatumReader:
    def read(data: bytes | memoryview, pos: int, end: int) -> tuple[str, int]:
        index, behind = read_long(data, pos, end)
        if not 0 <= index < len(symbols):
            raise Damage(pos, f"there is no enum symbol {index}")
        return symbols[index], behind

    return read


def _union_reader(branches: list[DatumReader]) -> DatumReader:
    def read(data: bytes | memoryview, pos: int, end: int) -> tuple[Any, int]:
        index, behind = read_long(data, pos, end)
        if not 0 <= index < len(branches):
            raise Damage(pos, f"there is no union branch {index}")
        return branches[index](data, behind, end)

    return read


def _record_reader(fields: list[tuple[str, DatumReader]]) -> DatumReader:
    def read(data: bytes | memoryview, pos: int, end: int) -> tuple[dict[str, Any], int]:
        record = {}
        for name, field in fields:
            record[name], pos = field(data, pos, end)
        return record, pos

    return read


def _array_reader(item: DatumReader, item_min: int) -> DatumReader:
    def read(data: bytes | memoryview, pos: int, end: int) -> tuple[list[Any], int]:
        values: list[Any] = []
        while True:
            count, size, pos = block_count(data, pos, end, item_min)
            if not count:
                return values, pos
            if not item_min and len(values) + count > EMPTY_ITEMS_MAX:
                raise Damage(pos, f"{count} array items without bytes")
            start = pos
            for _ in range(count):  # bounded by the bytes, see block_count
                value, pos = item(data, pos, end)
                values.append(value)
            _check_block(start, size, pos)

    return read


def _map_reader(item: DatumReader, item_min: int) -> DatumReader:
    def read(data: bytes | memoryview, pos: int, end: int) -> tuple[dict[str, Any], int]:
        values: dict[str, Any] = {}
        while True:
            count, size, pos = block_count(data, pos, end, item_min)
            if not count:
                return values, pos
            start = pos
            for _ in range(count):  # bounded by the bytes, see block_count
                key, pos = _read_string(data, pos, end)
                values[key], pos = item(data, pos, end)
            _check_block(start, size, pos)

    return read


def _check_block(start: int, size: int | None, pos: int) -> None:
    if size is not None and pos != start + size:
        raise Damage(start, "an array block does not have the byte size that it tells")


@lru_cache(maxsize=256)
def _writer(schema: AvroType) -> _Writer:
    match schema:
        case Primitive(kind=kind):
            return _PRIMITIVE_WRITERS[kind]
        case Fixed():
            return _fixed_writer(schema)
        case Enum():
            return _enum_writer(schema)
        case Array(items=items):
            return _array_writer(_writer(items))
        case Map(values=values):
            return _map_writer(_writer(values))
        case Union(branches=branches):
            return _union_writer(branches, [_writer(branch) for branch in branches])
        case Record(fields=fields):
            return _record_writer(schema, [(entry, _writer(entry.type)) for entry in fields])


def _put_long(value: int, out: bytearray) -> None:
    rest = (value << 1) ^ (value >> 63)
    while rest > 0x7F:
        out.append((rest & 0x7F) | 0x80)
        rest >>= 7
    out.append(rest)


def _write_null(value: Any, _out: bytearray) -> None:
    if value is not None:
        refuse(f"{value!r} is not null")


def _write_boolean(value: Any, out: bytearray) -> None:
    if not isinstance(value, bool):
        refuse(f"{value!r} is no boolean")
    out.append(value)


def _number_writer(bits: int) -> _Writer:
    limit = 1 << (bits - 1)

    def write(value: Any, out: bytearray) -> None:
        if not isinstance(value, int) or isinstance(value, bool) or not -limit <= value < limit:
            refuse(f"{value!r} is no number of {bits} bits")
        _put_long(value, out)

    return write


def _float_writer(code: str) -> _Writer:
    def write(value: Any, out: bytearray) -> None:
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            refuse(f"{value!r} is no number")
        try:
            out += struct.pack(code, value)
        except OverflowError:
            refuse(f"{value!r} is too large for a float")

    return write


def _write_bytes(value: Any, out: bytearray) -> None:
    if not isinstance(value, (bytes, bytearray, memoryview)):
        refuse(f"{value!r} is not bytes")
    _put_long(len(value), out)
    out += value


def _write_string(value: Any, out: bytearray) -> None:
    if not isinstance(value, str):
        refuse(f"{value!r} is no text")
    try:
        text = value.encode("utf-8")
    except UnicodeEncodeError:
        refuse(f"{value!r} cannot be written as UTF-8")
    _put_long(len(text), out)
    out += text


_PRIMITIVE_WRITERS: Final[dict[str, _Writer]] = {
    "null": _write_null,
    "boolean": _write_boolean,
    "int": _number_writer(32),
    "long": _number_writer(64),
    "float": _float_writer("<f"),
    "double": _float_writer("<d"),
    "bytes": _write_bytes,
    "string": _write_string,
}


def _fixed_writer(schema: Fixed) -> _Writer:
    def write(value: Any, out: bytearray) -> None:
        if not isinstance(value, (bytes, bytearray)) or len(value) != schema.size:
            refuse(f"{value!r} is not {schema.size} bytes for '{schema.name}'")
        out += value

    return write


def _enum_writer(schema: Enum) -> _Writer:
    numbers = {symbol: number for number, symbol in enumerate(schema.symbols)}

    def write(value: Any, out: bytearray) -> None:
        if not isinstance(value, str) or value not in numbers:
            refuse(f"{value!r} is no symbol of enum '{schema.name}'")
        _put_long(numbers[value], out)

    return write


def _array_writer(item: _Writer) -> _Writer:
    def write(value: Any, out: bytearray) -> None:
        if not isinstance(value, Sequence) or isinstance(value, (str, bytes)):
            refuse(f"{value!r} is no list")
        if value:
            _put_long(len(value), out)
            for entry in value:
                item(entry, out)
        out.append(0)

    return write


def _map_writer(item: _Writer) -> _Writer:
    def write(value: Any, out: bytearray) -> None:
        if not isinstance(value, Mapping):
            refuse(f"{value!r} is no mapping")
        if value:
            _put_long(len(value), out)
            for key, entry in value.items():
                _write_string(key, out)
                item(entry, out)
        out.append(0)

    return write


def _record_writer(schema: Record, fields: list[tuple[Field, _Writer]]) -> _Writer:
    names = {entry.name for entry, _ in fields}

    def write(value: Any, out: bytearray) -> None:
        if not isinstance(value, Mapping):
            refuse(f"{value!r} is no record '{schema.name}'")
        if not value.keys() <= names:
            unknown = ", ".join(sorted(str(key) for key in value.keys() - names))
            refuse(f"record '{schema.name}' has no field {unknown}")
        for entry, writer in fields:
            given = value.get(entry.name, NO_DEFAULT)
            if given is NO_DEFAULT:
                if entry.default is NO_DEFAULT:
                    refuse(f"record '{schema.name}' needs the field '{entry.name}'")
                given = _default(entry.default, entry.type)
            writer(given, out)

    return write


def _default(value: Any, schema: AvroType) -> Any:
    """The value that a default in a schema stands for: bytes are written as Latin-1 text there."""
    match schema:
        case Primitive(kind="bytes") | Fixed() if isinstance(value, str):
            return value.encode("latin-1")
        case Array(items=items) if isinstance(value, list):
            return [_default(entry, items) for entry in value]
        case Map(values=values) if isinstance(value, dict):
            return {key: _default(entry, values) for key, entry in value.items()}
        case Record() if isinstance(value, dict):
            known = {entry.name: entry.type for entry in schema.fields}
            return {k: _default(v, known[k]) if k in known else v for k, v in value.items()}
        case Union(branches=branches) if branches:
            return _default(value, branches[0])
        case _:
            return value


def _union_writer(branches: tuple[AvroType, ...], writers: list[_Writer]) -> _Writer:
    null_index = Union(branches).null_index

    def write(value: Any, out: bytearray) -> None:
        if value is None and null_index is not None:
            index = null_index
        elif isinstance(value, Branch):
            index, value = value.index, value.value
            if not 0 <= index < len(branches):
                refuse(f"there is no union branch {index}")
        else:
            scores = [_fit(value, branch) for branch in branches]
            best = max(scores, default=0)
            if not best:
                refuse(f"{value!r} fits no branch of its union")
            index = scores.index(best)
        _put_long(index, out)
        writers[index](value, out)

    return write


def _fit(value: Any, schema: AvroType) -> int:
    """How well a value fits a branch: 0 not at all, 3 exactly."""
    match schema:
        case Primitive(kind=kind):
            return _fit_primitive(value, kind)
        case Fixed(size=size):
            return 3 * (isinstance(value, (bytes, bytearray)) and len(value) == size)
        case Enum(symbols=symbols):
            return 3 * (isinstance(value, str) and value in symbols)
        case Array():
            return 3 * (isinstance(value, Sequence) and not isinstance(value, (str, bytes)))
        case Map():
            return 2 * isinstance(value, Mapping)
        case Record(fields=fields):
            if not isinstance(value, Mapping):
                return 0
            needed = {entry.name for entry in fields if entry.default is NO_DEFAULT}
            return 3 * (needed <= value.keys() <= {entry.name for entry in fields})
        case Union():
            return 0


def _fit_primitive(value: Any, kind: str) -> int:
    if value is None or isinstance(value, bool):
        return 3 * (kind == ("null" if value is None else "boolean"))
    if isinstance(value, int):
        if kind == "int":
            return 3 * (-(1 << 31) <= value < 1 << 31)
        if kind == "long":
            return 3 * (-(1 << 63) <= value < 1 << 63)
        return int(kind in ("float", "double"))
    if isinstance(value, float):
        return {"double": 3, "float": 2}.get(kind, 0)
    if isinstance(value, str):
        return 2 * (kind == "string")  # an enum that has the symbol fits better
    return 3 * (kind == "bytes" and isinstance(value, (bytes, bytearray, memoryview)))
