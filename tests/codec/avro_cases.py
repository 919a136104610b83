"""Random Avro schemas with values, and an independent encoder (fastavro) to compare with.

Values are raw: a logical type's value is the number or the bytes that store it, and the oracle
works on the schema without logical types, so that both sides mean the same bytes.
"""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from lakewright.codec.avro.schema import (
    Array,
    AvroType,
    Fixed,
    Map,
    Primitive,
    Record,
    Union,
    decimal_precision_max,
)

Json = Any


@dataclass(frozen=True)
class Typed:
    """A schema and the values that it has."""

    schema: Json
    values: st.SearchStrategy[Any]


@dataclass(frozen=True)
class Case:
    """A record schema, some records of it, and their encoding by the oracle."""

    text: str
    rows: list[dict[str, Any]]
    bodies: list[bytes]

    @property
    def frames(self) -> tuple[bytes, np.ndarray, np.ndarray]:
        """The bodies with a gap of four bytes before each, as log blocks have them."""
        return frame(self.bodies)


def frame(bodies: list[bytes]) -> tuple[bytes, np.ndarray, np.ndarray]:
    payload, starts, ends = bytearray(), [], []
    for body in bodies:
        payload += struct.pack(">i", len(body))
        starts.append(len(payload))
        payload += body
        ends.append(len(payload))
    return bytes(payload), np.array(starts, np.int64), np.array(ends, np.int64)


def oracle_encode(text: str, rows: list[Any]) -> list[bytes]:
    schema = fastavro.parse_schema(without_logical(json.loads(text)))
    bodies = []
    for row in rows:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, schema, row)
        bodies.append(out.getvalue())
    return bodies


def oracle_decode(text: str, bodies: list[bytes]) -> list[Any]:
    schema = fastavro.parse_schema(without_logical(json.loads(text)))
    return [fastavro.schemaless_reader(io.BytesIO(body), schema, None) for body in bodies]


def without_logical(node: Json) -> Json:
    if isinstance(node, list):
        return [without_logical(entry) for entry in node]
    if isinstance(node, dict):
        return {k: without_logical(v) for k, v in node.items() if k != "logicalType"}
    return node


def raw_values(column: pa.Array, schema: AvroType) -> list[Any]:
    """The values of a column as the oracle reads them."""
    match schema:
        case Primitive(logical="decimal") | Fixed(logical="decimal"):
            return [_unscaled(value, schema) for value in column.to_pylist()]
        case Primitive(kind="int"):
            return column.cast(pa.int32()).to_pylist()
        case Primitive(kind="long"):
            return column.cast(pa.int64()).to_pylist()
        case Array(items=items):
            return _regroup(column, raw_values(column.flatten(), items))
        case Map(values=values):
            pairs = list(
                zip(
                    column.keys.to_pylist(),
                    raw_values(column.items, values),
                    strict=True,
                )
            )
            return [
                None if not valid else dict(pairs[start:end])
                for valid, start, end in zip(
                    column.is_valid().to_pylist(),
                    column.offsets.to_pylist(),
                    column.offsets.to_pylist()[1:],
                    strict=False,
                )
            ]
        case Record(fields=fields):
            columns = [raw_values(column.field(n), f.type) for n, f in enumerate(fields)]
            names = [f.name for f in fields]
            valid = column.is_valid().to_pylist()
            if not names:
                return [{} if ok else None for ok in valid]
            rows = zip(*columns, strict=True)
            return [
                dict(zip(names, row, strict=True)) if ok else None
                for ok, row in zip(valid, rows, strict=True)
            ]
        case Union():
            return _union_values(column, schema)
        case _:
            return column.to_pylist()


def _union_values(column: pa.Array, schema: Union) -> list[Any]:
    branches = [b for b in schema.branches if b != Primitive("null")]
    if not branches:
        return [None] * len(column)
    if len(branches) == 1:
        return raw_values(column, branches[0])
    if not pa.types.is_struct(column.type) or column.type.field(0).name != "member0":
        return column.to_pylist()
    members = [raw_values(column.field(n), b) for n, b in enumerate(branches)]
    return [next((v for v in row if v is not None), None) for row in zip(*members, strict=True)]


def _regroup(column: pa.Array, flat: list[Any]) -> list[Any]:
    groups, at = [], 0
    for size in column.value_lengths().to_pylist():
        if size is None:
            groups.append(None)
        else:
            groups.append(flat[at : at + size])
            at += size
    return groups


def _unscaled(value: Any, schema: Primitive | Fixed) -> bytes | None:
    if value is None:
        return None
    sign, digits, _ = value.as_tuple()
    number = int("".join(map(str, digits))) * (-1 if sign else 1)
    if isinstance(schema, Fixed):
        return number.to_bytes(schema.size, "big", signed=True)
    return shortest_bytes(number)


def shortest_bytes(number: int) -> bytes:
    """Two's complement with the fewest bytes, as Java writes it."""
    size = (number.bit_length() if number >= 0 else (number + 1).bit_length()) // 8 + 1
    return number.to_bytes(size, "big", signed=True)


class _Names:
    def __init__(self) -> None:
        self.used = 0

    def __call__(self, kind: str) -> str:
        self.used += 1
        return f"{kind}{self.used}"


_INT = st.one_of(st.integers(-(2**31), 2**31 - 1), st.integers(-70, 70))
_LONG = st.one_of(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**20), 2**20))
_BYTES = st.one_of(st.binary(max_size=12), st.binary(min_size=60, max_size=200))
_TEXT = st.one_of(st.text(max_size=10), st.text("ab", min_size=60, max_size=90), st.just("x" * 16))
_PLAIN: dict[str, tuple[str, st.SearchStrategy[Any]]] = {
    "null": ("null", st.none()),
    "boolean": ("boolean", st.booleans()),
    "int": ("int", _INT),
    "long": ("long", _LONG),
    "float": ("float", st.floats(width=32, allow_nan=False)),
    "double": ("double", st.floats(allow_nan=False)),
    "bytes": ("bytes", _BYTES),
    "string": ("string", _TEXT),
}
_LOGICAL = [
    ("int", "date"),
    ("int", "time-millis"),
    ("long", "time-micros"),
    ("long", "timestamp-millis"),
    ("long", "timestamp-micros"),
    ("long", "timestamp-nanos"),
    ("long", "local-timestamp-millis"),
    ("long", "local-timestamp-micros"),
    ("string", "uuid"),
]


@st.composite
def _scalar(draw: Callable[..., Any], names: _Names) -> Typed:
    kind = draw(st.sampled_from([*_PLAIN, "logical", "decimal", "fixed decimal", "enum", "fixed"]))
    if kind in _PLAIN:
        return Typed(*_PLAIN[kind])
    if kind == "logical":
        base, logical = draw(st.sampled_from(_LOGICAL))
        day = {"time-millis": 86_400_000, "time-micros": 86_400_000_000}.get(logical)
        values = st.integers(0, day - 1) if day else _PLAIN[base][1]
        return Typed({"type": base, "logicalType": logical}, values)
    if kind == "enum":
        symbols = [f"S{n}" for n in range(draw(st.integers(1, 80)))]
        name = names("enum")
        schema = {"type": "enum", "name": name, "symbols": symbols}
        return Typed(schema, st.sampled_from(symbols))
    if kind == "fixed":
        size = draw(st.integers(1, 40))
        schema = {"type": "fixed", "name": names("fixed"), "size": size}
        return Typed(schema, st.binary(min_size=size, max_size=size))
    return _decimal(draw, names, fixed=kind == "fixed decimal")


def _decimal(draw: Callable[..., Any], names: _Names, *, fixed: bool) -> Typed:
    precision = draw(st.integers(1, 76))
    scale = draw(st.integers(0, precision))
    limit = 10**precision - 1
    numbers = st.integers(-limit, limit)
    extra = {"logicalType": "decimal", "precision": precision, "scale": scale}
    if not fixed:
        return Typed({"type": "bytes", **extra}, numbers.map(shortest_bytes))
    size = next(n for n in range(1, 40) if decimal_precision_max(n) >= precision)
    size += draw(st.integers(0, 3))
    values = numbers.map(lambda n: n.to_bytes(size, "big", signed=True))
    return Typed({"type": "fixed", "name": names("fixed"), "size": size, **extra}, values)


# At most one branch of each group, so that the oracle finds the branch by the Python type.
_GROUPS = [["boolean"], ["int", "long"], ["float", "double"], ["string"], ["bytes"]]


@st.composite
def _union(draw: Callable[..., Any], names: _Names, depth: int) -> Typed:
    groups = draw(st.lists(st.sampled_from(range(len(_GROUPS))), unique=True, max_size=4))
    branches = [Typed(*_PLAIN[draw(st.sampled_from(_GROUPS[g]))]) for g in groups]
    if depth > 0 and draw(st.booleans()):
        branches.append(draw(_array(names, depth - 1)))
    if depth > 0 and draw(st.booleans()):
        branches.append(draw(st.one_of(_map(names, depth - 1), _record(names, depth - 1))))
    if not branches or draw(st.booleans()):
        branches.append(Typed("null", st.none()))
    # The oracle takes the first branch that fits: an int fits a float, bytes fit an array.
    branches = sorted(draw(st.permutations(branches)), key=_fits_others)
    return Typed([b.schema for b in branches], st.one_of([b.values for b in branches]))


def _fits_others(branch: Typed) -> bool:
    array = isinstance(branch.schema, dict) and branch.schema["type"] == "array"
    return array or branch.schema in ("float", "double")


@st.composite
def _optional(draw: Callable[..., Any], names: _Names, depth: int) -> Typed:
    inner = draw(_value(names, depth).filter(_can_be_optional))
    schema = ["null", inner.schema]
    if draw(st.booleans()):
        schema.reverse()
    return Typed(schema, st.one_of(st.none(), inner.values))


def _can_be_optional(typed: Typed) -> bool:
    return not isinstance(typed.schema, list) and typed.schema != "null"


@st.composite
def _array(draw: Callable[..., Any], names: _Names, depth: int) -> Typed:
    item = draw(_value(names, depth))
    return Typed({"type": "array", "items": item.schema}, st.lists(item.values, max_size=5))


@st.composite
def _map(draw: Callable[..., Any], names: _Names, depth: int) -> Typed:
    value = draw(_value(names, depth))
    entries = st.dictionaries(st.text(max_size=4), value.values, max_size=4)
    return Typed({"type": "map", "values": value.schema}, entries)


@st.composite
def _record(draw: Callable[..., Any], names: _Names, depth: int) -> Typed:
    name = names("rec")
    fields = [(f"f{n}", draw(_value(names, depth))) for n in range(draw(st.integers(1, 4)))]
    schema = {
        "type": "record",
        "name": name,
        "fields": [{"name": n, "type": t.schema} for n, t in fields],
    }
    return Typed(schema, st.fixed_dictionaries({n: t.values for n, t in fields}))


def _value(names: _Names, depth: int) -> st.SearchStrategy[Typed]:
    if depth <= 0:
        return st.one_of(_scalar(names), _optional_scalar(names))
    return st.one_of(
        _scalar(names),
        _optional(names, depth - 1),
        _union(names, depth - 1),
        _array(names, depth - 1),
        _map(names, depth - 1),
        _record(names, depth - 1),
    )


@st.composite
def _optional_scalar(draw: Callable[..., Any], names: _Names) -> Typed:
    inner = draw(_scalar(names).filter(_can_be_optional))
    return Typed(["null", inner.schema], st.one_of(st.none(), inner.values))


@st.composite
def cases(draw: Callable[..., Any], *, depth: int = 3, fields: int = 5) -> Case:
    """A record schema with any types, and from one to several hundred records."""
    names = _Names()
    columns = [(f"c{n}", draw(_value(names, depth))) for n in range(draw(st.integers(1, fields)))]
    schema = {
        "type": "record",
        "name": "row",
        "namespace": "a.b",
        "fields": [{"name": n, "type": t.schema} for n, t in columns],
    }
    values = st.fixed_dictionaries({n: t.values for n, t in columns})
    distinct = draw(st.lists(values, min_size=1, max_size=6))
    # Enough lanes for the vector walk over arrays, in a mixed order.
    many = draw(st.sampled_from([len(distinct), 300]))
    order = np.random.default_rng(draw(st.integers(0, 9))).integers(0, len(distinct), many)
    text = json.dumps(schema)
    encoded = oracle_encode(text, distinct)
    return Case(text, [distinct[i] for i in order], [encoded[i] for i in order])
