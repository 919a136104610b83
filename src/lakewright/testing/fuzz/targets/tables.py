"""Whole tables with one damaged file: opened, planned and read as a user reads them.

Whatever file is hit, a scan gives rows or an error of the one error tree. A table whose damaged
file no reader looks at gives the rows it gave before.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from lakewright.engine.options import ReadOptions
from lakewright.errors import LakewrightError
from lakewright.runtime.clock import ManualClock
from lakewright.storage.memory import MemoryBucket, MemoryStorage
from lakewright.table import Table
from lakewright.testing.fuzz.corpus import Corpus, Seed
from lakewright.testing.fuzz.judging import Case, Target, demand

__all__ = ["TARGETS"]

_TABLE_BYTES_MAX: Final = 1 << 19
_TABLES_MAX: Final = 8
_FILES_MAX: Final = 120
_OPTIONS: Final = ReadOptions(threads=1)
_UNREAD: Final = (".inflight", ".crc", ".bak", "/.temp/")
_STORED: Final[dict[str, dict[str, bytes]]] = {}


def _seeds(corpus: Corpus) -> list[Seed]:
    small = {
        name: files
        for name, files in corpus.tables().items()
        if sum(map(len, files.values())) <= _TABLE_BYTES_MAX
    }
    seeds = []
    for name in sorted(small, key=lambda n: (len(small[n]), n)):
        if len({s.name.partition("#")[0] for s in seeds}) == _TABLES_MAX:
            break
        _STORED[name] = small[name]
        try:
            _rows(_storage(name))
        except LakewrightError:
            continue  # refused, or too large a file was left out
        files = sorted(small[name], key=lambda p: (len(small[name][p]), p))[:_FILES_MAX]
        seeds += [Seed(f"{name}#{path}", small[name][path]) for path in files]
    return seeds


@lru_cache(maxsize=_TABLES_MAX)
def _storage(name: str) -> MemoryStorage:
    storage = MemoryStorage(MemoryBucket(clock=ManualClock(), history=0))
    for path, data in _STORED[name].items():
        storage.replace(path, data)
    return storage


@lru_cache(maxsize=_TABLES_MAX)
def _undamaged(name: str) -> list[str]:
    return _rows(_storage(name))


def _rows(storage: MemoryStorage) -> list[str]:
    table = Table(storage, clock=ManualClock(), options=_OPTIONS).scan().to_arrow()
    return sorted(map(str, table.to_pylist()))


def _check(case: Case) -> None:
    name, _, path = case.seed.name.partition("#")
    before = _undamaged(name)
    storage = _storage(name)
    storage.replace(path, case.data)
    try:
        rows = _rows(storage)
    finally:
        storage.replace(path, case.seed.data)
    if path.endswith(_UNREAD):
        demand(rows == before, "damage to a file that nobody reads changed the rows")


TARGETS: Final = (
    Target(
        name="table",
        about="whole tables with one damaged file",
        seeds=_seeds,
        check=_check,
        allowed=(LakewrightError,),
        path="",
        tokens=(b"#HUDI#", b"PAR1", b"null", b"Obj\x01", b"\n"),
        share=1,
    ),
)
