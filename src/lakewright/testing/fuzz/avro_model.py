"""Avro values by an independent decoder (fastavro), and ours in the same plain form.

Logical types are taken away on both sides: a timestamp is its number, a decimal its unscaled
number. fastavro is needed by developers only, so it is imported when first asked.
"""

from __future__ import annotations

import io
import json
import math
from typing import Any

import pyarrow as pa

from lakewright.codec.avro.types import (
    Array,
    AvroType,
    Fixed,
    Map,
    Primitive,
    Record,
    Union,
)

__all__ = [
    "UndecodableError",
    "UnknownSchemaError",
    "model_datum",
    "model_records",
    "plain_rows",
    "same",
]


class UndecodableError(Exception):
    """The independent decoder does not accept the bytes."""


class UnknownSchemaError(Exception):
    """The independent decoder does not accept the schema, so it has no answer."""


def model_records(schema_text: str, bodies: list[bytes]) -> list[Any]:
    """What fastavro reads from each body; every byte of it must be used."""
    return [model_datum(schema_text, body) for body in bodies]


def model_datum(schema_text: str, body: bytes) -> Any:
    """One value by fastavro; `UndecodableError` if it fails or leaves bytes over.

    `UnknownSchemaError` for a schema that only we accept (a default of another type, odd names).
    """
    import fastavro

    try:
        schema = fastavro.parse_schema(_without_logical(json.loads(schema_text)), _force=True)
    except Exception as error:
        raise UnknownSchemaError(f"{type(error).__name__}: {error}") from error
    stream = io.BytesIO(body)
    try:
        value = fastavro.schemaless_reader(stream, schema, None)
    except Exception as error:
        raise UndecodableError(f"{type(error).__name__}: {error}") from error
    if stream.tell() != len(body):
        raise UndecodableError(f"{len(body) - stream.tell()} bytes left over")
    return value


def _without_logical(node: Any) -> Any:
    if isinstance(node, list):
        return [_without_logical(entry) for entry in node]
    if isinstance(node, dict):
        return {k: _without_logical(v) for k, v in node.items() if k != "logicalType"}
    return node


def plain_rows(batch: pa.RecordBatch, schema: Record) -> list[dict[str, Any]]:
    """The rows of a batch of all columns of `schema`, as fastavro would have read them."""
    columns = [_plain(batch.column(i), f.type) for i, f in enumerate(schema.fields)]
    names = [f.name for f in schema.fields]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)] or [
        {} for _ in range(batch.num_rows)
    ]


def _plain(column: pa.Array, schema: AvroType) -> list[Any]:
    match schema:
        case Primitive(logical="decimal") | Fixed(logical="decimal"):
            return [None if v is None else _Unscaled(_unscaled(v)) for v in column.to_pylist()]
        case Primitive(kind="int"):
            return list(column.cast(pa.int32()).to_pylist())
        case Primitive(kind="long"):
            return list(column.cast(pa.int64()).to_pylist())
        case Array(items=items):
            return _grouped(column, _plain(column.flatten(), items))
        case Map(values=values):
            keys, items_ = column.keys.to_pylist(), _plain(column.items, values)
            pairs = list(zip(keys, items_, strict=True))
            offsets = column.offsets.to_pylist()
            valid = column.is_valid().to_pylist()
            ends = zip(offsets, offsets[1:], valid, strict=False)
            return [dict(pairs[start:end]) if ok else None for start, end, ok in ends]
        case Record(fields=fields):
            return _records(column, [f.name for f in fields], [f.type for f in fields])
        case Union():
            return _union(column, schema)
    return list(column.to_pylist())


def _records(column: pa.Array, names: list[str], types: list[AvroType]) -> list[Any]:
    valid = column.is_valid().to_pylist()
    if not names:
        return [{} if ok else None for ok in valid]
    columns = [_plain(column.field(n), t) for n, t in enumerate(types)]
    rows = zip(*columns, strict=True)
    return [
        dict(zip(names, row, strict=True)) if ok else None
        for ok, row in zip(valid, rows, strict=True)
    ]


def _union(column: pa.Array, schema: Union) -> list[Any]:
    branches = [b for b in schema.branches if b != Primitive("null")]
    if not branches:
        return [None] * len(column)
    if len(branches) == 1:
        return _plain(column, branches[0])
    if not pa.types.is_struct(column.type) or column.type.field(0).name != "member0":
        return list(column.to_pylist())  # int with long, float with double
    members = [_plain(column.field(n), b) for n, b in enumerate(branches)]
    return [next((v for v in row if v is not None), None) for row in zip(*members, strict=True)]


def _grouped(column: pa.Array, flat: list[Any]) -> list[Any]:
    groups: list[Any] = []
    at = 0
    for size in column.value_lengths().to_pylist():
        if size is None:
            groups.append(None)
        else:
            groups.append(flat[at : at + size])
            at += size
    return groups


class _Unscaled(int):
    """The number of a decimal, which stands for the bytes that store it."""


def _unscaled(value: Any) -> int:
    sign, digits, _ = value.as_tuple()
    return int("".join(map(str, digits)) or "0") * (-1 if sign else 1)


def same(ours: Any, model: Any) -> bool:
    """Whether plain values are equal; not-a-number equals itself, a decimal equals its bytes."""
    if isinstance(ours, _Unscaled):
        return isinstance(model, bytes) and int.from_bytes(model, "big", signed=True) == ours
    if isinstance(ours, float) and isinstance(model, float | int):
        return ours == model or (math.isnan(ours) and math.isnan(model))
    if isinstance(ours, dict) and isinstance(model, dict):
        return ours.keys() == model.keys() and all(same(v, model[k]) for k, v in ours.items())
    if isinstance(ours, list) and isinstance(model, list):
        return len(ours) == len(model) and all(map(same, ours, model))
    return bool(ours == model)
