"""The active timeline: what happened to a table, from one listing.

`load_timeline` lists the timeline folder once and keeps of each instant its highest state; it reads
no file. A `Timeline` is an immutable value and all its questions are pure. Filtered timelines
remember the whole they came from, so questions about the table (where the timeline starts, what is
archived, what is savepointed) have one answer on all of them. The functions at the end look into
instant files and say so by taking a storage.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import tzinfo
from functools import cached_property, lru_cache
from typing import Final

from lakewright.errors import ConflictError, CorruptFileError, NotFoundError
from lakewright.format.instant import (
    COMMIT_ACTIONS,
    WRITE_ACTIONS,
    Instant,
    State,
    completed_action,
    parse_instant_name,
)
from lakewright.format.instant_times import LOCAL_ZONE, format_time
from lakewright.format.records.cleaning import CleanMetadata
from lakewright.format.records.instants import (
    load_record,
    load_requested_replace,
    read_instant,
)
from lakewright.format.table_properties import TableProperties
from lakewright.storage.base import Storage

__all__ = [
    "Timeline",
    "earliest_commit_to_retain",
    "instant_files",
    "is_beginning_time",
    "is_pending_clustering",
    "load_timeline",
    "read_instant",
]

_BEGINNING: Final = "00000000000000"


@dataclass(frozen=True)
class Timeline:
    """Instants in the order of their requested times, each in its highest state."""

    instants: tuple[Instant, ...]
    duplicates: tuple[Instant, ...] = ()
    """Completed files beyond the newest one of the same instant: two writers completed it."""
    whole: Timeline | None = field(default=None, repr=False, compare=False)
    """The unfiltered timeline, on a filtered one."""

    @classmethod
    def of(cls, files: Iterable[Instant]) -> Timeline:
        """The timeline of state files in any order."""
        best: dict[tuple[str, str], Instant] = {}
        duplicates: list[Instant] = []
        for instant in files:
            key = (instant.requested_time, completed_action(instant.action))
            other = best.get(key)
            if other is None:
                best[key] = instant
                continue
            ordered = _rank(other) <= _rank(instant)
            low, high = (other, instant) if ordered else (instant, other)
            best[key] = high
            if low.completed:
                duplicates.append(low)
        return cls(tuple(best[key] for key in sorted(best)), tuple(duplicates))

    def __len__(self) -> int:
        return len(self.instants)

    def __iter__(self) -> Iterator[Instant]:
        return iter(self.instants)

    # ---- parts of it ---------------------------------------------------------------------------

    @property
    def _root(self) -> Timeline:
        return self.whole if self.whole is not None else self

    def filter(self, keep: Callable[[Instant], bool]) -> Timeline:
        """The instants for which `keep` holds."""
        return Timeline(tuple(filter(keep, self.instants)), whole=self._root)

    def filter_actions(self, *actions: str) -> Timeline:
        """Instants whose file says one of these actions."""
        wanted = frozenset(actions)
        return self.filter(lambda i: i.action in wanted)

    def completed(self) -> Timeline:
        """Committed instants."""
        return self.filter(lambda i: i.state is State.COMPLETED)

    def pending(self) -> Timeline:
        """Requested and inflight instants."""
        return self.filter(lambda i: i.state is not State.COMPLETED)

    def commits(self) -> Timeline:
        """Commits, deltacommits, replacecommits and pending clusterings."""
        return self.filter(lambda i: i.action in COMMIT_ACTIONS)

    def writes(self) -> Timeline:
        """Commits and pending compactions of both kinds: all that writes data files."""
        return self.filter(lambda i: i.action in WRITE_ACTIONS)

    def visible(self) -> Timeline:
        """Completed writes and pending compactions, whose instants version 6 puts on new logs."""
        return self.filter(
            lambda i: i.action == "compaction" or (i.completed and i.action in WRITE_ACTIONS)
        )

    def pending_compactions(self) -> Timeline:
        """Compactions that are not completed."""
        return self.filter_actions("compaction")

    def pending_log_compactions(self) -> Timeline:
        """Log compactions that are not completed."""
        return self.filter_actions("logcompaction")

    def savepoints(self) -> Timeline:
        """Completed savepoints; each has the time of the commit it keeps."""
        return self.filter(lambda i: i.completed and i.action == "savepoint")

    def up_to(self, requested_time: str) -> Timeline:
        """Instants requested at or before a time."""
        end = bisect_right(self._times, requested_time)
        return Timeline(self.instants[:end], whole=self._root)

    def after(self, requested_time: str) -> Timeline:
        """Instants requested after a time."""
        start = bisect_right(self._times, requested_time)
        return Timeline(self.instants[start:], whole=self._root)

    def completed_in(self, begin: str | None, end: str | None) -> Timeline:
        """Instants completed after `begin` and at or before `end`; None is open."""
        return self.filter(
            lambda i: (
                i.completion_time is not None
                and (begin is None or i.completion_time > begin)
                and (end is None or i.completion_time <= end)
            )
        )

    @cached_property
    def _times(self) -> list[str]:
        return [i.requested_time for i in self.instants]

    # ---- single instants -----------------------------------------------------------------------

    def first(self) -> Instant | None:
        """The instant requested first."""
        return self.instants[0] if self.instants else None

    def last(self) -> Instant | None:
        """The instant requested last."""
        return self.instants[-1] if self.instants else None

    def get(self, requested_time: str, action: str | None = None) -> Instant | None:
        """The instant of a time; without an action the write of that time before any other.

        The action may be that of any state: what was a compaction is found when it is a commit.
        """
        found = self._by_time.get(requested_time, ())
        if action is not None:
            family = completed_action(action)
            found = tuple(i for i in found if i.completed_action == family)
        return next(iter(found), None)

    @cached_property
    def _by_time(self) -> dict[str, tuple[Instant, ...]]:
        found: dict[str, tuple[Instant, ...]] = {}
        for instant in self.instants:
            known = found.get(instant.requested_time, ())
            write = instant.action in WRITE_ACTIONS
            found[instant.requested_time] = (instant, *known) if write else (*known, instant)
        return found

    def last_completed_commit(self) -> Instant | None:
        """The committed write requested last."""
        return self.commits().completed().last()

    def last_clean(self) -> Instant | None:
        """The completed clean requested last."""
        return self.filter_actions("clean").completed().last()

    def in_completion_order(self) -> tuple[Instant, ...]:
        """Instants as they took effect; pending ones last."""
        return tuple(
            sorted(
                self.instants,
                key=lambda i: (i.completion_time is None, i.completion_time or i.requested_time),
            )
        )

    # ---- the table as a whole ------------------------------------------------------------------

    @cached_property
    def savepointed_times(self) -> frozenset[str]:
        """Requested times of the commits that savepoints keep."""
        if self.whole is not None:
            return self.whole.savepointed_times
        return frozenset(i.requested_time for i in self.savepoints())

    @cached_property
    def starts_at(self) -> str | None:
        """First write that is not savepointed: what is older was archived, hence committed.

        Where savepoints keep all that is left, as after a restore, nothing is missing but what is
        older than the newest. Beginnings of indexes, whose times are before all others, may come
        any time.
        """
        if self.whole is not None:
            return self.whole.starts_at
        kept = self.savepointed_times
        every = [i.requested_time for i in self.instants if i.action in WRITE_ACTIONS]
        times = [time for time in every if not is_beginning_time(time)] or every
        return next((t for t in times if t not in kept), times[-1] if times else None)

    @cached_property
    def beginnings(self) -> frozenset[str]:
        """Times of beginnings of indexes."""
        if self.whole is not None:
            return self.whole.beginnings
        times = (i.requested_time for i in self.instants)
        return frozenset(time for time in times if is_beginning_time(time))

    @cached_property
    def completion_times(self) -> Mapping[str, str]:
        """Completion time of every completed write, by requested time."""
        if self.whole is not None:
            return self.whole.completion_times
        return {
            i.requested_time: i.completion_time or i.requested_time
            for i in self.instants
            if i.completed and i.action in WRITE_ACTIONS
        }

    def is_archived(self, requested_time: str) -> bool:
        """Whether a time lies before the start of the timeline.

        The beginning of an index does if it is not on the timeline.
        """
        start = self.starts_at
        if start is None:
            return False
        if is_beginning_time(requested_time) and not is_beginning_time(start):
            return requested_time not in self.beginnings
        return requested_time < start

    def contains_completed_or_archived(self, requested_time: str) -> bool:
        """Whether what was written at a time is committed: completed here, or archived."""
        return requested_time in self.completion_times or self.is_archived(requested_time)

    def completion_time_of(self, requested_time: str) -> str | None:
        """Completion time of the write of a time; None if it is pending or not on the timeline."""
        return self.completion_times.get(requested_time)


def is_beginning_time(time: str) -> bool:
    """Whether a time is that of the beginning of an index in a metadata table, before all."""
    return time.startswith(_BEGINNING)


def _rank(instant: Instant) -> tuple[State, str]:
    return instant.state, instant.completion_time or ""


# ---- listing -----------------------------------------------------------------------------------


def load_timeline(storage: Storage, properties: TableProperties) -> Timeline:
    """The active timeline, from one listing of its folder.

    A writer lists it again and again, mostly unchanged: equal listings give the same timeline. Long
    listings come in pages, and an archiver that removes the oldest instants may overtake them: what
    it leaves has a hole. Such a listing is known by its oldest write, which is gone afterwards.
    """
    for _ in range(LISTINGS_MAX):
        files = _listed(storage, properties)
        timeline = _timeline(files, properties)
        if len(files) <= LISTED_AT_ONCE or _still_begins(storage, properties, timeline):
            return timeline
    raise ConflictError(
        "The timeline was archived again and again while it was listed.",
        hint="Open the table again when its archiving has finished.",
        context={"table": storage.uri},
        retryable=True,
    )


def _still_begins(storage: Storage, properties: TableProperties, timeline: Timeline) -> bool:
    """Whether the oldest instant is still there that an archiver may remove."""
    kept = timeline.savepointed_times
    free = (i for i in timeline.writes().completed() if i.requested_time not in kept)
    first = next(free, None)
    return first is None or storage.exists(f"{properties.timeline_folder}/{first.file_name}")


def _timeline(files: _Listed, properties: TableProperties) -> Timeline:
    layout, zone = properties.version.layout_version, properties.timeline_zone
    if zone == LOCAL_ZONE and any(modified_ms != _BY_NAME for _, modified_ms in files):
        return _timeline_of(files, layout, zone)  # what a moment is called there may change
    return _known_timeline(files, layout, zone)


def instant_files(storage: Storage, properties: TableProperties) -> list[Instant]:
    """Every state file of the active timeline, in no order."""
    layout, zone = properties.version.layout_version, properties.timeline_zone
    return list(_instants(_listed(storage, properties), layout, zone))


_Listed = tuple[tuple[str, int], ...]
"""Names, and the modification times of those files that were completed when they were modified."""
LISTED_AT_ONCE: Final = 500
"""Every storage answers for so many files at once."""
LISTINGS_MAX: Final = 5
_BY_NAME: Final = -1
"""Stands for the time of a file whose name says everything."""
_PENDING_ENDINGS: Final = (".requested", ".inflight")


def _timeline_of(files: _Listed, layout: int, zone: tzinfo) -> Timeline:
    return Timeline.of(_instants(files, layout, zone))


_known_timeline = lru_cache(maxsize=4)(_timeline_of)


def _instants(files: _Listed, layout: int, zone: tzinfo) -> Iterator[Instant]:
    for name, modified_ms in files:
        instant = _instant(name, modified_ms, layout, zone)
        if instant is not None:
            yield instant


def _instant(name: str, modified_ms: int, layout: int, zone: tzinfo) -> Instant | None:
    """What a state file says; None if it is none."""
    parsed = parse_instant_name(name, layout)
    if parsed is None:
        return None
    requested_time, action, state, completion_time = parsed
    legacy = False
    if modified_ms != _BY_NAME and state is State.COMPLETED:
        completion_time = format_time(modified_ms, zone=zone)
        legacy = layout != 1
    return Instant(requested_time, action, state, completion_time, name, legacy)


def _listed(storage: Storage, properties: TableProperties) -> _Listed:
    folder = properties.timeline_folder
    try:
        if properties.version.completion_time_in_name:
            return tuple(_named_files(storage, folder, properties.version.layout_version))
        return tuple(_timed_files(storage, folder))
    except NotFoundError as error:
        raise CorruptFileError(
            f"The timeline folder {folder} is missing.",
            hint="Without it nothing says which files are committed; restore the folder from "
            "another copy of the table.",
            context={"table": storage.uri, "path": folder},
        ) from error


def _named_files(storage: Storage, folder: str, layout: int) -> Iterator[tuple[str, int]]:
    """Names say everything, but the completion time of files that an upgrade left behind."""
    for name in storage.names(folder):
        if "_" in name or name.endswith(_PENDING_ENDINGS):
            yield name, _BY_NAME
            continue
        parsed = parse_instant_name(name, layout)
        if parsed is not None and parsed.state is State.COMPLETED:
            yield name, storage.stat(f"{folder}/{name}").modified_ms


def _timed_files(storage: Storage, folder: str) -> Iterator[tuple[str, int]]:
    """A completed file was completed when it was last modified."""
    begin = len(folder) + 1
    for file in storage.list(folder):
        if not file.is_dir:
            yield file.path[begin:], file.modified_ms


# ---- questions that need an instant's file -----------------------------------------------------


def is_pending_clustering(storage: Storage, properties: TableProperties, instant: Instant) -> bool:
    """Whether a pending instant is a clustering, not an overwrite; reads its request if needed."""
    if instant.completed or instant.completed_action != "replacecommit":
        return False
    if instant.action == "clustering":
        return True
    try:
        request = load_requested_replace(storage, properties, instant)
    except NotFoundError:
        return False
    return request.clustering_plan is not None


def earliest_commit_to_retain(
    storage: Storage, properties: TableProperties, timeline: Timeline
) -> str | None:
    """Requested time before which the last clean may have deleted files; None if it says nothing.

    Cleans by file versions retain no earliest commit; an empty file is a clean that crashed.
    """
    for clean in reversed(timeline.filter_actions("clean").completed().instants):
        metadata = load_record(storage, properties, clean)
        if isinstance(metadata, CleanMetadata):
            return metadata.earliest_commit_to_retain or None
    return None
