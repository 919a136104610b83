"""How nullable columns are declared: in the schema of a table's creation, and in its data.

Avro stores the index of a union's branch, so the order of branches is part of the bytes. Hudi
declares `[T, null]` without default in `hoodie.table.create.schema`, and `[null, T]` with default
null in everything that rows are written with. Names, documentation and every other part of a schema
stay as they are; a union of several types keeps its own order.
"""

from __future__ import annotations

from dataclasses import replace

from lakewright.codec.avro.types import (
    NO_DEFAULT,
    Array,
    AvroType,
    Field,
    Map,
    Primitive,
    Record,
    Union,
)

__all__ = ["creation_schema", "data_schema"]

_NULL = Primitive("null")


def creation_schema(record: Record) -> Record:
    """The schema as `hoodie.table.create.schema` holds it."""
    return _record(record, null_first=False)


def data_schema(record: Record) -> Record:
    """The schema as rows are written with it, in files, log blocks and commits."""
    return _record(record, null_first=True)


def _record(record: Record, *, null_first: bool) -> Record:
    return replace(record, fields=tuple(_field(f, null_first) for f in record.fields))


def _field(field: Field, null_first: bool) -> Field:
    kind = field.type
    if not (isinstance(kind, Union) and kind.optional is not None):
        return replace(field, type=_type(kind, null_first))
    if field.default is not NO_DEFAULT and field.default is not None:
        # A default is a value of the first branch: the order cannot change.
        return field
    return replace(field, type=_type(kind, null_first), default=None if null_first else NO_DEFAULT)


def _type(kind: AvroType, null_first: bool) -> AvroType:
    match kind:
        case Record():
            return _record(kind, null_first=null_first)
        case Array():
            return replace(kind, items=_type(kind.items, null_first))
        case Map():
            return replace(kind, values=_type(kind.values, null_first))
        case Union():
            if kind.optional is None:
                return Union(tuple(_type(branch, null_first) for branch in kind.branches))
            value = _type(kind.optional, null_first)
            return Union((_NULL, value) if null_first else (value, _NULL))
        case _:
            return kind
