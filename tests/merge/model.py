"""Merging written down plainly: one dict per row, one version after the other.

Two oracles. `plain_slice` knows the built-in modes and nothing of the product. `fold_pairs` knows
no rule at all: it asks the public merger for one pair at a time and carries the result on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lakewright.merge.protocol import MergeContext, Phase, RecordMerger, Take
from tests.merge.slices import KEY, Gone, Row, Version, merge_pair


@dataclass(frozen=True)
class _Known:
    row: Mapping[str, Any] | None
    ordering: tuple[Any, ...]
    deleted: bool
    default: bool

    @property
    def unordered(self) -> bool:
        return self.deleted and self.default


def _known(version: Version, fields: Sequence[str], zero_is_default: bool) -> _Known:
    if isinstance(version, Gone):
        values = version.ordering or (None,) * len(fields)
        return _Known(None, tuple(v or 0 for v in values), True, version.ordering is None)
    values = tuple(version.values.get(name) for name in fields)
    default = not fields or (
        len(fields) == 1 and (values[0] is None or (zero_is_default and values[0] == 0))
    )
    deleted = bool(version.values.get("_hoodie_is_deleted"))
    return _Known(version.values, tuple(v or 0 for v in values), deleted, default)


def plain_slice(
    base: Sequence[Mapping[str, Any]],
    log: Sequence[Version],
    fields: Sequence[str],
    *,
    commit_time: bool = False,
    zero_is_default: bool = False,
) -> list[Mapping[str, Any]]:
    """A slice by event time or commit time: base rows in order, then the rest of the log."""

    def newer_wins(older: _Known, newer: _Known, in_log: bool) -> bool:
        if commit_time:
            return True
        if in_log and newer.row is None and older.unordered:
            return False
        if older.unordered or newer.unordered:
            return True
        return newer.ordering >= older.ordering

    buffer: dict[str, _Known] = {}
    for version in log:
        key = version.key
        newer = _known(version, fields, zero_is_default)
        if key not in buffer or newer_wins(buffer[key], newer, in_log=True):
            buffer[key] = newer
    result: list[Mapping[str, Any]] = []
    for row in base:
        entry = buffer.pop(row[KEY], None)
        stored = replace(_known(Row(row), fields, zero_is_default), deleted=False)
        if entry is None or not newer_wins(stored, entry, in_log=False):
            result.append(row)
        elif not entry.deleted and entry.row is not None:
            result.append(entry.row)
    result += [e.row for e in buffer.values() if not e.deleted and e.row is not None]
    return result


def fold_pairs(
    merger: RecordMerger,
    ctx: MergeContext,
    base: Sequence[Mapping[str, Any]],
    log: Sequence[Version],
) -> list[dict[str, Any]]:
    """A slice by asking the merger for each pair on its own; log-only rows unjudged."""
    buffer: dict[str, Version] = {}
    for version in log:
        key = version.key
        older = buffer.get(key)
        buffer[key] = version if older is None else carried(merger, ctx, older, version)
    result: list[dict[str, Any]] = []
    at_base = replace(ctx, phase=Phase.BASE)
    for row in base:
        entry = buffer.pop(row[KEY], None)
        if entry is None:
            result.append(dict(row))
            continue
        outcome = merge_pair(merger, at_base, Row(row), entry)
        if outcome.row is not None:
            result.append(outcome.row)
    return result + [dict(v.values) for v in buffer.values() if isinstance(v, Row)]


def carried(merger: RecordMerger, ctx: MergeContext, older: Version, newer: Version) -> Version:
    """The version that two versions make, asked of the merger."""
    outcome = merge_pair(merger, ctx, older, newer)
    if outcome.take in (Take.NEWER, Take.OLDER, Take.IGNORE):
        return newer if outcome.take is Take.NEWER else older
    if outcome.take is Take.BUILT:
        assert outcome.row is not None
        sets = [v.columns if isinstance(v, Row) else None for v in (older, newer)]
        columns = None if None in sets else frozenset().union(*(s for s in sets if s))
        if columns is not None and columns.issuperset(ctx.schema.names):
            columns = None
        return Row(outcome.row, columns)
    values = [_ordering(version, ctx) for version in (older, newer)]
    best = max(v for v in values)
    return Gone(older.key, best if any(best) else None)


def _ordering(version: Version, ctx: MergeContext) -> tuple[Any, ...]:
    if isinstance(version, Gone):
        return tuple(v or 0 for v in version.ordering or (0,) * len(ctx.ordering_columns))
    return tuple(version.values.get(name) or 0 for name in ctx.ordering_columns)
