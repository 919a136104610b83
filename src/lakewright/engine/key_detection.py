"""Which of Hudi's encodings of keys an existing table uses, where no property tells it.

Hudi's releases and code paths write the same key in different ways and do not store which: a
COMPLEX key of one field is `value` or `field:value`; timestamps are numbers or texts; SQL gives
timestamp partitions folders of their own kind; version 6 does not store which fields of a CUSTOM
generator are times. A row written in another way than its older versions would be another row, so
the choice is read off rows that are there: keys and paths are formed in every possible way from
their columns, and the way that gives what is stored is the table's.

Guarantees: a table without such a choice costs nothing; rows that agree with no way, or with
several that differ for other rows, are a `ConfigError` that names the option which decides. Without
rows the options decide, and then the ways that the releases of the table's version share.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from types import MappingProxyType

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from lakewright.engine.new_table_checks import column_type
from lakewright.engine.options import ReadOptions
from lakewright.engine.row_options import RowOptions
from lakewright.engine.scan_plan import ScanTask, plan_scan
from lakewright.engine.slice_reader import SliceReader
from lakewright.engine.snapshot import Snapshot
from lakewright.errors import ConfigError, FormatError, InputError
from lakewright.format.key_generator import KeyGeneratorType
from lakewright.format.key_spec import (
    CONSISTENT_TIMESTAMPS,
    KeySpec,
    PartitionField,
    PartitionKind,
    TextPath,
)
from lakewright.format.keys import record_keys
from lakewright.format.partition_paths import partition_paths
from lakewright.format.row_keys import PARTITION_PATH, RECORD_KEY
from lakewright.merge.registry import MergerRegistry

__all__ = ["detect_keys"]

SLICES_ASKED = 8
ROWS_ASKED = 1024
"""Of each slice."""


@dataclass(frozen=True, slots=True)
class _Question:
    """One choice that nobody stored."""

    about: str
    option: str
    ways: tuple[KeySpec, ...]
    """The spec with each answer; the first is the one for a table without rows."""


def detect_keys(snapshot: Snapshot, options: RowOptions | None = None) -> KeySpec:
    """How keys and paths of new rows of the table are formed."""
    options = options or RowOptions()
    spec = _told(snapshot, options)
    schema = snapshot.schema.arrow
    questions = _questions(spec, schema, snapshot, options)
    if not questions:
        return spec
    ways = _combined(spec, questions, schema)
    asked = 0
    for rows in _samples(snapshot, spec):
        asked += rows.num_rows
        left = [way for way in ways if _agrees(rows, way, snapshot)]
        if not left:
            raise _unlike(rows, ways[0], questions)
        ways = left
    if not asked:
        return replace(ways[0], partition_fields=spec.partition_fields)
    if len(ways) > 1:
        raise _undecided(questions, ways, asked)
    return ways[0]


def _told(snapshot: Snapshot, options: RowOptions) -> KeySpec:
    """What properties and options say."""
    spec = KeySpec.from_properties(
        snapshot.properties,
        zone=options.key_zone,
        partition_kinds={
            name: PartitionKind(kind) for name, kind in options.partition_types.items()
        },
    )
    settings = {**options.time_settings, **spec.time_settings}
    return replace(spec, time_settings=MappingProxyType(settings))


def _questions(
    spec: KeySpec, schema: pa.Schema, snapshot: Snapshot, options: RowOptions
) -> list[_Question]:
    found = []
    if (
        spec.generator is KeyGeneratorType.COMPLEX
        and len(spec.record_key_fields) == 1
        and snapshot.properties.populate_meta_fields
    ):
        bare = options.complex_keys_bare
        found.append(
            _Question(
                f"whether keys of {spec.record_key_fields[0]} carry its name",
                "complex_keys_bare",
                tuple(replace(spec, names_single_key=n) for n in _answers(bare, flip=True)),
            )
        )
    paths = [f.name for f in spec.partition_fields if f.kind is not PartitionKind.TIMESTAMP]
    times = [n for n in (*spec.record_key_fields, *paths) if _is_time(schema, n, zoned=True)]
    if times and snapshot.properties.get(CONSISTENT_TIMESTAMPS) is None:
        texts = {False: TextPath.AVRO, True: TextPath.ROW}
        found.append(
            _Question(
                f"whether {times[0]} is a number or a text in keys",
                "consistent_timestamps",
                tuple(
                    replace(spec, text_path=texts[t])
                    for t in _answers(options.consistent_timestamps)
                ),
            )
        )
    folders = [name for name in paths if _is_time(schema, name, zoned=False)]
    if folders:
        told = _answers(options.sql_timestamps)
        ways = tuple(replace(spec, sql_timestamps=sql) for sql in told)
        found.append(_Question(f"how folders of {folders[0]} are written", "sql_timestamps", ways))
    unknown = [f.name for f in spec.partition_fields if f.kind is PartitionKind.UNKNOWN]
    if unknown:
        kinds = (PartitionKind.SIMPLE, PartitionKind.TIMESTAMP)
        found += [
            _Question(
                f"whether partition field {name} is a time",
                "partition_types",
                tuple(_with_kind(spec, name, kind) for kind in kinds),
            )
            for name in unknown
        ]
    return found


def _answers(told: bool | None, *, flip: bool = False) -> tuple[bool, ...]:
    """The answer that was told, else both, the one for new tables first."""
    return (False, True) if told is None else (told is not flip,)


def _with_kind(spec: KeySpec, name: str, kind: PartitionKind) -> KeySpec:
    fields = tuple(
        PartitionField(name, kind) if f.name == name else f for f in spec.partition_fields
    )
    return replace(spec, partition_fields=fields)


def _is_time(schema: pa.Schema, name: str, *, zoned: bool) -> bool:
    kind = column_type(schema, name)
    return kind is not None and pt.is_timestamp(kind) and (kind.tz is not None or not zoned)


def _combined(spec: KeySpec, questions: Sequence[_Question], schema: pa.Schema) -> list[KeySpec]:
    """Every combination of answers that may form keys or paths of its own."""
    keys_with_times = any(_is_time(schema, name, zoned=True) for name in spec.record_key_fields)
    combined: list[KeySpec] = []
    for chosen in product(*(q.ways for q in questions)):
        way = spec
        for one in chosen:
            way = replace(
                way,
                names_single_key=way.names_single_key or one.names_single_key,
                text_path=one.text_path if one.text_path != spec.text_path else way.text_path,
                sql_timestamps=way.sql_timestamps or one.sql_timestamps,
                partition_fields=tuple(
                    new if new.kind is not PartitionKind.UNKNOWN else old
                    for old, new in zip(way.partition_fields, one.partition_fields, strict=True)
                ),
            )
        if way.sql_timestamps and not keys_with_times:
            way = replace(way, text_path=spec.text_path)  # no other time is left to be a text
        if way not in combined:
            combined.append(way)
    return combined


# ---- rows that are there -----------------------------------------------------------------------


def _samples(snapshot: Snapshot, spec: KeySpec) -> Iterator[pa.RecordBatch]:
    """Some rows of some slices, old and new, with what is stored of their keys and paths."""
    dropped = spec.drops_partition_columns
    partitions = () if dropped else tuple(f.name for f in spec.partition_fields)
    names = {
        n.split(".")[0] if n not in snapshot.schema.arrow.names else n
        for n in (*spec.record_key_fields, *partitions)
    }
    if snapshot.properties.populate_meta_fields:
        names.add(RECORD_KEY)
    output = tuple(n for n in snapshot.schema.arrow.names if n in names)
    if not output:
        return
    tasks: tuple[ScanTask, ...] = ()
    for mode in ("read_optimized", "snapshot"):
        tasks = plan_scan(snapshot, mode=mode, output=output, where=None).tasks
        if tasks:
            break
    by_age = sorted(tasks, key=lambda task: task.slice_.base_instant)
    chosen = {int(i) for i in np.linspace(0, len(by_age) - 1, SLICES_ASKED)} if by_age else set()
    reading = ReadOptions(batch_rows=ROWS_ASKED)
    reader = SliceReader(snapshot, output, None, reading, MergerRegistry())
    for index in sorted(chosen):
        task = by_age[index]
        batch = next(iter(reader.read(task)), None)
        if batch is not None:
            path = pa.array([task.slice_.group.partition] * batch.num_rows, pa.string())
            yield batch.append_column(PARTITION_PATH, path)


def _agrees(rows: pa.RecordBatch, way: KeySpec, snapshot: Snapshot) -> bool:
    try:
        if snapshot.properties.populate_meta_fields and way.record_key_fields:
            formed = record_keys(rows, way)
            if not formed.equals(rows.column(RECORD_KEY)):
                return False
        if way.drops_partition_columns:
            return True
        return bool(partition_paths(rows, way).equals(rows.column(PARTITION_PATH)))
    except (FormatError, InputError, ConfigError):
        return False


def _unlike(rows: pa.RecordBatch, way: KeySpec, questions: Sequence[_Question]) -> ConfigError:
    stored = rows.schema.names.index(RECORD_KEY) if RECORD_KEY in rows.schema.names else None
    context = {"path": rows.column(PARTITION_PATH)[0].as_py()}
    if stored is not None:
        context["key"] = rows.column(stored)[0].as_py()
    return ConfigError(
        "Keys and paths of the table's rows cannot be formed from their columns, so that new rows "
        "of the same key would not meet them.",
        hint="Rows were written in several ways, or in another zone: give key_zone and "
        f"{', '.join(dict.fromkeys(q.option for q in questions))} as the table's writers had them, "
        "or write the table with Hudi.",
        context={**context, "zone": way.zone},
    )


def _undecided(questions: Sequence[_Question], ways: Sequence[KeySpec], asked: int) -> ConfigError:
    open_ones = [q for q in questions if _is_open(q, ways)] or list(questions)
    return ConfigError(
        f"{asked} rows of the table do not tell {' nor '.join(q.about for q in open_ones)}.",
        hint=f"Give {', '.join(dict.fromkeys(q.option for q in open_ones))} as the table's writers "
        "have it.",
        context={"questions": len(open_ones)},
    )


def _is_open(question: _Question, ways: Sequence[KeySpec]) -> bool:
    """Whether ways with different answers to this question are left."""
    first, second = question.ways[0], question.ways[-1]
    for name in ("names_single_key", "text_path", "sql_timestamps", "partition_fields"):
        if getattr(first, name) != getattr(second, name):
            return len({getattr(way, name) for way in ways}) > 1
    return False
