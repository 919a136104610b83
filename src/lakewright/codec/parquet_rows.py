"""Some rows of a row group, decoded only as far as choosing among them needs.

Text that the file keeps in dictionaries is delivered so, since the indices alone say which rows
stay; and of columns whose pages are the same bytes, as keys beside the column they come from, only
one is decoded, to be written for each of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from lakewright.codec.parquet import ParquetFile, read_row_group
from lakewright.codec.parquet_footer import RawChunk

__all__ = ["SomeRows", "some_rows"]


@dataclass(frozen=True, slots=True, eq=False)
class SomeRows:
    """The chosen rows of one row group."""

    table: pa.Table
    twins: Mapping[str, str]
    """Columns that are not in the table, with the one there that has the same values."""


def some_rows(
    file: ParquetFile,
    group: int,
    keep: pa.BooleanArray,
    *,
    path: str,
    known: Mapping[str, pa.Array],
    without: frozenset[str] = frozenset(),
) -> SomeRows:
    """The rows of a row group that are kept; those of `known` columns are not read again.

    `path` is that of the file, for errors. Columns `without` which the rows are wanted are left
    out. The footer must not be damaged, and all columns have one codec.
    """
    twins = _twins(file, group, path, without)
    names = [field.name for field in file.schema_arrow if field.name not in without]
    read = [name for name in names if name not in twins and name not in known]
    encoded = file.dictionary_encoded(_texts_with_dictionary(file, group, read), path=path)
    rows = file.metadata.row_group(group).num_rows
    batches = read_row_group(encoded, group, path=path, columns=read, batch_rows=rows)
    found = pa.Table.from_batches(list(batches)).filter(keep)
    columns: dict[str, Any] = {name: found[name] for name in read}
    columns |= {name: values.filter(keep) for name, values in known.items()}
    # Levels of values depend on whether there may be nulls, so that is as it was.
    fields = [
        file.schema_arrow.field(name).with_type(columns[name].type)
        for name in names
        if name not in twins
    ]
    table = pa.table([columns[field.name] for field in fields], schema=pa.schema(fields))
    return SomeRows(table, twins)


def _texts_with_dictionary(file: ParquetFile, group: int, names: list[str]) -> list[str]:
    metadata, schema = file.metadata.row_group(group), file.schema_arrow
    texts = {name for name in names if pt.is_string(schema.field(name).type)}
    columns = (metadata.column(n) for n in range(metadata.num_columns))
    return [
        c.path_in_schema for c in columns if c.path_in_schema in texts and c.has_dictionary_page
    ]


def _twins(file: ParquetFile, group: int, path: str, without: frozenset[str]) -> dict[str, str]:
    """Columns of text whose pages are those of an earlier one, byte for byte."""
    alike: dict[tuple[bool, int, int, int], dict[str, RawChunk]] = {}
    for name, chunk in file.chunks[group].items():
        field = file.schema_arrow.field(name)
        if name not in without and pt.is_string(field.type):
            kind = (field.nullable, chunk.values, chunk.size, chunk.plain_size)
            alike.setdefault(kind, {})[name] = chunk
    twins: dict[str, str] = {}
    for chunks in alike.values():
        firsts: dict[bytes, str] = {}
        for name, chunk in chunks.items() if len(chunks) > 1 else ():
            pages = file.read_raw(chunk.begin, chunk.size, path=path)
            first = firsts.setdefault(sha256(pages).digest(), name)
            if first != name:
                twins[name] = first
    return twins
