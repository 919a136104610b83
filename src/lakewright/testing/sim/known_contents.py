"""What contents mean, worked out once: parsing is pure, and worlds read the same objects endlessly.

While `remembered` is open, records, properties and names of state files that were parsed before are
the same values again. Nothing else changes: every storage operation of the product happens, and a
content that cannot be parsed fails every time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Final

from lakewright.codec.avro import datum
from lakewright.format import archive, partitions, properties, property_text, timeline
from lakewright.format.log_block import LogBlock
from lakewright.format.records import CommitMetadata
from lakewright.format.records.model import AvroRecord

__all__ = ["remembered"]

CONTENTS_MAX: Final = 8192
"""More than a world has, so that what it needs again is rarely forgotten."""
TIMELINES_MAX: Final = 64
"""As many as the processes of a world look at before one of them looks again."""


def _records(read: Callable[..., Any]) -> Any:
    """A class method that reads each content once."""
    known: dict[tuple[type, bytes], Any] = {}

    def read_once(cls: type, data: bytes, *, path: str = "") -> Any:
        key = (cls, data)
        found = known.get(key)
        if found is None:
            if len(known) >= CONTENTS_MAX:
                known.clear()
            found = known[key] = read(cls, data, path=path)
        return found

    return classmethod(read_once)


def _properties(parse: Callable[..., dict[str, str]]) -> Callable[..., dict[str, str]]:
    """The same values for the same text; whoever changes properties makes new ones."""
    known: dict[bytes, dict[str, str]] = {}

    def parse_once(data: bytes, *, path: str = "") -> dict[str, str]:
        found = known.get(data)
        if found is None:
            if len(known) >= CONTENTS_MAX:
                known.clear()
            found = known[data] = parse(data, path=path)
        return found

    return parse_once


def _by_identity(make: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Of what was parsed before, which is the same value again, and slow to compare."""
    known: dict[int, tuple[Any, Any]] = {}

    def make_once(parsed: Any) -> Any:
        found = known.get(id(parsed))
        if found is None or found[0] is not parsed:
            if len(known) >= CONTENTS_MAX:
                known.clear()
            found = known[id(parsed)] = (parsed, make(parsed))
        return found[1]

    return make_once


def _checks(check: Callable[..., None]) -> Callable[..., None]:
    """Properties that were found good stay good."""
    good: dict[tuple[int, bool], Any] = {}

    def check_once(found: Any, *, metadata_table: bool) -> None:
        key = (id(found.values), metadata_table)
        if good.get(key) is not found.values:
            check(found, metadata_table=metadata_table)
            if len(good) >= CONTENTS_MAX:
                good.clear()
            good[key] = found.values

    return check_once


def _blocks(read: Callable[[LogBlock], Any]) -> Callable[[LogBlock], Any]:
    known: dict[bytes, Any] = {}

    def read_once(block: LogBlock) -> Any:
        content = bytes(block.content)
        found = known.get(content)
        if found is None:
            if len(known) >= CONTENTS_MAX:
                known.clear()
            found = known[content] = read(block)
        return found

    return read_once


_PLACES: Final[tuple[tuple[Any, str, Any], ...]] = (
    (AvroRecord, "read", _records(AvroRecord.__dict__["read"].__func__)),
    (CommitMetadata, "read", _records(CommitMetadata.__dict__["read"].__func__)),
    (properties, "parse_properties", _properties(property_text.parse_properties)),
    (properties, "_trust", _by_identity(properties._trust)),  # noqa: SLF001
    (properties, "_check", _checks(properties._check)),  # noqa: SLF001
    (partitions, "parse_properties", _properties(property_text.parse_properties)),
    (timeline, "_instant", lru_cache(CONTENTS_MAX)(timeline._instant)),  # noqa: SLF001
    (timeline, "_known_timeline", lru_cache(TIMELINES_MAX)(timeline._timeline_of)),  # noqa: SLF001
    (archive, "_block_times", _blocks(archive._block_times)),  # noqa: SLF001
    (datum, "_writer", _by_identity(datum._writer)),  # noqa: SLF001
)


@contextmanager
def remembered() -> Iterator[None]:
    """Parse no content twice."""
    before = [vars(owner)[name] for owner, name, _ in _PLACES]
    for owner, name, known in _PLACES:
        setattr(owner, name, known)
    try:
        yield
    finally:
        for (owner, name, _), real in zip(_PLACES, before, strict=True):
            setattr(owner, name, real)
