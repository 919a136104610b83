"""A table as plain dicts: what upserts and deletes make of it by the documented rules of merging.

Every key in every partition is a cell: the row of its base file, and the fold of its log. Which
file groups a write rewrote as base files is told to the model; everything else it works out alone,
one pair of versions after the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from tests.engine.keyed.tables import FLAG, Shape

Place = tuple[str, str]
"""Partition path and record key."""


@dataclass(frozen=True)
class Version:
    """One version of a row: an entry of a delete block has no row."""

    row: Mapping[str, Any] | None
    order: int = 0
    deleted: bool = False
    default: bool = True
    """Whether its ordering value says nothing: there is none, or it is the number 0 in 32 bits."""
    instant: str = ""

    @property
    def empty(self) -> bool:
        """Whether it is a delete without a row."""
        return self.row is None

    @property
    def unordered(self) -> bool:
        """Whether it is a delete that wins over everything before it."""
        return self.deleted and self.default


GONE = Version(None, deleted=True)


@dataclass
class Cell:
    """One key in one partition."""

    base: Version | None = None
    log: Version | None = None


@dataclass
class Counts:
    """What a write should say of itself."""

    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    ignored: int = 0


@dataclass
class Model:
    """The content of one table."""

    shape: Shape
    cells: dict[Place, Cell] = field(default_factory=dict)
    group_of: dict[Place, str] = field(default_factory=dict)
    """File groups of the keys that are in base files."""

    # ---- rules ---------------------------------------------------------------------------------

    @property
    def _rule(self) -> str:
        shape = self.shape
        if shape.merging == "commit":
            return "commit"
        return shape.merging if shape.version == 6 else "one"

    def version(self, row: Mapping[str, Any], instant: str = "") -> Version:
        """A row that comes in."""
        deleted = bool(row[FLAG])
        if self._rule == "commit":
            return Version(row, 0, deleted, True, instant)
        small = pa.types.is_int32(self.shape.ordering)
        return Version(row, row["ts"], deleted, small and row["ts"] == 0, instant)

    def combined(self, older: Version, newer: Version) -> Version:
        """Two rows of one write."""
        if self._rule == "commit":
            return newer
        if self._rule == "one" and (older.unordered or newer.unordered):
            return newer
        return older if older.order > newer.order else newer

    def logged(self, older: Version | None, newer: Version) -> Version:
        """What a log holds of a key after another entry."""
        if older is None or self._rule == "commit":
            return newer
        if self._rule == "one":
            if older.unordered and newer.empty:
                return older
            if older.unordered or newer.unordered:
                return newer
            return older if older.order > newer.order else newer
        if older.empty or newer.unordered:
            return newer
        return older if older.order > newer.order else newer

    def stored(self, base: Version, newer: Version) -> Version | None:
        """What becomes of a row in a base file that meets a newer version."""
        rule = self._rule
        wins = rule in ("commit", "payload") or newer.order >= base.order
        if rule == "one" and newer.unordered:
            wins = True
        if rule == "event" and newer.empty:
            wins = True
        if not wins:
            return base
        return None if newer.deleted else newer

    # ---- content -------------------------------------------------------------------------------

    def seen(self, place: Place) -> Version | None:
        """What a reader sees of a key in a partition."""
        cell = self.cells.get(place)
        if cell is None:
            return None
        if cell.log is None:
            return cell.base
        if cell.base is None:
            return None if cell.log.deleted else cell.log
        return self.stored(cell.base, cell.log)

    def content(self) -> list[tuple[Any, ...]]:
        """Every row: partition path and instant, where rows have them, and values."""
        found = []
        for place in self.cells:
            version = self.seen(place)
            if version is not None and version.row is not None:
                told = (place[0], version.instant) if self.shape.meta else (None, None)
                found.append((*told, *version.row.values()))
        return sorted(found, key=repr)

    def places_of(self, key: str) -> list[Place]:
        """Where an index finds a key: in base files, or in any; a record index forgets deletes."""
        found = [place for place in self.cells if place[1] == key]
        if self.shape.index in ("RECORD_INDEX", "RECORD_LEVEL_INDEX"):
            found = [place for place in found if self.seen(place) is not None]
        return found

    def path(self, row: Mapping[str, Any]) -> str:
        """The partition of a row."""
        return str(row["p"]) if self.shape.partitioned else ""

    # ---- writes --------------------------------------------------------------------------------

    def reduced(self, rows: Sequence[Mapping[str, Any]], instant: str) -> dict[Place, Version]:
        """One version of each key of a write."""
        found: dict[Any, Version] = {}
        for row in rows:
            key = row["id"] if self.shape.is_global else (self.path(row), row["id"])
            newer = self.version(row, instant)
            older = found.get(key)
            found[key] = newer if older is None else self.combined(older, newer)
        return {
            (self.path(version.row), version.row["id"]): version
            for version in found.values()
            if version.row is not None
        }

    def upsert(
        self,
        rows: Sequence[Mapping[str, Any]],
        instant: str,
        rewritten: Mapping[str, Sequence[Place]],
        buckets: Mapping[Place, bool],
    ) -> Counts:
        """Rows; `buckets` tells for every place whether its bucket was there before."""
        counts = Counts()
        for place, version in self.reduced(rows, instant).items():
            self._put(place, version, rewritten, buckets, counts)
        self._settle(rewritten)
        return counts

    def delete(
        self,
        places: Iterable[Place],
        rewritten: Mapping[str, Sequence[Place]],
        buckets: Mapping[Place, bool],
    ) -> Counts:
        """Deletes by key."""
        counts = Counts()
        if self.shape.is_global:
            for key in dict.fromkeys(key for _, key in places):
                there = self.places_of(key)
                counts.ignored += not there
                for found in there:
                    self._put(found, GONE, rewritten, buckets, counts)
        else:
            for place in dict.fromkeys(places):
                self._put(place, GONE, rewritten, buckets, counts)
        self._settle(rewritten)
        return counts

    def append(
        self,
        rows: Sequence[Mapping[str, Any]],
        instant: str,
        rewritten: Mapping[str, Sequence[Place]],
    ) -> None:
        """Rows of new keys."""
        for row in rows:
            place = (self.path(row), row["id"])
            self.cells.setdefault(place, Cell()).base = self.version(row, instant)
        self._settle(rewritten)

    def _settle(self, rewritten: Mapping[str, Sequence[Place]]) -> None:
        """Learn where keys are; forget cells without anything."""
        for group, places in rewritten.items():
            self.group_of = {p: g for p, g in self.group_of.items() if g != group}
            self.group_of.update(dict.fromkeys(places, group))
        self.cells = {p: c for p, c in self.cells.items() if c.base or c.log}

    def _put(
        self,
        place: Place,
        version: Version,
        rewritten: Mapping[str, Sequence[Place]],
        buckets: Mapping[Place, bool],
        counts: Counts,
    ) -> None:
        if self.shape.is_bucket and self.shape.type == "mor":
            self._to_bucket_log(place, version, buckets[place], counts)
            return
        hits = [found for found in self.places_of(place[1]) if found == place]
        if self.shape.is_global and not version.empty:
            hits = self.places_of(place[1])
            if self.shape.moves and any(found != place for found in hits):
                self._move(place, version, hits, rewritten, counts)
                return
        if not hits:
            self._insert(place, version, counts)
        for found in hits:
            self._change(found, version, rewritten, counts)

    def _insert(self, place: Place, version: Version, counts: Counts) -> None:
        if version.deleted:
            counts.ignored += 1
        else:
            self.cells[place] = Cell(base=version)
            counts.inserted += 1

    def _move(
        self,
        place: Place,
        version: Version,
        hits: Sequence[Place],
        rewritten: Mapping[str, Sequence[Place]],
        counts: Counts,
    ) -> None:
        """A row that is for another partition than where its key is."""
        others = [found for found in hits if found != place]
        alive = [row for found in others if (row := self.seen(found)) is not None]
        if any(self.stored(row, version) is row for row in alive):
            counts.ignored += 1
            return
        for found in others:
            gone = Counts()
            self._change(found, GONE, rewritten, gone)
            counts.deleted += gone.deleted
        if place in hits:
            self._change(place, version, rewritten, counts)
        elif version.deleted:
            pass
        else:
            self._insert(place, version, counts)

    def _change(
        self,
        place: Place,
        version: Version,
        rewritten: Mapping[str, Sequence[Place]],
        counts: Counts,
    ) -> None:
        """A version of a key that a base file has."""
        cell = self.cells[place]
        assert cell.base is not None
        if self.shape.type == "mor" and self.group_of[place] not in rewritten:
            entry = version
            if version.deleted:
                entry = replace(version, row=None)
                counts.deleted += 1
            else:
                counts.updated += 1
            cell.log = self.logged(cell.log, entry)
            return
        assert cell.log is None, "a base file was written beside a log"
        after = self.stored(cell.base, version)
        if after is cell.base:
            counts.ignored += 1
        elif after is None:
            counts.deleted += 1
        else:
            counts.updated += 1
        cell.base = after

    def _to_bucket_log(self, place: Place, version: Version, there: bool, counts: Counts) -> None:
        if version.deleted and not there:
            counts.ignored += 1
            return
        cell = self.cells.setdefault(place, Cell())
        if version.deleted:
            counts.deleted += 1
            cell.log = self.logged(cell.log, replace(version, row=None))
            return
        cell.log = self.logged(cell.log, version)
        if there:
            counts.updated += 1
        else:
            counts.inserted += 1
