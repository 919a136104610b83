"""Which slices Spark's own Parquet scan may read, so that their rows never leave the JVM.

A slice may go there if it has no logs and Spark's reader returns exactly what lakewright's would:
every asked column is in the file under its name and with the very type of the table's schema (or
not in the file at all, which both read as null), was not renamed by schema-on-read, is not filled
from the partition path, and has a type that Spark reads from Parquet. Everything else goes to the
Python workers.

What a file has is read from its footer, never guessed from the commit, because writers have lost or
damaged logical types. Of many files one footer per commit is read: the files of a commit come from
one writer with one schema. The exception is clustering, which may copy row groups of different
schemas, so files of replacing commits are all looked at.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import pyarrow as pa
import pyarrow.types as pt

from lakewright.codec.parquet import open_parquet
from lakewright.engine.runner import ThreadRunner
from lakewright.engine.scan import Scan
from lakewright.engine.scan_plan import ScanTask
from lakewright.engine.snapshot import Snapshot
from lakewright.errors import LakewrightError
from lakewright.expr import columns
from lakewright.format.archived_timeline import archived_times
from lakewright.format.file_slices import BaseFile

__all__ = ["Routing", "plain_type", "requested_schema", "route"]

EVERY_FOOTER_FILES = 128
"""Up to so many files every footer is read; it takes a fraction of a second."""
FOOTER_THREADS = 16

LOGS = "log files to merge"
RENAMED = "columns renamed since (schema-on-read)"
FROM_PATH = "partition columns that are not stored in the files"
ALIKE = "columns whose names differ in case only"
TYPES = "types that Spark does not read from Parquet"
EVOLVED = "files of another schema"
UNREADABLE = "footers that could not be read"


@dataclass(frozen=True, slots=True)
class Routing:
    """The slices of a scan, divided by who reads them."""

    jvm: tuple[ScanTask, ...]
    workers: tuple[ScanTask, ...]
    reasons: Mapping[str, int]
    """Why slices go to the workers, with their numbers."""


def requested_schema(scan: Scan) -> pa.Schema:
    """The columns to be read: those of the result, and those only the filter needs after them."""
    table = scan.snapshot.schema.arrow
    asked = [] if scan.where is None else sorted(columns(scan.where) - set(scan.columns))
    return pa.schema([table.field(name) for name in (*scan.columns, *asked)])


def route(scan: Scan, tasks: Sequence[ScanTask], *, unreachable: str | None = None) -> Routing:
    """Divide `tasks`; `unreachable` says why the JVM cannot open the table's files, if so."""
    schema = requested_schema(scan)
    blocked = unreachable or _blocked(scan.snapshot, schema)
    verdicts = {} if blocked else _verdicts(scan.snapshot, schema, tasks)
    jvm, workers, reasons = [], [], Counter[str]()
    for task in tasks:
        reason = LOGS if task.needs_merge else blocked or verdicts.get(_path(task))
        if reason is None:
            jvm.append(task)
        else:
            workers.append(task)
            reasons[reason] += 1
    return Routing(tuple(jvm), tuple(workers), reasons)


def _path(task: ScanTask) -> str:
    return "" if task.slice_.base is None else task.slice_.base.path


def _blocked(snapshot: Snapshot, schema: pa.Schema) -> str | None:
    """Why no file of the table can be read by Spark's scan."""
    if not set(snapshot.schema.partition_columns_from_path).isdisjoint(schema.names):
        return FROM_PATH
    if _alike(schema.names):
        return ALIKE
    return None if all(_spark_reads(field.type) for field in schema) else TYPES


def _alike(names: Sequence[str]) -> bool:
    """Whether Spark, which takes no regard of case, would not know which one is meant."""
    return len({name.lower() for name in names}) < len(names)


def _spark_reads(kind: pa.DataType) -> bool:
    if pt.is_struct(kind):
        alike = _alike([f.name for f in kind.fields])
        return not alike and all(_spark_reads(f.type) for f in kind.fields)
    if pt.is_list(kind):
        return _spark_reads(kind.value_type)
    if pt.is_map(kind):
        return _spark_reads(kind.key_type) and _spark_reads(kind.item_type)
    nanos = pt.is_timestamp(kind) and kind.unit == "ns"
    return not (nanos or pt.is_time(kind) or pt.is_null(kind) or pt.is_fixed_size_binary(kind))


def _verdicts(
    snapshot: Snapshot, schema: pa.Schema, tasks: Iterable[ScanTask]
) -> dict[str, str | None]:
    """By path of a base file: why Spark must not read it, or None."""
    verdicts: dict[str, str | None] = {}
    candidates: list[BaseFile] = []
    for task in tasks:
        base = task.slice_.base
        if base is None or task.needs_merge:
            continue
        if _renamed(snapshot, base.instant, schema):
            verdicts[base.path] = RENAMED
        else:
            candidates.append(base)
    groups = {group[0].path: group for group in _of_one_schema(snapshot, candidates)}
    reads = ThreadRunner(FOOTER_THREADS).stream(
        list(groups), lambda path: [(path, _judged(snapshot, path, schema))]
    )
    for path, verdict in reads:
        verdicts |= {base.path: verdict for base in groups[path]}
    return verdicts


def _renamed(snapshot: Snapshot, instant: str, schema: pa.Schema) -> bool:
    asked = set(schema.names)
    return any(name.partition(".")[0] in asked for name in snapshot.renames(instant))


def _of_one_schema(snapshot: Snapshot, files: Sequence[BaseFile]) -> Iterator[list[BaseFile]]:
    """Groups of files of one schema, of which one footer says what all have."""
    if len(files) <= EVERY_FOOTER_FILES:
        yield from ([file] for file in files)
        return
    by_instant: defaultdict[str, list[BaseFile]] = defaultdict(list)
    for file in files:
        by_instant[file.instant].append(file)
    mixed = _mixed_instants(snapshot, [t for t, group in by_instant.items() if len(group) > 1])
    for instant, group in by_instant.items():
        if instant in mixed:
            yield from ([file] for file in group)
        else:
            yield group


def _mixed_instants(snapshot: Snapshot, instants: Sequence[str]) -> set[str]:
    """Those that may have written files of different schemas, or of which nothing is known."""
    known = {t: found.action for t in instants if (found := snapshot.timeline.get(t)) is not None}
    archived = [t for t in instants if t not in known]
    if archived:
        known |= _archived_actions(snapshot, min(archived), max(archived))
    return {t for t in instants if known.get(t, "replacecommit") == "replacecommit"}


def _archived_actions(snapshot: Snapshot, begin: str, end: str) -> dict[str, str]:
    try:
        times = archived_times(snapshot.storage, snapshot.properties, begin=begin, end=end)
    except LakewrightError:
        return {}
    return dict(zip(times["requested_time"].to_pylist(), times["action"].to_pylist(), strict=True))


def _judged(snapshot: Snapshot, path: str, schema: pa.Schema) -> str | None:
    """The verdict on a file. One that cannot be opened goes to a worker, whose error says why."""
    try:
        with snapshot.storage.open_input(path) as source:
            stored = open_parquet(source, path=path).schema_arrow.remove_metadata()
    except LakewrightError:
        return UNREADABLE
    return None if _same(stored, schema) else EVOLVED


@lru_cache(maxsize=256)
def _same(stored: pa.Schema, schema: pa.Schema) -> bool:
    """Whether a file has the asked columns as they are asked, or lacks them altogether."""
    alike = Counter(name.lower() for name in stored.names)
    for field in schema:
        index = stored.get_field_index(field.name)
        expected = 0 if index < 0 else 1
        if alike[field.name.lower()] != expected:
            return False  # Spark matches names without regard to case
        if expected and plain_type(stored.field(index).type) != plain_type(field.type):
            return False
    return True


def plain_type(kind: pa.DataType) -> pa.DataType:
    """A type without what no value depends on: nullability, and the names of list and map items."""
    if pt.is_struct(kind):
        return pa.struct([pa.field(f.name, plain_type(f.type)) for f in kind.fields])
    if pt.is_list(kind):
        return pa.list_(pa.field("element", plain_type(kind.value_type)))
    if pt.is_map(kind):
        return pa.map_(plain_type(kind.key_type), pa.field("value", plain_type(kind.item_type)))
    return kind
