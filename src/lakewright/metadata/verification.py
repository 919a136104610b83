"""Differences between what the metadata table says and what the table's files say.

Both sides come as Arrow tables with the same columns; `compared` holds them against each other by
key and gives every difference as a value. It is pure and works on whole columns; a Python object is
made per difference only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

__all__ = [
    "Compared",
    "Difference",
    "DifferenceKind",
    "Finding",
    "compared",
    "enclosing",
    "row_keys",
]

Values = Mapping[str, Any]


class DifferenceKind(StrEnum):
    """In what way the metadata table is wrong."""

    MISSING = "missing"
    """The files say it, the metadata table does not."""
    UNEXPECTED = "unexpected"
    """The metadata table says it, the files do not."""
    DIFFERENT = "different"
    """They say different things."""
    MISPLACED = "misplaced"
    """The record is in another file group than the one where it is looked for."""
    STALE = "stale"
    """A completed change of the table is not in the metadata table."""
    UNREADABLE = "unreadable"
    """An index cannot be read."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing about which the metadata table is wrong."""

    index: str
    kind: DifferenceKind
    key: str
    """What it is about, for people: a file, a column of a file, a record."""
    expected: Values | None = None
    """What the files say; only what differs, where both say something."""
    found: Values | None = None
    """What the metadata table says."""

    def to_dict(self) -> dict[str, Any]:
        """The difference as plain values."""
        return {
            "index": self.index,
            "kind": self.kind.value,
            "key": self.key,
            "expected": dict(self.expected) if self.expected is not None else None,
            "found": dict(self.found) if self.found is not None else None,
        }


@dataclass(frozen=True, slots=True)
class Compared:
    """How many records of an index were compared; it follows the differences of that index."""

    index: str
    records: int
    differences: int
    note: str = ""
    """Why an index could not be compared."""


Finding = Difference | Compared
"""What a verification gives, one by one."""


def compared(
    index: str,
    expected: pa.Table,
    found: pa.Table,
    *,
    key: Sequence[str],
    label: str = "{}",
    mute: str | None = None,
) -> Iterator[Difference]:
    """Rows of the tables that differ: first those of `expected`, in its order, then the rest.

    `key` names the columns that tell which rows belong together; all others are compared. `label`
    turns the values of the key into words. `mute` names a column of flags of `found`: where it is
    set, the bounds are stored in a form that says nothing about the column, and are not compared.
    """
    values = [n for n in expected.column_names if n not in key]
    pairs = _paired(expected, found, key)
    wrong = np.zeros((len(expected), len(values)), np.bool_)
    silent = _flags(pairs.found, mute)
    for number, name in enumerate(values):
        unequal = _unequal(pairs.expected[name], pairs.found[name])
        wrong[pairs.known, number] = unequal & ~silent if name in _BOUNDS else unequal
    yield from _told(index, expected, found, pairs, wrong, values, key, label)


def enclosing(
    index: str, expected: pa.Table, found: pa.Table, *, key: Sequence[str], label: str, mute: str
) -> Iterator[Difference]:
    """Rows of statistics that do not enclose what is expected: they could hide rows from a query.

    Bounds may be wider than they need be, and counts may count a file twice. What must hold: a
    value lies between the bounds, a null is counted, and a column of nulls has only nulls.
    """
    values = ["min", "max", "value_count", "null_count"]
    pairs = _paired(expected, found, key)
    wrong = np.zeros((len(expected), len(values)), np.bool_)
    silent = _flags(pairs.found, mute)
    ours, theirs = pairs.expected, pairs.found
    for number, (name, beyond) in enumerate(_BOUNDS.items()):
        unequal = _unequal(ours[name], theirs[name])
        bounded = np.asarray(ours[name].is_valid())
        wrong[pairs.known, number] = unequal & bounded & beyond(ours[name], theirs[name]) & ~silent
    nulls, told = _numbers(ours["null_count"]), _numbers(theirs["null_count"])
    rows, told_rows = _numbers(ours["value_count"]), _numbers(theirs["value_count"])
    wrong[pairs.known, 3] = ((nulls > 0) & (told == 0)) | ((nulls < rows) & (told == told_rows))
    yield from _told(
        index, expected.select([*key, *values]), found, pairs, wrong, values, key, label
    )


@dataclass(frozen=True, slots=True)
class _Pairs:
    """Rows of both sides that have the same key, aligned, and where they come from."""

    known: npt.NDArray[np.bool_]
    """Rows of what is expected that have a partner."""
    places: npt.NDArray[np.int64]
    """The partner of each row of what is expected, where there is one."""
    expected: pa.Table
    found: pa.Table
    unexpected: npt.NDArray[np.intp]
    """Rows that were found and have no partner."""


def _paired(expected: pa.Table, found: pa.Table, key: Sequence[str]) -> _Pairs:
    ours, theirs = row_keys(expected, key), row_keys(found, key)
    at = pc.index_in(ours, value_set=theirs)
    known = np.asarray(at.is_valid())
    places = np.asarray(at.fill_null(0)).astype(np.int64)
    return _Pairs(
        known,
        places,
        expected.filter(pa.array(known)),
        found.take(pa.array(places[known], pa.int64())),
        np.flatnonzero(~np.asarray(pc.is_in(theirs, value_set=ours))),
    )


def _told(
    index: str,
    expected: pa.Table,
    found: pa.Table,
    pairs: _Pairs,
    wrong: npt.NDArray[np.bool_],
    values: Sequence[str],
    key: Sequence[str],
    label: str,
) -> Iterator[Difference]:
    """The differences as values; `wrong` tells per row and column what differs."""
    for row in np.flatnonzero(~pairs.known | wrong.any(axis=1)).tolist():
        name = label.format(*_values(expected, row, key).values())
        if not pairs.known[row]:
            told = _values(expected, row, values)
            yield Difference(index, DifferenceKind.MISSING, name, expected=told)
            continue
        columns = [n for n, bad in zip(values, wrong[row].tolist(), strict=True) if bad]
        yield Difference(
            index,
            DifferenceKind.DIFFERENT,
            name,
            expected=_values(expected, row, columns),
            found=_values(found, int(pairs.places[row]), columns),
        )
    for row in pairs.unexpected.tolist():
        name = label.format(*_values(found, row, key).values())
        told = _values(found, row, [v for v in values if v in found.column_names])
        yield Difference(index, DifferenceKind.UNEXPECTED, name, found=told)


def row_keys(table: pa.Table, key: Sequence[str]) -> pa.Array:
    """One text per row that tells it from rows with other keys."""
    parts = [pc.fill_null(table[name].cast(pa.string()), "\1") for name in key]
    joined = parts[0] if len(parts) == 1 else pc.binary_join_element_wise(*parts, "/\0")
    return joined.combine_chunks() if isinstance(joined, pa.ChunkedArray) else joined


def _flags(table: pa.Table, name: str | None) -> npt.NDArray[np.bool_]:
    if name is None:
        return np.zeros(len(table), np.bool_)
    return np.asarray(pc.fill_null(table[name], False)).astype(np.bool_)


def _unequal(ours: pa.ChunkedArray, theirs: pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    """Null equals null and nothing else."""
    if pa.types.is_null(ours.type):
        return np.zeros(len(ours), np.bool_)
    same = pc.fill_null(pc.equal(ours, theirs.cast(ours.type)), False)
    both_null = pc.and_(ours.is_null(), theirs.is_null())
    return ~np.asarray(pc.or_(same, both_null)).astype(np.bool_)


def _above(ours: pa.ChunkedArray, theirs: pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    return _not(pc.less_equal(theirs, ours))


def _below(ours: pa.ChunkedArray, theirs: pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    return _not(pc.greater_equal(theirs, ours))


def _not(encloses: pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    return ~np.asarray(pc.fill_null(encloses, False)).astype(np.bool_)


_BOUNDS = {"min": _above, "max": _below}


def _numbers(column: pa.ChunkedArray) -> npt.NDArray[np.int64]:
    return np.asarray(pc.fill_null(column, -1)).astype(np.int64)


def _values(table: pa.Table, row: int, columns: Sequence[str]) -> dict[str, Any]:
    return {name: table[name][row].as_py() for name in columns}
