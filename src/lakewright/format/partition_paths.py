"""Partition paths from columns: what folder each row belongs to.

Plain fields give their text, null and empty the default partition, escaped and prefixed as the
table says. Time fields give a moment formatted by the table's pattern; null times belong to 1970,
as in Hudi, not to the default partition. Work is per column; escaping looks at distinct values.

What can go wrong: settings that are missing or unknown raise `ConfigError`, text that follows no
input pattern and rows of a user-provided generator raise instead of choosing a folder.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakewright.errors import ConfigError, InputError, UnsupportedTableError
from lakewright.format.key_spec import KeySpec, PartitionField, PartitionKind
from lakewright.format.key_text import column_at, key_text
from lakewright.format.partition_values import DEFAULT_PARTITION, escape
from lakewright.format.time_patterns import TimePattern, compile_pattern
from lakewright.format.zones import distance_from_utc, local_times

__all__ = ["partition_paths"]

TEXT_TYPES = ("DATE_STRING", "MIXED")
SQL_TIMESTAMP = "yyyy-MM-dd HH:mm:ss"
_NANOS = {
    "NANOSECONDS": 1,
    "MICROSECONDS": 10**3,
    "MILLISECONDS": 10**6,
    "SECONDS": 10**9,
    "MINUTES": 60 * 10**9,
    "HOURS": 3_600 * 10**9,
    "DAYS": 86_400 * 10**9,
}
_UNITS = {
    "UNIX_TIMESTAMP": "SECONDS",
    "EPOCHMILLISECONDS": "MILLISECONDS",
    "EPOCHMICROSECONDS": "MICROSECONDS",
}


def partition_paths(batch: pa.RecordBatch, spec: KeySpec) -> pa.Array:
    """The partition path of every row, as `string` without nulls; `""` without partitions."""
    if not spec.forms_partition_paths:
        raise UnsupportedTableError(
            "The table's paths are formed by a class of its own, which lakewright cannot run.",
            hint="Write the table with Hudi.",
            context={"property": "hoodie.table.keygenerator.class"},
        )
    if not spec.partition_fields:
        return pa.array([""] * batch.num_rows, pa.string())
    parts = [_segment(batch, field, spec) for field in spec.partition_fields]
    return parts[0] if len(parts) == 1 else pc.binary_join_element_wise(*parts, "/")


def _segment(batch: pa.RecordBatch, field: PartitionField, spec: KeySpec) -> pa.Array:
    if field.kind is PartitionKind.UNKNOWN:
        raise ConfigError(
            f"Nothing says whether partition field {field.name} is a time or a plain value.",
            hint="Version 6 does not store the types of a CUSTOM key generator: give them, as in "
            f"{field.name}:SIMPLE or {field.name}:TIMESTAMP.",
            context={"field": field.name},
        )
    column = column_at(batch, field.name)
    escaped = spec.url_encode
    if field.kind is PartitionKind.TIMESTAMP:
        text = _time_text(column, field.name, spec)
    elif spec.sql_timestamps and pt.is_timestamp(column.type):
        text = _sql_timestamp(column, spec)
        escaped = True
    else:
        text = key_text(column, field=field.name, path=spec.text_path, zone=spec.zone)
        if spec.slash_separated_dates:
            text = pc.replace_substring(text, "-", "/")
    text = pc.fill_null(
        pc.if_else(pc.equal(text, ""), pa.scalar(DEFAULT_PARTITION), text), DEFAULT_PARTITION
    )
    if escaped:
        text = _distinct(text, escape)
    prefix = pa.scalar(f"{field.name}=")
    return pc.binary_join_element_wise(prefix, text, "") if spec.hive_style else text


def _distinct(text: pa.Array, change: Callable[[str], str]) -> pa.Array:
    encoded = text.dictionary_encode()
    # Bounded by the distinct partitions of a batch.
    changed = [change(value) for value in encoded.dictionary.to_pylist()]
    return pa.array(changed, pa.string()).take(encoded.indices)


def _sql_timestamp(column: pa.Array, spec: KeySpec) -> pa.Array:
    seconds = pc.floor_temporal(column, unit="second").cast(pa.timestamp("ms", column.type.tz))
    local = _local(seconds.view(pa.int64()), spec.zone if column.type.tz else None)
    return compile_pattern(SQL_TIMESTAMP).format(local)


def _time_text(column: pa.Array, name: str, spec: KeySpec) -> pa.Array:
    settings = spec.time_settings
    output = compile_pattern(_required(settings, "output.dateformat", name))
    kind = settings.get("timestamp.type", "").upper()
    if not kind and _is_text(column.type):
        kind = "DATE_STRING"
    if kind in TEXT_TYPES:
        return _from_text(column, name, spec, output)
    unit = settings.get("timestamp.scalar.time.unit", "SECONDS") if kind == "SCALAR" else None
    unit = unit or _UNITS.get(kind)
    if unit is None or unit.upper() not in _NANOS:
        raise ConfigError(
            f"Partition field {name} is a time of unknown kind {kind or 'none'} {unit or ''}.",
            hint="Set hoodie.keygen.timebased.timestamp.type to UNIX_TIMESTAMP, EPOCHMILLISECONDS, "
            "SCALAR (with a time unit) or DATE_STRING.",
            context={"field": name, "timestamp.type": kind},
        )
    millis = _millis(_whole_numbers(column, name), _NANOS[unit.upper()])
    zone = settings.get("timezone") or settings.get("output.timezone") or spec.zone
    return _formatted(millis, zone, output)


def _required(settings: Mapping[str, str], key: str, name: str) -> str:
    value = settings.get(key)
    if not value:
        raise ConfigError(
            f"Partition field {name} is a time, but its pattern is not set.",
            hint=f"Set hoodie.keygen.timebased.{key}.",
            context={"field": name, "property": f"hoodie.keygen.timebased.{key}"},
        )
    return value


def _is_text(kind: pa.DataType) -> bool:
    return bool(pt.is_string(kind) or pt.is_large_string(kind))


def _whole_numbers(column: pa.Array, name: str) -> pa.Array:
    kind = column.type
    if pt.is_integer(kind):
        return column.cast(pa.int64())
    if pt.is_floating(kind) or pt.is_decimal(kind):
        return pc.trunc(column).cast(pa.int64(), safe=False)
    if pt.is_date32(kind):
        return column.view(pa.int32()).cast(pa.int64())
    raise ConfigError(
        f"Partition field {name} of type {kind} is not a number.",
        hint="Set hoodie.keygen.timebased.timestamp.type=DATE_STRING for text, or partition by a "
        "number of seconds or milliseconds.",
        context={"field": name, "type": str(kind)},
    )


def _millis(numbers: pa.Array, nanos: int) -> pa.Array:
    """Units to milliseconds, cut toward zero; null is one unit after 1970, as in Hudi."""
    filled = pc.fill_null(numbers, 1)
    per_milli = 10**6
    if nanos >= per_milli:
        return pc.multiply_checked(filled, nanos // per_milli)
    return pc.divide(filled, per_milli // nanos)


def _formatted(millis: pa.Array, zone: str, output: TimePattern) -> pa.Array:
    local = _local(millis, zone)
    minutes = pc.divide(pc.subtract(local, millis), 60_000)
    return output.format(local, minutes)


def _local(millis: pa.Array, zone: str | None) -> pa.Array:
    """What a clock in the zone shows, as milliseconds."""
    if zone is None:
        return millis
    return local_times(millis, zone)


def _from_text(column: pa.Array, name: str, spec: KeySpec, output: TimePattern) -> pa.Array:
    settings = spec.time_settings
    listed = re.split(
        settings.get("input.dateformat.list.delimiter.regex") or ",",
        _required(settings, "input.dateformat", name),
    )
    patterns = [compile_pattern(text.strip()) for text in listed if text.strip()]
    input_zone = settings.get("timezone") or settings.get("input.timezone")
    output_zone = settings.get("timezone") or settings.get("output.timezone")
    text = column.cast(pa.string())
    zone = input_zone or spec.zone
    first = _formatted(pa.array([1], pa.int64()), zone, patterns[0])[0]
    local, offset = _parsed(pc.fill_null(text, first), patterns, name)
    away = distance_from_utc(local, zone)
    if offset is not None:
        away = pc.coalesce(pc.multiply(offset, 60_000), away)
    if input_zone is None and output_zone is None:
        return output.format(local, pc.divide(away, 60_000))
    return _formatted(pc.subtract(local, away), output_zone or zone, output)


def _parsed(
    text: pa.Array, patterns: list[TimePattern], name: str
) -> tuple[pa.Array, pa.Array | None]:
    local: pa.Array = pa.nulls(len(text), pa.int64())
    offset: pa.Array | None = None
    for pattern in patterns:
        found = pattern.parse(text)
        fresh = pc.is_null(local)
        local = pc.if_else(fresh, found.local_ms, local)
        if found.offset_minutes is not None:
            before = pa.nulls(len(text), pa.int64()) if offset is None else offset
            offset = pc.if_else(fresh, found.offset_minutes, before)
    if local.null_count:
        row = int(np.flatnonzero(local.is_null().to_numpy(zero_copy_only=False))[0])
        raise InputError(
            f"Partition field {name} holds text that follows no input pattern in "
            f"{local.null_count} of {len(text)} rows.",
            hint="Correct it, or add its pattern to hoodie.keygen.timebased.input.dateformat.",
            context={"field": name, "first_row": row, "text": text[row].as_py()},
        )
    return local, offset
