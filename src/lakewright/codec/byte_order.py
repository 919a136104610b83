"""The order of keys by their bytes, as HFiles have it.

Keys mostly differ within eight bytes behind what all of them begin with. These bytes are sorted as
numbers, which is several times faster than comparing texts; keys that are equal there are compared
whole. Where many are equal, all are compared whole from the start.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakewright.codec.hashing import ByteRows

__all__ = ["byte_order"]

_FEW: Final = 256
_TIES_MAX: Final = 0.1
_WORD: Final = 8


def byte_order(keys: pa.Array) -> npt.NDArray[np.intp]:
    """Places of the keys in ascending order of their bytes; equal keys in any order."""
    keys = keys.cast(pa.binary())
    if len(keys) < _FEW:
        return _whole(keys)
    words = _words(ByteRows.of(keys), _shared(keys))
    order = np.argsort(words)
    arranged = words[order]
    same = np.zeros(len(keys) + 1, np.bool_)
    same[1:-1] = arranged[1:] == arranged[:-1]
    tied = np.flatnonzero(same[:-1] | same[1:])  # equal to the one before or behind
    if len(tied) > _TIES_MAX * len(keys):
        return _whole(keys)
    if len(tied):
        runs = pa.table({"word": arranged[tied], "key": keys.take(pa.array(order[tied]))})
        by = [("word", "ascending"), ("key", "ascending")]
        order[tied] = order[tied][np.asarray(pc.sort_indices(runs, sort_keys=by))]
    return order


def _whole(keys: pa.Array) -> npt.NDArray[np.intp]:
    return np.asarray(pc.sort_indices(keys)).astype(np.intp)


def _shared(keys: pa.Array) -> int:
    """Bytes that all keys begin with."""
    ends: Any = pc.min_max(keys)
    low, high = ends["min"].as_py(), ends["max"].as_py()
    pairs = enumerate(zip(low, high, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(low), len(high)))


def _words(rows: ByteRows, skip: int) -> npt.NDArray[np.uint64]:
    """Eight bytes of each key as a number that sorts like them; zeros where a key has ended."""
    left = np.minimum(rows.lengths - skip, _WORD)
    words = rows.words("<u8", rows.starts + skip).byteswap().astype(np.uint64)
    unused = ((_WORD - left) * 8).astype(np.uint64)
    whole = unused < 64
    return np.where(whole, words >> unused << unused, np.uint64(0)) if unused.any() else words
