"""Bringing rows from the schema of a file to the schema of the table, column by column.

A conversion is compiled once for a pair of schemas and applied to every batch. Columns are matched
by name (exactly, else without regard to case where that is unambiguous), at every level of nesting;
list elements and map entries are matched by position, because writers name them differently.
Columns that the file lacks come back null, columns that the table lacks are not read. Renames, from
schema-on-read, are given by the full dotted name in the table.

Guarantees: the result has exactly the target's schema; row count and order never change; columns of
equal type are passed on without a copy, and a batch that already fits is returned as it is. What
cannot be converted raises `SchemaError` with the column, both types and the file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakewright.errors import SchemaError
from lakewright.format.type_promotion import Kernel, Place, promotion

__all__ = ["MISSING", "Conversion", "Promote", "conversion"]

MISSING = ""
"""As the source name of a rename: the file has no such column, whatever its names say."""

Promote = Callable[[pa.DataType, pa.DataType, Place], Kernel | None]
"""How values that are not nested change their type; None where they need not."""

PLANS_KEPT = 512
NO_CONSTANTS: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class _Column:
    """Where one target column comes from; `source` None: the file lacks it."""

    target: pa.Field
    source: str | None
    kernel: Kernel | None


@dataclass(frozen=True, slots=True)
class _Plan:
    columns: tuple[_Column, ...]
    schema: pa.Schema

    @property
    def is_identity(self) -> bool:
        return all(c.kernel is None and c.source == c.target.name for c in self.columns)


@dataclass(frozen=True, slots=True)
class Conversion:
    """A compiled way from one schema to another."""

    plan: _Plan = field(repr=False)
    path: str

    @property
    def schema(self) -> pa.Schema:
        """What `apply` returns."""
        return self.plan.schema

    @property
    def source_columns(self) -> tuple[str, ...]:
        """Top-level columns of the file that must be read, each once."""
        return tuple(dict.fromkeys(c.source for c in self.plan.columns if c.source is not None))

    @property
    def absent(self) -> tuple[str, ...]:
        """Target columns that the file lacks; null unless a constant is given."""
        return tuple(c.target.name for c in self.plan.columns if c.source is None)

    def stored_as(self, column: str) -> str | None:
        """The file's column that holds exactly the values of a target column, if one does.

        Statistics of a file may be compared with a filter only through this name.
        """
        found = next((c for c in self.plan.columns if c.target.name == column), None)
        return None if found is None or found.kernel is not None else found.source

    def apply(
        self, batch: pa.RecordBatch, constants: Mapping[str, Any] = NO_CONSTANTS
    ) -> pa.RecordBatch:
        """Convert a batch that holds at least `source_columns`.

        `constants` gives values for columns whatever the file says of them, such as partition
        columns of a table that does not store them: merges of Hudi leave nulls of them in files.
        """
        plan = self.plan
        if (
            not constants
            and plan.is_identity
            and batch.schema.equals(plan.schema, check_metadata=True)
        ):
            return batch
        try:
            arrays = [_convert(c, batch, constants) for c in plan.columns]
        except SchemaError as error:
            raise _at(error, self.path) from error
        if not arrays:
            return batch.select([])
        return pa.RecordBatch.from_arrays(arrays, schema=plan.schema)


def conversion(
    source: pa.Schema,
    target: pa.Schema,
    *,
    renames: Mapping[str, str] = MappingProxyType({}),
    path: str = "",
    promote: Promote = promotion,
) -> Conversion:
    """Compile the way from `source` (a file's schema) to `target`.

    `renames` maps full dotted names in the target to the names of their fields in the source;
    `MISSING` marks a column that the file must be taken not to have. `promote` has the rules for
    values; those of reading files unless told otherwise.
    """
    try:
        return Conversion(_plan(source, target, frozenset(renames.items()), promote), path)
    except SchemaError as error:
        raise _at(error, path) from error


@lru_cache(maxsize=PLANS_KEPT)
def _plan(
    source: pa.Schema, target: pa.Schema, renames: frozenset[tuple[str, str]], promote: Promote
) -> _Plan:
    compiler = _Compiler(dict(renames), promote)
    matched = compiler.match(list(source), list(target), "")
    columns = tuple(
        _Column(wanted, None, None)
        if found is None
        else _Column(wanted, found.name, compiler.kernel(found.type, wanted.type, wanted.name))
        for wanted, found in zip(target, matched, strict=True)
    )
    return _Plan(columns, target)


def _convert(column: _Column, batch: pa.RecordBatch, constants: Mapping[str, Any]) -> pa.Array:
    if column.source is None or column.target.name in constants:
        value = constants.get(column.target.name)
        if value is None:
            return pa.nulls(batch.num_rows, column.target.type)
        raw = value.as_py() if isinstance(value, pa.Scalar) else value
        return pa.repeat(pa.scalar(raw, column.target.type), batch.num_rows)
    index = batch.schema.get_field_index(column.source)
    if index < 0:
        raise SchemaError(
            f"A batch lacks column {column.source}, which was found once in its file.",
            hint="Read all of `source_columns` before converting.",
            context={"column": column.source},
        )
    array = batch.column(index)
    return array if column.kernel is None else column.kernel(array)


def _at(error: SchemaError, path: str) -> SchemaError:
    context = {**error.context, "path": path} if path else error.context
    return SchemaError(error.message, hint=error.hint, context=context)


@dataclass(frozen=True, slots=True)
class _Compiler:
    """Walks two types in step and puts kernels together."""

    renames: Mapping[str, str]
    promote: Promote

    def match(
        self, source: Sequence[pa.Field], target: Sequence[pa.Field], parent: str
    ) -> list[pa.Field | None]:
        """For each target field the source field it comes from, if any."""
        by_name = {f.name: f for f in source}
        by_folded: dict[str, list[pa.Field]] = {}
        for f in source:
            by_folded.setdefault(f.name.lower(), []).append(f)
        taken = {f.name for f in target}
        return [self._matched(f, by_name, by_folded, taken, parent) for f in target]

    def _matched(
        self,
        wanted: pa.Field,
        by_name: Mapping[str, pa.Field],
        by_folded: Mapping[str, Sequence[pa.Field]],
        taken: set[str],
        parent: str,
    ) -> pa.Field | None:
        renamed = self.renames.get(_joined(parent, wanted.name))
        if renamed is not None:
            return None if renamed == MISSING else by_name.get(renamed)
        if wanted.name in by_name:
            return by_name[wanted.name]
        alike = [f for f in by_folded.get(wanted.name.lower(), ()) if f.name not in taken]
        return alike[0] if len(alike) == 1 else None

    def kernel(self, source: pa.DataType, target: pa.DataType, name: str) -> Kernel | None:
        """How an array of `source` becomes one of `target`; None where it is one already."""
        if source.equals(target, check_metadata=True) and not self._renamed_below(name):
            return None
        if pt.is_struct(source) and pt.is_struct(target):
            return self._struct(source, target, name)
        if pt.is_map(source) and pt.is_map(target):
            return self._map(source, target, name)
        if _is_list(source) and pt.is_list(target):
            return self._list(source, target, name)
        if pt.is_nested(target) or pt.is_nested(source):
            if pt.is_null(source):
                return lambda array: pa.nulls(len(array), target)
            raise Place(name).impossible(source, target)
        return self.promote(source, target, Place(name))

    def _renamed_below(self, name: str) -> bool:
        return any(full.startswith(f"{name}.") for full in self.renames)

    def _struct(self, source: pa.DataType, target: pa.DataType, name: str) -> Kernel:
        wanted = [target.field(i) for i in range(target.num_fields)]
        found = self.match([source.field(i) for i in range(source.num_fields)], wanted, name)
        steps = [
            None
            if f is None
            else (
                source.get_field_index(f.name),
                self.kernel(f.type, w.type, _joined(name, w.name)),
            )
            for f, w in zip(found, wanted, strict=True)
        ]

        def apply(array: pa.Array) -> pa.Array:
            mask = array.is_null() if array.null_count else None
            children = []
            for step, w in zip(steps, wanted, strict=True):
                if step is None:
                    children.append(pa.nulls(len(array), w.type))
                    continue
                index, kernel = step
                if kernel is None:
                    children.append(array.field(index))
                else:
                    # With the parent's nulls: what lies below a null parent is not a value.
                    children.append(kernel(pc.struct_field(array, [index])))
            if not children:
                return array.cast(target)
            return pa.StructArray.from_arrays(children, fields=wanted, mask=mask)

        return apply

    def _list(self, source: pa.DataType, target: pa.DataType, name: str) -> Kernel:
        element = self.kernel(source.value_type, target.value_type, _joined(name, "element"))
        plain = None if pt.is_list(source) else pa.list_(source.value_field)

        def apply(array: pa.Array) -> pa.Array:
            array = array if plain is None else array.cast(plain)
            offsets, start, stop = _offsets(array)
            values = array.values.slice(start, stop - start)
            mask = array.is_null() if array.null_count else None
            return pa.ListArray.from_arrays(
                offsets, values if element is None else element(values), type=target, mask=mask
            )

        return apply

    def _map(self, source: pa.DataType, target: pa.DataType, name: str) -> Kernel:
        key = self.kernel(source.key_type, target.key_type, _joined(name, "key"))
        item = self.kernel(source.item_type, target.item_type, _joined(name, "value"))

        def apply(array: pa.Array) -> pa.Array:
            offsets, start, stop = _offsets(array)
            keys = array.keys.slice(start, stop - start)
            items = array.items.slice(start, stop - start)
            return pa.MapArray.from_arrays(
                offsets,
                keys if key is None else key(keys),
                items if item is None else item(items),
                type=target,
                mask=array.is_null() if array.null_count else None,
            )

        return apply


def _joined(parent: str, name: str) -> str:
    return f"{parent}.{name}" if parent else name


def _is_list(kind: pa.DataType) -> bool:
    return bool(pt.is_list(kind) or pt.is_large_list(kind) or pt.is_fixed_size_list(kind))


def _offsets(array: pa.Array) -> tuple[pa.Array, int, int]:
    """Offsets from zero, and the range of child values they cover."""
    offsets = array.offsets
    start, stop = offsets[0].as_py(), offsets[-1].as_py()
    if start == 0 and offsets.offset == 0:
        return offsets, 0, stop
    return pc.subtract(offsets, pa.scalar(start, offsets.type)), start, stop
