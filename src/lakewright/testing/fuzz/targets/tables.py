"""Whole tables with one damaged file: opened, planned, merged and read as a user reads them.

Whatever file is hit, a scan gives rows or an error of the one error tree. Damage to a file that no
reader looks at changes nothing. Rows whose keys the damaged data file holds neither now nor before
come out exactly as they were, and all of them. Where another file is hit (the timeline, the
metadata table), rows may be of an older or newer snapshot, but each is a version (key and sequence
number) that some file of the table holds. A corrupt region of a log is told by an event.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa

from lakewright.codec.parquet import open_parquet, read_columns
from lakewright.engine.options import ReadOptions
from lakewright.engine.slice_reader import CORRUPT_BLOCK
from lakewright.errors import ConfigError, LakewrightError, MergeError, StorageError, TableError
from lakewright.format.log_block import BlockType, read_blocks
from lakewright.runtime.clock import ManualClock
from lakewright.runtime.events import Event, EventHook
from lakewright.storage.memory import MemoryBucket, MemoryStorage
from lakewright.table import Table
from lakewright.testing.fuzz.corpus import Corpus, Seed
from lakewright.testing.fuzz.judging import PATH, Case, Kind, Target, demand
from lakewright.testing.fuzz.log_model import model_log_file
from lakewright.testing.fuzz.targets.logs import SHAPES, block_rows, region_ending

__all__ = ["TARGETS"]

_TABLE_BYTES_MAX: Final = 1 << 19
_TABLES_MAX: Final = 8
_FILES_MAX: Final = 120
_REFUSALS: Final = (TableError, ConfigError, MergeError, StorageError)
"""Damage that reads as another, lawful word: a feature, a rule or a file that is not there."""
_OPTIONS: Final = ReadOptions(threads=1)
_UNREAD: Final = (".inflight", ".crc", ".bak")
_KEY: Final = "_hoodie_record_key"
_NUMBER: Final = "_hoodie_commit_seqno"
_STORED: Final[dict[str, dict[str, bytes]]] = {}


def _table_seeds(corpus: Corpus) -> list[Seed]:
    seeds: list[Seed] = []
    for name, files in _readable(corpus).items():
        smallest = sorted(files, key=lambda p: (len(files[p]), p))[:_FILES_MAX]
        seeds += [Seed(f"{name}#{path}", files[path]) for path in smallest]
    return seeds


def _slice_seeds(corpus: Corpus) -> list[Seed]:
    return [
        Seed(f"{name}#{path}", data)
        for name, files in _readable(corpus).items()
        for path, data in files.items()
        if not path.startswith(".hoodie/") and (".log." in path or path.endswith(".parquet"))
    ]


def _readable(corpus: Corpus) -> dict[str, dict[str, bytes]]:
    """Small tables that are not refused, those with logs first."""
    small = {
        name: files
        for name, files in corpus.tables().items()
        if sum(map(len, files.values())) <= _TABLE_BYTES_MAX
    }
    found: dict[str, dict[str, bytes]] = {}
    for name in sorted(small, key=lambda n: (_logs(small[n]) == 0, len(small[n]), n)):
        _STORED[name] = small[name]
        try:
            if not _rows(_storage(name)).num_rows:
                continue
        except LakewrightError:
            continue  # refused, or too large a file was left out of the corpus
        found[name] = small[name]
        if len(found) == _TABLES_MAX:
            break
    return found


def _logs(files: dict[str, bytes]) -> int:
    return sum(".log." in path and not path.startswith(".hoodie/") for path in files)


@lru_cache(maxsize=4 * _TABLES_MAX)
def _storage(name: str) -> MemoryStorage:
    storage = MemoryStorage(MemoryBucket(clock=ManualClock(), history=0))
    for path, data in _STORED[name].items():
        storage.replace(path, data)
    return storage


@lru_cache(maxsize=4 * _TABLES_MAX)
def _undamaged(name: str) -> pa.Table:
    return _rows(_storage(name))


def _rows(storage: MemoryStorage, on_event: EventHook | None = None) -> pa.Table:
    table = Table(storage, clock=ManualClock(), options=_OPTIONS, on_event=on_event)
    return table.scan(meta=True).to_arrow()


def _check(case: Case) -> Kind:
    name, _, path = case.seed.name.partition("#")
    before = _undamaged(name)
    storage = _storage(name)
    told: list[Event] = []
    storage.replace(path, case.data)
    try:
        rows = _rows(storage, told.append)
    finally:
        storage.replace(path, case.seed.data)
    if path.endswith(_UNREAD):
        demand(_texts(rows) == _texts(before), "damage to a file that nobody reads changed rows")
    if not {_KEY, _NUMBER}.issubset(set(rows.column_names) & set(before.column_names)):
        return Kind.WHOLE
    if path.startswith(".hoodie/") or _is_partition_file(path):
        _check_versions(rows, name)
        return Kind.WHOLE
    _check_untouched(rows, before, _keys_of_file(case, path))
    return _log_ending(case, path, told) if ".log." in path else Kind.WHOLE


def _is_partition_file(path: str) -> bool:
    return path.rpartition("/")[2].startswith(".hoodie_partition_metadata")


def _check_untouched(rows: pa.Table, before: pa.Table, touched: set[Any]) -> None:
    """Rows that the damaged file has no part in are all there, once, with their values."""
    unknown = set(_keys(rows)).difference(_keys(before), touched)
    demand(not unknown, f"keys from nowhere: {sorted(map(str, unknown))[:3]}")
    common = [n for n in before.column_names if n in rows.column_names]
    now, then = (
        sorted(
            str(row)
            for key, row in zip(_keys(table), table.select(common).to_pylist(), strict=True)
            if key not in touched
        )
        for table in (rows, before)
    )
    demand(now == then, "rows that the damaged file does not hold have changed")


def _check_versions(rows: pa.Table, name: str) -> None:
    """Every row is a version that a data file of the table holds."""
    stored = _stored_versions(name)
    versions = zip(_keys(rows), rows.column(_NUMBER).to_pylist(), strict=True)
    unknown = {version for version in versions if version not in stored}
    demand(not unknown, f"versions from nowhere: {sorted(map(str, unknown))[:3]}")


@lru_cache(maxsize=4 * _TABLES_MAX)
def _stored_versions(name: str) -> frozenset[tuple[Any, Any]]:
    found: set[tuple[Any, Any]] = set()
    for path, data in _STORED[name].items():
        if not path.startswith(".hoodie/"):
            for rows in _stored_rows(path, data):
                if {_KEY, _NUMBER}.issubset(rows.schema.names):
                    found.update(zip(_keys(rows), rows.column(_NUMBER).to_pylist(), strict=True))
    return frozenset(found)


def _log_ending(case: Case, path: str, told: list[Event]) -> Kind:
    """Corrupt regions that a plain reader finds were told, and no others."""
    model = model_log_file(case.data)
    corrupt = [block.offset for block in model.blocks if block.content is None]
    offsets = [e.offset for e in told if e.kind == CORRUPT_BLOCK and e.path == path]
    is_read = bool(offsets) or path in _shown_logs(case.seed.name.partition("#")[0])
    demand(not is_read or offsets == corrupt, "a corrupt region was not told")
    return region_ending(model, len(case.data)) if is_read else Kind.WHOLE


@lru_cache(maxsize=4 * _TABLES_MAX)
def _shown_logs(name: str) -> frozenset[str]:
    """Logs that the newest snapshot reads."""
    tasks = Table(_storage(name), clock=ManualClock()).scan().plan().tasks
    return frozenset(log.path for task in tasks for log in task.slice_.logs)


def _texts(rows: pa.Table) -> list[str]:
    return sorted(map(str, rows.to_pylist()))


def _keys(rows: Any) -> list[Any]:
    return list(rows.column(_KEY).cast(pa.binary()).to_pylist())


def _keys_of_file(case: Case, path: str) -> set[Any]:
    """Keys in the damaged file and in the undamaged one: rows that were hidden may come back."""
    found: set[Any] = set()
    for data in (case.data, case.seed.data):
        for rows in _stored_rows(path, data):
            found.update(_keys(rows) if _KEY in rows.schema.names else ())
    return found


def _stored_rows(path: str, data: bytes) -> Iterator[Any]:
    """Rows of a data file as stored; of delete blocks, their keys."""
    if ".log." in path:
        for block in read_blocks(data, path=PATH):
            if block.type in (BlockType.AVRO_DATA, BlockType.PARQUET_DATA):
                yield block_rows(block)[0]
            elif block.type is BlockType.DELETE:
                yield pa.table({_KEY: block_rows(block).keys})
    elif path.endswith(".parquet"):
        yield read_columns(open_parquet(data, path=PATH), path=PATH)


TARGETS: Final = (
    Target(
        name="table",
        about="whole tables with one damaged file of any kind",
        seeds=_table_seeds,
        check=_check,
        allowed=(LakewrightError,),
        path="",
        one_file=False,
        unplaced=_REFUSALS,
        tokens=(b"#HUDI#", b"PAR1", b"null", b"Obj\x01", b"\n"),
        share=0.5,
    ),
    Target(
        name="slice",
        about="whole tables with one damaged data file: merging of what can be decoded",
        seeds=_slice_seeds,
        check=_check,
        allowed=(LakewrightError,),
        path="",
        one_file=False,
        unplaced=_REFUSALS,
        tokens=(b"\x00", b"\x02", b"PAR1"),
        shapes=SHAPES,
        share=1,
    ),
)
