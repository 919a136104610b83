"""What a table of keyed writes must hold: plain rows, kept by the meaning of each operation.

No code of the product is used. A record has up to two versions: what its base file says and what
the log says over it, because Hudi's rules differ between both (services of Hudi turn the second
into the first). A Copy-on-Write table has only the first. Rules are those of the release that owns
the table version: payload classes of 0.15 at version 6, merge modes at version 8.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from interop.keyed_cases import KeyedCase
from interop.written_rows import Row

FLAG = "_hoodie_is_deleted"
ORDER = "ts"


@dataclass(frozen=True)
class Delete:
    """A deletion; without an ordering value it wins over everything before it."""

    order: int | None = None


Version = Row | Delete
Place = tuple[tuple[str, ...], tuple[Any, ...]]
"""A partition and a key."""


@dataclass
class Stored:
    """One key in one partition, as its file group has it."""

    base: Row | None = None
    log: Version | None = None
    last: Version | None = None
    """The last version that came into the log, whether it counts or not."""
    ordered: Version | None = None
    """What the log says to a reader that orders deletions by their values too."""
    struck: bool = False
    """Whether a deletion without an ordering value is somewhere in the log."""
    then: Stored | None = None
    """What it is going to be when a compaction is done that was planned before."""


@dataclass(frozen=True)
class Rule:
    """How versions of one key meet."""

    version: int
    merge: str

    def in_batch(self, older: Row, newer: Row) -> Row:
        """Two rows of one write."""
        if self.merge == "commit" and self.version == 8:
            return newer
        return self._by_order(older, newer)

    def in_log(self, older: Version, newer: Version) -> Version:
        """Two versions in the log of a file group."""
        if self.merge == "commit" and self.version == 8:
            return newer
        if isinstance(newer, Delete):
            before = older.order if isinstance(older, Delete) else older[ORDER]
            wins = newer.order is None or before is None or newer.order >= before
            return newer if wins else older
        if isinstance(older, Delete):
            hidden = older.order is not None and newer[ORDER] < older.order
            return older if hidden and self.version == 8 else newer
        return self._by_order(older, newer)

    def over_base(self, base: Row, newer: Version) -> Row | None:
        """What is left of a row in a base file under a newer version; None: nothing."""
        if isinstance(newer, Delete):
            loses = newer.order is not None and newer.order < base[ORDER]
            return base if loses and self.version == 8 and self.merge == "event" else None
        if newer.get(FLAG):
            return base if self.merge == "event" and base[ORDER] > newer[ORDER] else None
        return newer if self.merge == "commit" else self._by_order(base, newer)

    def _by_order(self, older: Row, newer: Row) -> Row:
        winner, other = (older, newer) if older[ORDER] > newer[ORDER] else (newer, older)
        if self.merge != "partial":
            return winner
        names = {**other, **winner}
        return {n: other.get(n) if winner.get(n) is None else winner[n] for n in names}


ORDERED = Rule(8, "event")


@dataclass
class Model:
    """The content of one table."""

    case: KeyedCase
    held: dict[Place, Stored] = field(default_factory=dict)
    planned: bool = False
    """Whether a compaction is planned and not done."""

    @property
    def rule(self) -> Rule:
        """How its versions meet."""
        return Rule(self.case.version, self.case.merge)

    # -- writes -----------------------------------------------------------------------------

    def upsert(self, rows: Iterable[Row]) -> None:
        """Rows of one write, in order."""
        batch: dict[tuple[Any, ...], Row] = {}
        for row in rows:
            identity = self.case.identity(row)
            before = batch.get(identity)
            batch[identity] = row if before is None else self.rule.in_batch(before, row)
        for row in batch.values():
            self._upsert_one(row)

    def _upsert_one(self, row: Row) -> None:
        place = self.place(row)
        if self.case.is_global:
            elsewhere = [p for p in self.held if p[1] == place[1] and p[0] != place[0]]
            for other in elsewhere:
                seen = self._seen(self.held[other])
                if seen is not None and self.rule.over_base(seen, row) == seen:
                    return  # the stored row stays where it is
            for other in elsewhere:
                self._put(other, Delete())
        self._put(place, row)

    def delete(self, rows: Iterable[Row]) -> None:
        """Delete by the keys of rows."""
        for row in rows:
            partition, key = self.place(row)
            for place in list(self.held):
                if place[1] == key and (self.case.is_global or place[0] == partition):
                    self._put(place, Delete())

    def delete_where(self, chosen: Callable[[Row], bool]) -> None:
        """Delete the rows that pass."""
        self.delete([row for row in self.rows() if chosen(row)])

    def set_columns(self, rows: Iterable[Row], columns: Iterable[str]) -> None:
        """Update some columns of rows that are there."""
        seen = {self.case.identity(row): row for row in self.rows()}
        for row in rows:
            old = seen[self.case.identity(row)]
            self._upsert_one({**old, **{name: row[name] for name in columns}})

    def plan(self) -> None:
        """What is there now goes into base files with the next compaction; what follows does not.

        Readers see the same until then.
        """
        for stored in self.held.values():
            stored.then = Stored(base=self._seen(stored))
        self.planned = True

    def compact(self) -> None:
        """What was planned into base files, everything if nothing was."""
        if not self.planned:
            self.plan()
        for place, stored in list(self.held.items()):
            if stored.then is not None:
                self.held[place] = stored.then
            if self.held[place].base is None and self.held[place].log is None:
                del self.held[place]
        self.planned = False

    def place(self, row: Row) -> Place:
        """Where a row belongs."""
        return self.case.partition_of(row), tuple(row[name] for name in self.case.key_fields)

    def _put(self, place: Place, version: Version) -> None:
        stored = self.held.get(place)
        if self.case.type == "cow":
            self._put_base(place, stored, version)
            return
        if not isinstance(version, Delete) and version.get(FLAG):
            version = Delete(version[ORDER])
        if stored is None and self.case.index == "BUCKET":
            stored = self.held[place] = Stored(then=Stored() if self.planned else None)
        for each in (stored, stored.then) if stored is not None else ():
            if each is not None:
                self._append(each, version)
        if stored is None and not isinstance(version, Delete):
            self.held[place] = Stored(base=version)

    def _append(self, stored: Stored, version: Version) -> None:
        older, before = stored.log, stored.ordered
        stored.log = version if older is None else self.rule.in_log(older, version)
        stored.ordered = version if before is None else ORDERED.in_log(before, version)
        stored.last = version
        stored.struck |= version == Delete()

    def _put_base(self, place: Place, stored: Stored | None, version: Version) -> None:
        if stored is None:
            if not isinstance(version, Delete) and not version.get(FLAG):
                self.held[place] = Stored(base=version)
            return
        assert stored.base is not None
        stored.base = self.rule.over_base(stored.base, version)
        if stored.base is None:
            del self.held[place]

    # -- reads ------------------------------------------------------------------------------

    def rows(self) -> list[Row]:
        """What a reader sees."""
        seen = (self._seen(stored) for stored in self.held.values())
        return [row for row in seen if row is not None]

    def latest(self) -> list[Row]:
        """What a reader sees that takes the last version in every log."""
        seen = (stored.last or stored.base for stored in self.held.values())
        return [row for row in seen if row is not None and not isinstance(row, Delete)]

    def in_order(self) -> list[Row]:
        """What a reader sees for which ordering values decide about deletions as well."""
        held = self.held.values()
        seen = (_over(ORDERED, stored.base, stored.ordered) for stored in held)
        return [row for row in seen if row is not None]

    def _seen(self, stored: Stored) -> Row | None:
        return _over(self.rule, stored.base, stored.log)


def _over(rule: Rule, base: Row | None, log: Version | None) -> Row | None:
    """A row as its base file and its log have it together."""
    if log is None:
        return base
    if base is not None:
        return rule.over_base(base, log)
    return None if isinstance(log, Delete) else log
