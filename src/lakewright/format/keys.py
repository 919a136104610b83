"""Record keys from columns, as every key generator of Hudi forms them.

One field gives its bare text (or `field:text` where the table's writers named single keys), several
fields give `f1:v1,f2:v2` in stored order with `__null__` and `__empty__` for what is null or empty.
Nothing is escaped, as in Hudi. A key that is null or empty as a whole is an error with the count
and the first rows, never a made-up key. Work is per column; there is no loop over rows.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakewright.errors import FormatError, InputError, UnsupportedTableError
from lakewright.format.key_generator import KeyGeneratorType
from lakewright.format.key_spec import KeySpec, PartitionField, PartitionKind, TextPath
from lakewright.format.key_text import column_at, key_text
from lakewright.format.partition_values import (
    DEFAULT_PARTITION,
    escape,
    partition_path_values,
    unescape,
)

__all__ = [
    "DEFAULT_PARTITION",
    "EMPTY_PLACEHOLDER",
    "NULL_PLACEHOLDER",
    "KeySpec",
    "PartitionField",
    "PartitionKind",
    "TextPath",
    "escape",
    "generated_keys",
    "partition_path_values",
    "record_keys",
    "rows_without_key",
    "unescape",
]

NULL_PLACEHOLDER = "__null__"
EMPTY_PLACEHOLDER = "__empty__"
SAMPLE_ROWS = 3
SAMPLE_COLUMNS = 6
SAMPLE_TEXT = 40


def record_keys(batch: pa.RecordBatch, spec: KeySpec, *, given: bool = False) -> pa.Array:
    """The record key of every row, as `string` without nulls.

    A row without a key is a `FormatError` in rows of a table, and an `InputError` that shows such
    rows in those that somebody gave to be written.
    """
    if spec.generator is KeyGeneratorType.USER_PROVIDED:
        raise UnsupportedTableError(
            "The table's keys are formed by a class of its own, which lakewright cannot run.",
            hint="Read the stored _hoodie_record_key, or write the table with Hudi.",
            context={"property": "hoodie.table.keygenerator.class"},
        )
    if not spec.record_key_fields:
        raise UnsupportedTableError(
            "The table has no record key fields; its keys were generated and cannot be formed.",
            hint="Use the stored _hoodie_record_key.",
            context={"property": "hoodie.table.recordkey.fields"},
        )
    texts = [
        key_text(column_at(batch, name), field=name, path=spec.text_path, zone=spec.zone)
        for name in spec.record_key_fields
    ]
    hollow = _hollow(texts)
    count = pc.sum(hollow).as_py() or 0
    if count:
        raise rows_without_key(batch, hollow, spec) if given else _damaged(hollow, count, spec)
    if len(texts) == 1 and not _always_named(spec):
        return texts[0]
    return _named_key(texts, spec)


def generated_keys(instant: str, task: int, first: int, rows: int) -> pa.Array:
    """Keys of rows of a table without key fields: `<instant>_<task>_<row>`.

    Rows are counted from 0 within a task; `first` is the number of the first one.
    """
    numbers = pa.array(np.arange(first, first + rows)).cast(pa.string())
    return pc.binary_join_element_wise(pa.scalar(f"{instant}_{task}"), numbers, "_")


def _always_named(spec: KeySpec) -> bool:
    return spec.names_single_key or spec.generator is KeyGeneratorType.GLOBAL_DELETE


def _hollow(texts: list[pa.Array]) -> pa.Array:
    """Rows in which every part of the key is null or empty."""
    hollow = [pc.fill_null(pc.equal(text, ""), True) for text in texts]
    nothing = hollow[0]
    for more in hollow[1:]:
        nothing = pc.and_(nothing, more)
    return nothing


def _named_key(texts: list[pa.Array], spec: KeySpec) -> pa.Array:
    parts = [
        pc.binary_join_element_wise(pa.scalar(name), _with_placeholders(text), ":")
        for name, text in zip(spec.record_key_fields, texts, strict=True)
    ]
    return parts[0] if len(parts) == 1 else pc.binary_join_element_wise(*parts, ",")


def _with_placeholders(text: pa.Array) -> pa.Array:
    filled = pc.if_else(pc.equal(text, ""), pa.scalar(EMPTY_PLACEHOLDER), text)
    return pc.fill_null(filled, NULL_PLACEHOLDER)


def _damaged(hollow: pa.Array, count: int, spec: KeySpec) -> FormatError:
    fields = ", ".join(spec.record_key_fields)
    return FormatError(
        f"The record key ({fields}) is null or empty in {count} of {len(hollow)} rows.",
        hint="Every row needs a key: fill the key columns, or choose others for the table.",
        context={"fields": fields, "rows": count, "first_row": pc.index(hollow, True).as_py()},
    )


def rows_without_key(batch: pa.RecordBatch, hollow: pa.Array, spec: KeySpec) -> InputError:
    """The error of rows without a key, where `hollow` is true: how many, and a few of them."""
    count = pc.sum(hollow).as_py()
    fields = ", ".join(spec.record_key_fields)
    keys = {name.split(".")[0] for name in spec.record_key_fields}
    shown = [name for name in batch.schema.names if name not in keys][:SAMPLE_COLUMNS]
    rows = np.flatnonzero(hollow.to_numpy(zero_copy_only=False))[:SAMPLE_ROWS]
    sample = batch.select(shown).take(pa.array(rows)).to_pylist()
    texts = [", ".join(f"{k}={_short(v)}" for k, v in row.items()) for row in sample]
    return InputError(
        f"The record key ({fields}) is null or empty in {count} of {len(hollow)} rows.",
        hint="Every row needs a key: fill the key columns or leave such rows out.",
        context={
            "fields": fields,
            "rows": count,
            "first_row": int(rows[0]),
            "sample": "; ".join(f"[{text}]" for text in texts),
        },
    )


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= SAMPLE_TEXT else text[: SAMPLE_TEXT - 1] + "…"
