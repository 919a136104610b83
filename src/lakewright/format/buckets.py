"""The simple bucket index: which bucket a record key belongs to, and the file ids of buckets.

Byte for byte as Hudi computes it: a hash of the values of the index fields, taken from the text of
the record key. Releases differ in how they take a composite key apart
(`TableVersion.bucket_values_span_commas`). Columns in, columns out; only keys whose values hold
separators themselves are taken apart one by one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakewright.codec.hashing import java_list_hash
from lakewright.format.keys import EMPTY_PLACEHOLDER, NULL_PLACEHOLDER

__all__ = ["FIXED_TAIL", "bucket_of_file", "bucket_prefix", "buckets"]

Buckets = npt.NDArray[np.int32]

PREFIX_DIGITS: Final = 8
FIXED_TAIL: Final = "-0000-0000-0000-000000000000"
"""Follows the number in the file ids of writers that do not block each other."""
_BUCKET: Final = re.compile(r"\d{8}-")
_POSITIVE: Final = np.int32(0x7FFFFFFF)


def buckets(
    keys: pa.Array, fields: Sequence[str], count: int, *, values_span_commas: bool
) -> Buckets:
    """The bucket of every record key; `fields` are the index fields."""
    named = pc.match_substring(keys, ":")
    if values_span_commas:
        named = pc.and_(named, pc.match_substring(keys, ","))
    composite = np.flatnonzero(named.to_numpy(zero_copy_only=False))
    hashes = np.zeros(len(keys), np.int32)
    if len(composite) < len(keys):
        hashes = java_list_hash([keys])
    if len(composite):
        some = keys.take(pa.array(composite))
        hashes[composite] = _composite(some, fields, spans=values_span_commas)
    return np.asarray((hashes & _POSITIVE) % np.int32(count), np.int32)


def bucket_prefix(bucket: int) -> str:
    """What the file ids of a bucket begin with."""
    return f"{bucket:0{PREFIX_DIGITS}d}"


def bucket_of_file(file_id: str) -> int | None:
    """The bucket of a file id; None if it does not begin like one."""
    return int(file_id[:PREFIX_DIGITS]) if _BUCKET.match(file_id) else None


def _composite(keys: pa.Array, fields: Sequence[str], *, spans: bool) -> Buckets:
    """Hashes of keys that consist of named values."""
    pairs, commas = pc.count_substring(keys, ":"), pc.count_substring(keys, ",")
    bounds = pc.min_max(pairs)
    if bounds["min"] == bounds["max"] and pc.all(pc.equal(pc.add(commas, 1), pairs)).as_py():
        columns = _regular(keys, bounds["min"].as_py(), fields)
        if columns is not None:
            return java_list_hash(columns)
    parse = _spanning if spans else _at_commas
    rows = [parse(key, fields) for key in keys.to_pylist()]
    hashes = np.ones(len(rows), np.int32)
    widths = np.array([len(row) for row in rows])
    for width in np.unique(widths[widths > 0]):
        at = np.flatnonzero(widths == width)
        columns = [pa.array([rows[i][k] for i in at], pa.string()) for k in range(width)]
        hashes[at] = java_list_hash(columns)
    return hashes


def _regular(keys: pa.Array, pairs: int, fields: Sequence[str]) -> list[pa.Array] | None:
    """Values of keys that all have the same form; None if they have not, or their names differ."""
    flat = pc.split_pattern(keys, ",").flatten()
    if not pc.all(pc.match_substring(flat, ":")).as_py():
        return None
    columns = []
    for k in range(pairs):
        pair = flat.take(pa.array(np.arange(len(keys)) * pairs + k))
        parts = pc.split_pattern(pair, ":", max_splits=1).flatten()
        names = parts.take(pa.array(np.arange(len(keys)) * 2))
        if len(names.unique()) != 1:
            return None
        if names[0].as_py() in fields:
            columns.append(_restored(parts.take(pa.array(np.arange(len(keys)) * 2 + 1))))
    return columns or None


def _restored(values: pa.Array) -> pa.Array:
    values = pc.if_else(pc.equal(values, EMPTY_PLACEHOLDER), "", values)
    return pc.if_else(pc.equal(values, NULL_PLACEHOLDER), None, values)


def _at_commas(key: str, fields: Sequence[str]) -> list[str | None]:
    if ":" not in key:
        return [key]
    found = []
    for part in key.rstrip(",").split(","):
        name, colon, value = part.partition(":")
        if not colon:
            found.append(_restored_text(part))
        elif name in fields:
            found.append(_restored_text(value))
    return found


def _spanning(key: str, fields: Sequence[str]) -> list[str | None]:
    if ":" not in key or "," not in key:
        return [key]
    found = []
    name, _, rest = key.partition(":")
    while True:
        # A value ends at the last comma before the first colon that has one before it.
        first = rest.find(",")
        colon = rest.find(":", first) if first >= 0 else -1
        value = rest if colon < 0 else rest[: rest.rfind(",", 0, colon)]
        if not fields or name in fields:
            found.append(_restored_text(value))
        if colon < 0:
            return found or [key]
        name, rest = rest[len(value) + 1 : colon], rest[colon + 1 :]


def _restored_text(value: str) -> str | None:
    return {NULL_PLACEHOLDER: None, EMPTY_PLACEHOLDER: ""}.get(value, value)
