"""Row images of change data as JSON text, to the letter as Hudi prints them.

Hudi has two printers. Images that it holds as Avro records show every column, nulls included, with
the value as Avro stores it: dates and times as numbers, fixed decimals as lists of bytes. Images
that it holds as Spark rows leave nulls out and have no blanks; up to release 1.0 their columns come
in the order of a hash map of Scala 2.12, later in table order.

One thing is not copied. Where Spark rows print decimals (and, up to 1.0, nested columns) as the
insides of JVM objects, the value itself is printed.

Guarantees: whole columns at a time; a null image gives null. Python looks at single values only
where a text needs escapes or a value is bytes, bounded by the rows of the batch.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakewright.codec.avro.types import Array, AvroType, Fixed, Map, Primitive, Record, Union
from lakewright.codec.hashing import java_string_hash
from lakewright.format.java_text import decimal_text, floating_text

__all__ = ["record_texts", "row_texts", "scala_map_order"]


_NULL = pa.scalar("null")
_SHORT_ESCAPES = {
    '"': '\\"',
    "\\": "\\\\",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
}
_ROW_SPECIAL = r'["\\\x00-\x1f]'
_AVRO_SPECIAL = r'["\\\x00-\x1f\x{7f}-\x{9f}\x{2000}-\x{20ff}]'

# ---- rows of Spark -----------------------------------------------------------------------------


def row_texts(rows: pa.StructArray, *, hash_order: bool) -> pa.Array:
    """The images as Spark rows print; with `hash_order` as the releases up to 1.0 do."""
    fields = list(rows.type)
    order = scala_map_order([f.name for f in fields]) if hash_order else range(len(fields))
    return _where(rows.is_valid(), _object([(fields[i].name, rows.field(i)) for i in order]))


def _object(columns: Sequence[tuple[str, pa.Array]]) -> pa.Array:
    entries = []
    for name, column in columns:
        entry = pc.binary_join_element_wise(f"{_key(name)}:", _value(column), ",", "")
        entries.append(entry.fill_null(""))
    return _braced(pc.binary_join_element_wise(*entries, ""))


def _braced(entries: pa.Array) -> pa.Array:
    """Entries that each end with a comma, in braces."""
    cut = pc.binary_slice(entries.cast(pa.binary()), 0, -1).cast(pa.string())
    return pc.binary_join_element_wise("{", cut, "}", "")


def _value(column: pa.Array) -> pa.Array:
    kind = column.type
    if pt.is_struct(kind):
        members = [(f.name, column.field(i)) for i, f in enumerate(kind)]
        return _where(column.is_valid(), _object(members))
    if pt.is_map(kind):
        keys, items = _map_entries(column)
        entries = pc.binary_join_element_wise(_row_text(keys), ":", _value(items), ",", "")
        return _braced(_joined(column, entries.fill_null(""), ""))
    if _is_list(kind):
        elements = _value(column.flatten()).fill_null(_NULL)
        return pc.binary_join_element_wise("[", _joined(column, elements, ","), "]", "")
    if pt.is_timestamp(kind):
        return column.cast(pa.timestamp("us", kind.tz)).cast(pa.int64()).cast(pa.string())
    if pt.is_decimal(kind):
        return decimal_text(column)
    if _is_bytes(kind):
        return _quoted(_each(column, lambda b: base64.b64encode(b).decode()))
    return _row_text(column) if _is_text(kind) else _scalar(column)


def _row_text(column: pa.Array) -> pa.Array:
    return _quoted(_escaped(column.cast(pa.string()), _ROW_SPECIAL))


# ---- Avro records ------------------------------------------------------------------------------


def record_texts(rows: pa.StructArray, record: Record) -> pa.Array:
    """The images as Avro records of this schema print; the columns must be the record's fields."""
    members = [
        pc.binary_join_element_wise(f"{_key(f.name)}: ", _shown(column, f.type), "")
        for f, column in zip(record.fields, _members(rows), strict=True)
    ]
    text = pc.binary_join_element_wise("{", pc.binary_join_element_wise(*members, ", "), "}", "")
    return _where(rows.is_valid(), text)


def _shown(column: pa.Array, schema: AvroType) -> pa.Array:
    return _avro_value(column, schema).fill_null(_NULL)


def _avro_value(column: pa.Array, schema: AvroType) -> pa.Array:
    if isinstance(schema, Union):
        return _branch(column, schema)
    if isinstance(schema, Record):
        return record_texts(column, schema)
    if isinstance(schema, Map):
        keys, items = _map_entries(column)
        entries = pc.binary_join_element_wise(
            _avro_text(keys), ": ", _shown(items, schema.values), ""
        )
        return pc.binary_join_element_wise("{", _joined(column, entries, ", "), "}", "")
    if isinstance(schema, Array):
        elements = _shown(column.flatten(), schema.items)
        return pc.binary_join_element_wise("[", _joined(column, elements, ", "), "]", "")
    if isinstance(schema, Fixed):
        return _fixed(column, schema.size)
    if isinstance(schema, Primitive) and schema.kind == "bytes":
        return _avro_text(_latin(column))
    return _avro_text(column) if _is_text(column.type) else _scalar(column)


def _branch(column: pa.Array, schema: Union) -> pa.Array:
    if schema.optional is not None:
        return _avro_value(column, schema.optional)
    branches = [b for b in schema.branches if b != Primitive("null")]
    if not pt.is_struct(column.type) or len(branches) != column.type.num_fields:
        return _scalar(column)  # unions of numbers are one number
    members = zip(_members(column), branches, strict=True)
    return pc.coalesce(*(_avro_value(member, branch) for member, branch in members))


def _avro_text(column: pa.Array) -> pa.Array:
    return _quoted(_escaped(column.cast(pa.string()), _AVRO_SPECIAL))


def _fixed(column: pa.Array, size: int) -> pa.Array:
    """Bytes as Java lists them."""
    if pt.is_decimal(column.type):
        exact = [_unscaled(v, size) for v in column.to_pylist()]
        column = pa.array(exact, pa.binary())
    return _each(column, lambda b: str(np.frombuffer(b, np.int8).tolist()))


def _latin(column: pa.Array) -> pa.Array:
    if pt.is_decimal(column.type):
        column = pa.array([_unscaled(v, None) for v in column.to_pylist()], pa.binary())
    return _each(column, lambda b: b.decode("latin-1"))


def _unscaled(value: object, size: int | None) -> bytes | None:
    """The unscaled number of a decimal, big-endian, in `size` bytes or as few as hold it."""
    if value is None:
        return None
    sign, digits, _ = value.as_tuple()  # type: ignore[attr-defined]
    number = int("".join(map(str, digits)))
    number = -number if sign else number
    width = size or (number if number >= 0 else ~number).bit_length() // 8 + 1
    return number.to_bytes(width, "big", signed=True)


# ---- both --------------------------------------------------------------------------------------


def _scalar(column: pa.Array) -> pa.Array:
    """Numbers and booleans; dates and times as the numbers they are stored as."""
    kind = column.type
    if pt.is_floating(kind):
        text = floating_text(column)
        return pc.if_else(pc.is_finite(column), text, _quoted(text))
    if pt.is_date32(kind) or pt.is_time32(kind):
        column = column.cast(pa.int32())
    elif pt.is_timestamp(kind) or pt.is_time64(kind):
        column = column.cast(pa.int64())
    return column.cast(pa.string())


def _key(name: str) -> str:
    return '"' + _escape(name) + '"'


def _quoted(texts: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise('"', texts, '"', "")


def _escaped(texts: pa.Array, special: str) -> pa.Array:
    odd = pc.match_substring_regex(texts, special).fill_null(False)
    if not pc.any(odd).as_py():
        return texts
    test = _is_row_special if special is _ROW_SPECIAL else _is_avro_special
    exact = [_escape(text, test) for text in texts.filter(odd).to_pylist()]
    return pc.replace_with_mask(texts, odd, pa.array(exact, pa.string()))


def _is_row_special(character: str) -> bool:
    return character < " "


def _is_avro_special(character: str) -> bool:
    return character < " " or "\x7f" <= character <= "\x9f" or "\u2000" <= character <= "\u20ff"


def _escape(text: str, is_special: Callable[[str], bool] = _is_row_special) -> str:
    return "".join(
        _SHORT_ESCAPES.get(c) or (f"\\u{ord(c):04X}" if is_special(c) else c) for c in text
    )


def _each(column: pa.Array, shown: Callable[[bytes], str]) -> pa.Array:
    values = column.cast(pa.binary()).to_pylist()
    return pa.array([None if v is None else shown(v) for v in values], pa.string())


def _where(valid: pa.Array, texts: pa.Array) -> pa.Array:
    return pc.if_else(valid, texts, pa.scalar(None, pa.string()))


def _members(rows: pa.StructArray) -> list[pa.Array]:
    return [rows.field(i) for i in range(rows.type.num_fields)]


def _joined(lists: pa.Array, elements: pa.Array, separator: str) -> pa.Array:
    """The texts of each list's elements in one text; null for a null list."""
    lengths = pc.list_value_length(_as_lists(lists)).fill_null(0)
    offsets = np.concatenate([[0], np.cumsum(lengths.to_numpy(zero_copy_only=False))])
    grouped = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), elements)
    return _where(lists.is_valid(), pc.binary_join(grouped, separator))


def _map_entries(column: pa.MapArray) -> tuple[pa.Array, pa.Array]:
    entries = _as_lists(column).flatten()
    return entries.field(0), entries.field(1)


def _as_lists(column: pa.Array) -> pa.Array:
    if not pt.is_map(column.type):
        return column
    entry = pa.struct([("key", column.type.key_type), ("value", column.type.item_type)])
    return column.cast(pa.list_(entry))


def _is_text(kind: pa.DataType) -> bool:
    return bool(pt.is_string(kind) or pt.is_large_string(kind) or pt.is_dictionary(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(pt.is_binary(kind) or pt.is_large_binary(kind) or pt.is_fixed_size_binary(kind))


def _is_list(kind: pa.DataType) -> bool:
    return bool(pt.is_list(kind) or pt.is_large_list(kind))


# ---- the order of a hash map -------------------------------------------------------------------

_GOLDEN = 0x9E3775CD
_WORD = 0xFFFFFFFF
_FIRST_BUCKETS = 16
_ROTATION = 4


def scala_map_order(names: Sequence[str]) -> list[int]:
    """Positions of the names in the order in which a mutable map of Scala 2.12 gives its keys.

    >>> scala_map_order(["id", "ts", "name"])
    [2, 1, 0]
    """
    hashes = [int(h) & _WORD for h in java_string_hash(pa.array(names, pa.string()))]
    buckets: list[list[int]] = [[] for _ in range(_FIRST_BUCKETS)]
    for position in range(len(names)):  # one per column
        _put(buckets, position, hashes)
        if position + 1 > len(buckets) * 3 // 4:
            grown: list[list[int]] = [[] for _ in range(2 * len(buckets))]
            for bucket in reversed(buckets):
                for known in bucket:
                    _put(grown, known, hashes)
            buckets = grown
    return [position for bucket in reversed(buckets) for position in bucket]


def _put(buckets: list[list[int]], position: int, hashes: Sequence[int]) -> None:
    swapped = (hashes[position] * _GOLDEN) & _WORD
    swapped = int.from_bytes(swapped.to_bytes(4, "big"), "little")
    mixed = (swapped * _GOLDEN) & _WORD
    mixed = (mixed >> _ROTATION | mixed << 32 - _ROTATION) & _WORD
    mask = len(buckets) - 1
    buckets[mixed >> 32 - mask.bit_length() & mask].insert(0, position)
