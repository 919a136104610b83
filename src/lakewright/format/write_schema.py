"""The schema of a table after a write, and how incoming rows get there.

Decided from two schemas before any row is looked at. Columns are matched by name at every level of
nesting. New columns are added at the end, nullable. A column that the rows lack is filled with
nulls if the table allows them. Rows of a narrower type are widened; where the rows are wider, the
column is promoted as far as Avro resolves old files (int to long, any number to double). Everything
else is a `SchemaError` that names the column. Meta columns of incoming rows are ignored: a write
makes its own.

The table's own names and namespaces are kept, because readers compare them. Tables with a
schema-on-read history are refused: its column ids would have to be kept.

Guarantees: converted batches have exactly the table's columns in order; no value changes silently;
nulls where the table has none are an `InputError` with their number.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakewright.codec.avro.arrow_types import arrow_schema, arrow_type, from_arrow
from lakewright.codec.avro.schema import to_json
from lakewright.codec.avro.types import (
    Array,
    AvroType,
    Field,
    Map,
    Primitive,
    Record,
    Union,
)
from lakewright.errors import InputError, SchemaError, UnsupportedTableError
from lakewright.format.creation_schema import data_schema
from lakewright.format.evolution import Conversion, conversion
from lakewright.format.incoming_types import exact_cast, fits_into, misfit, stored_type
from lakewright.format.internal_schema import InternalSchemas
from lakewright.format.table_schema import META_COLUMNS, without_meta_columns

__all__ = ["RowConversion", "WriteSchema", "reconcile"]

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_LONG, _DOUBLE = Primitive("long"), Primitive("double")
_PROMOTIONS = {
    ("int", pa.int64()): _LONG,
    ("int", pa.float32()): _DOUBLE,
    ("int", pa.float64()): _DOUBLE,
    ("long", pa.float32()): _DOUBLE,
    ("long", pa.float64()): _DOUBLE,
    ("float", pa.float64()): _DOUBLE,
}
"""What a column becomes to take rows of a wider type without losing a digit of old ones."""


@dataclass(frozen=True, slots=True)
class RowConversion:
    """Brings incoming batches to the table's columns."""

    source: pa.Schema
    schema: pa.Schema
    """What `apply` returns: the table's columns, without meta columns."""
    converted: Conversion = field(repr=False)
    absent: frozenset[str] = frozenset()
    """Columns that the rows may lack although the table wants values: those of partial rows."""

    def apply(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows of a batch of the incoming schema; `InputError` for values that do not fit."""
        names, given = self.source.names, {f.name: f.type for f in batch.schema}
        if any(given.get(f.name) != f.type for f in self.source):
            raise InputError(
                "A batch does not have the schema that the rows began with.",
                hint="All batches of one write have the same columns and types.",
                context={"got": batch.schema.names, "began_with": names},
            )
        made = self.converted.apply(batch.select(names))
        for column, wanted in zip(made.columns, self.schema, strict=True):
            if wanted.name not in self.absent:
                _refuse_nulls(column, wanted, wanted.name)
        return made


@dataclass(frozen=True, slots=True)
class WriteSchema:
    """The table's schema after the write."""

    record: Record
    """Without meta columns, in the form that commits and files carry."""
    rows: RowConversion
    added: tuple[str, ...]
    """Columns that the table did not have, dotted."""
    promoted: tuple[str, ...]
    """Columns that got a wider type, dotted."""

    @property
    def text(self) -> str:
        """The schema for commit metadata."""
        return to_json(self.record)

    @property
    def changes_table(self) -> bool:
        """Whether the table has another schema after the write."""
        return bool(self.added or self.promoted)


def reconcile(
    table: Record,
    incoming: pa.Schema,
    *,
    history: InternalSchemas | None = None,
    partial: bool = False,
) -> WriteSchema:
    """The schema after writing rows of `incoming` to a table of the schema `table`.

    `partial` rows may lack any column.
    """
    if history is not None:
        raise UnsupportedTableError(
            "The table has a schema-on-read history, which writing would have to keep.",
            hint="Write this table with Hudi; reading it is supported.",
        )
    incoming = _without_meta(incoming)
    _refuse_twins(incoming.names)
    before = data_schema(without_meta_columns(table))
    reconciler = _Reconciler([], [], partial)
    record = reconciler.record(before, list(incoming), "")
    schema = arrow_schema(record)
    made = conversion(incoming, _relaxed(schema) if partial else schema, promote=exact_cast)
    absent = frozenset(made.absent) if partial else frozenset()
    rows = RowConversion(incoming, schema, made, absent)
    return WriteSchema(record, rows, tuple(reconciler.added), tuple(reconciler.promoted))


def _relaxed(schema: pa.Schema) -> pa.Schema:
    return pa.schema([f.with_nullable(True) for f in schema])


def _without_meta(incoming: pa.Schema) -> pa.Schema:
    return pa.schema([f.remove_metadata() for f in incoming if f.name not in META_COLUMNS])


@dataclass(frozen=True, slots=True)
class _Reconciler:
    """Walks the table's schema and the incoming one in step."""

    added: list[str]
    promoted: list[str]
    partial: bool = False

    def record(self, table: Record, incoming: Sequence[pa.Field], parent: str) -> Record:
        found = _matched(table, incoming)
        fields = []
        for column in table.fields:
            path = _joined(parent, column.name)
            match = found.get(column.name)
            if match is None:
                if parent or not self.partial:
                    _refuse_missing(column, path)
                fields.append(column)
            else:
                fields.append(replace(column, type=self.type(column.type, match.type, path)))
        taken = {match.name for match in found.values()}
        fields += (
            self._new(table, f, _joined(parent, f.name)) for f in incoming if f.name not in taken
        )
        return replace(table, fields=tuple(fields))

    def type(self, table: AvroType, incoming: pa.DataType, path: str) -> AvroType:
        """The type of a column after the write."""
        if isinstance(table, Union):
            return self._union(table, incoming, path)
        if isinstance(table, Record) and pt.is_struct(incoming):
            fields = [incoming.field(i) for i in range(incoming.num_fields)]
            _refuse_twins([f.name for f in fields], path)
            return self.record(table, fields, path)
        if isinstance(table, Array) and _is_list(incoming):
            items = self.type(table.items, incoming.value_type, f"{path}.element")
            return replace(table, items=items)
        if isinstance(table, Map) and pt.is_map(incoming):
            values = self.type(table.values, incoming.item_type, f"{path}.value")
            return replace(table, values=values)
        return self._leaf(table, incoming, path)

    def _union(self, table: Union, incoming: pa.DataType, path: str) -> AvroType:
        value = table.optional
        if value is None:
            return self._leaf(table, incoming, path)
        kept = self.type(value, incoming, path)
        return Union(tuple(kept if branch is value else branch for branch in table.branches))

    def _leaf(self, table: AvroType, incoming: pa.DataType, path: str) -> AvroType:
        have, come = arrow_type(table), stored_type(incoming, path)
        if fits_into(come, have):
            return table
        if isinstance(table, Primitive) and table.logical is None:
            wider = _PROMOTIONS.get((table.kind, come))
            if wider is not None:
                self.promoted.append(path)
                return replace(wider, props=table.props)
        raise misfit(path, incoming, have)

    def _new(self, parent: Record, incoming: pa.Field, path: str) -> Field:
        stored = stored_type(incoming.type, path)
        if pt.is_null(stored):
            raise SchemaError(
                f"Column {path} is new and has only nulls, so that its type is not known.",
                hint="Cast it to the type it shall have, or leave it out.",
                context={"column": path},
            )
        _refuse_names([incoming.name], path)
        _refuse_nested_names(stored, path)
        column = pa.field(incoming.name, stored, nullable=True)
        namespace, _, name = parent.name.rpartition(".")
        declared = from_arrow(pa.schema([column]), name=name, namespace=namespace)
        self.added.append(path)
        return declared.fields[0]


def _matched(table: Record, incoming: Sequence[pa.Field]) -> dict[str, pa.Field]:
    """Incoming fields by the table's name: equal names first, then names that differ in case."""
    exact = {f.name: f for f in incoming}
    names = {column.name for column in table.fields}
    folded = {f.name.lower(): f for f in incoming if f.name not in names}
    found = {name: exact.get(name) or folded.get(name.lower()) for name in names}
    return {name: f for name, f in found.items() if f is not None}


def _refuse_missing(column: Field, path: str) -> None:
    if isinstance(column.type, Union) and column.type.null_index is not None:
        return
    raise SchemaError(
        f"The rows lack column {path}, and the table does not allow it to be null.",
        hint="Add the column to the rows.",
        context={"column": path},
    )


def _refuse_twins(names: Iterable[str], parent: str = "") -> None:
    seen: dict[str, str] = {}
    for name in names:
        twin = seen.get(name.lower())
        seen[name.lower()] = name
        if twin is not None:
            raise SchemaError(
                f"Columns {_joined(parent, twin)} and {_joined(parent, name)} cannot be told apart "
                "by readers that ignore case.",
                hint="Rename or drop one of them.",
                context={"column": _joined(parent, name)},
            )


def _refuse_names(names: Iterable[str], path: str) -> None:
    for name in names:
        if not _NAME.fullmatch(name):
            raise SchemaError(
                f"Column {path} cannot be added: {name!r} is not a name in Avro.",
                hint="Use letters, digits and underscores, and no digit in front.",
                context={"column": path},
            )


def _refuse_nested_names(kind: pa.DataType, path: str) -> None:
    if not pt.is_nested(kind):
        return
    fields = [kind.field(i) for i in range(kind.num_fields)]
    if pt.is_struct(kind):
        _refuse_names([f.name for f in fields], path)
        _refuse_twins([f.name for f in fields], path)
    for f in fields:
        if pt.is_null(f.type):
            raise SchemaError(
                f"Column {path}.{f.name} is new and has only nulls, so that its type is not known.",
                hint="Cast it to the type it shall have, or leave it out.",
                context={"column": f"{path}.{f.name}"},
            )
        _refuse_nested_names(f.type, f"{path}.{f.name}")


def _refuse_nulls(array: pa.Array, wanted: pa.Field, path: str) -> None:
    """Nulls are allowed where the table allows them, and nothing below a null parent counts."""
    if not wanted.nullable and array.null_count:
        raise InputError(
            f"Column {path} has {array.null_count} nulls, which the table does not allow.",
            hint="Fill them before writing; nothing was written.",
            context={"column": path, "nulls": array.null_count},
        )
    kind = wanted.type
    if not _requires_below(kind):
        return
    if pt.is_struct(kind):
        present = array.drop_null() if array.null_count else array
        for i in range(kind.num_fields):
            below = kind.field(i)
            _refuse_nulls(pc.struct_field(present, [i]), below, f"{path}.{below.name}")
    elif pt.is_map(kind):
        _refuse_nulls(_entries(array, array.items), kind.item_field, f"{path}.value")
    elif pt.is_list(kind):
        _refuse_nulls(array.flatten(), kind.value_field, f"{path}.element")


def _entries(array: pa.Array, values: pa.Array) -> pa.Array:
    start, stop = array.offsets[0].as_py(), array.offsets[len(array)].as_py()
    return values.slice(start, stop - start)


def _requires_below(kind: pa.DataType) -> bool:
    if not pt.is_nested(kind):
        return False
    below = (
        [kind.item_field] if pt.is_map(kind) else [kind.field(i) for i in range(kind.num_fields)]
    )
    return any(not f.nullable or _requires_below(f.type) for f in below)


def _is_list(kind: pa.DataType) -> bool:
    return bool(pt.is_list(kind) or pt.is_large_list(kind) or pt.is_fixed_size_list(kind))


def _joined(parent: str, name: str) -> str:
    return f"{parent}.{name}" if parent else name
