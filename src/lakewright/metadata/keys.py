"""Keys of the metadata table: how columns, partitions, files and records become key bytes.

Pure functions over whole columns. Names are hashed with XXH64 (seed sign-extended as in Java) and
MD5 and written as Base64, column first, so that everything about a column is one prefix. Which file
group of a partition holds a key is the key's Java hash modulo their number.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakewright.codec.hashing import java_string_hash, xxh64

__all__ = [
    "ALL_PARTITIONS",
    "COLUMN_HASH_CHARS",
    "NULL_PREFIX",
    "PARTITION_END",
    "column_prefixes",
    "escaped",
    "file_digest",
    "file_digests",
    "file_group_index",
    "file_group_number",
    "joined_keys",
    "name_hashes",
    "partition_hashes",
    "partition_identifier",
    "partition_path",
    "secondary_entries",
    "secondary_prefix",
    "secondary_prefixes",
    "unescaped",
]

ALL_PARTITIONS: Final = b"__all_partitions__"
COLUMN_HASH_CHARS: Final = 12
PARTITION_END: Final = 24
"""Keys of column statistics: the column's hash, then the partition's, then the file's digest."""

_SEED: Final = 0xFFFFFFFFDABADABA
_ROOT: Final = "."
_NULL_VALUE: Final = "\0"
_SEPARATOR: Final = "$"
NULL_PREFIX: Final = _NULL_VALUE + _SEPARATOR
"""What secondary index keys of records without a value begin with."""


def partition_identifier(path: str) -> str:
    """What stands for a partition path in keys; the root partition has no name of its own."""
    return path or _ROOT


def partition_path(identifier: str) -> str:
    """The partition path of an identifier."""
    return "" if identifier == _ROOT else identifier


def name_hashes(names: Sequence[str]) -> list[bytes]:
    """The 12 characters that stand for each name (a column, or a partition's identifier)."""
    digests = xxh64(pa.array(names, pa.string()), _SEED).astype(">u8").tobytes()
    return [base64.b64encode(digests[i : i + 8]) for i in range(0, len(digests), 8)]


def file_digest(name: str) -> bytes:
    """The 24 characters that stand for a file name."""
    return base64.b64encode(hashlib.md5(name.encode(), usedforsecurity=False).digest())


def file_digests(names: pa.StringArray) -> pa.BinaryArray:
    """The digest of each file name; each distinct one is formed once."""
    encoded = names.dictionary_encode()
    digests = [file_digest(name) for name in encoded.dictionary.to_pylist()]
    return pa.array(digests, pa.binary()).take(encoded.indices)


def partition_hashes(paths: pa.StringArray) -> pa.BinaryArray:
    """The hash of each partition path's identifier."""
    encoded = paths.dictionary_encode()
    names = [partition_identifier(p) for p in encoded.dictionary.to_pylist()]
    return pa.array(name_hashes(names), pa.binary()).take(encoded.indices)


def joined_keys(*pieces: pa.BinaryArray | bytes) -> pa.BinaryArray:
    """Keys from their pieces, one behind the other."""
    return pc.binary_join_element_wise(*pieces, b"")


def column_prefixes(columns: Sequence[str], partitions: Sequence[str] | None) -> list[bytes]:
    """Prefixes of all statistics of the columns, everywhere or in the given partitions."""
    hashes = name_hashes(columns)
    if partitions is None:
        return hashes
    places = name_hashes([partition_identifier(p) for p in partitions])
    return [column + place for column in hashes for place in places]


def file_group_index(keys: Any, groups: int) -> npt.NDArray[np.int64]:
    """Which of `groups` file groups holds each key, as the JVM computes it."""
    hashes = java_string_hash(keys).astype(np.int64)
    # Java's absolute value of the smallest int is itself; its remainder keeps the sign.
    absolute = np.where(hashes == -(1 << 31), hashes, np.abs(hashes))
    return np.abs(np.fmod(absolute, groups)).astype(np.int64)


def file_group_number(file_id: str) -> int | None:
    """The number in a file id (`col-stats-0001-0` is 1), or None if it has none."""
    digits = file_id.removesuffix("-0").rpartition("-")[2]
    return int(digits) if digits.isascii() and digits.isdigit() else None


def escaped(value: str | None) -> str:
    """A part of a secondary index key."""
    if value is None:
        return _NULL_VALUE
    for special in ("\\", _SEPARATOR, _NULL_VALUE):
        value = value.replace(special, "\\" + special)
    return value


def secondary_entries(values: pa.StringArray, keys: pa.StringArray) -> pa.BinaryArray:
    """The secondary index keys of records: their values as text, and their record keys."""
    pieces = (secondary_prefixes(values), _masked(keys))
    return pc.binary_join_element_wise(*pieces, "").cast(pa.binary())


def secondary_prefixes(values: pa.StringArray) -> pa.StringArray:
    """What the entries of each value begin with, separator included."""
    return pc.binary_join_element_wise(_masked(values).fill_null(_NULL_VALUE), _SEPARATOR, "")


def _masked(texts: pa.StringArray) -> pa.StringArray:
    return pc.replace_substring_regex(texts, pattern=r"[\\$\x00]", replacement=r"\\\0")


def unescaped(parts: pa.StringArray) -> pa.StringArray:
    """The values of escaped parts."""
    return pc.replace_substring_regex(parts, pattern=r"(?s)\\(.)", replacement=r"\1")


def secondary_prefix(values: Iterable[str | None]) -> list[bytes]:
    """What the secondary index keys of each value start with, separator included."""
    return [(escaped(v) + _SEPARATOR).encode() for v in values]
