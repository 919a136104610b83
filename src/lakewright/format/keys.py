"""Record keys from columns, as every key generator of Hudi forms them.

One field gives its bare text (or `field:text` where the table's writers named single keys), several
fields give `f1:v1,f2:v2` in stored order with `__null__` and `__empty__` for what is null or empty.
Nothing is escaped, as in Hudi. A key that is null or empty as a whole is an error with the count
and the first row, never a made-up key. Work is per column; there is no loop over rows.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from lakewright.errors import FormatError, UnsupportedTableError
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
    "partition_path_values",
    "record_keys",
    "unescape",
]

NULL_PLACEHOLDER = "__null__"
EMPTY_PLACEHOLDER = "__empty__"


def record_keys(batch: pa.RecordBatch, spec: KeySpec) -> pa.Array:
    """The record key of every row, as `string` without nulls."""
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
    if len(texts) == 1 and not _always_named(spec):
        return _bare_key(texts[0], spec)
    return _named_key(texts, spec)


def _always_named(spec: KeySpec) -> bool:
    return spec.names_single_key or spec.generator is KeyGeneratorType.GLOBAL_DELETE


def _bare_key(text: pa.Array, spec: KeySpec) -> pa.Array:
    _refuse_rows(pc.fill_null(pc.equal(text, ""), True), spec)
    return text


def _named_key(texts: list[pa.Array], spec: KeySpec) -> pa.Array:
    hollow = [pc.fill_null(pc.equal(text, ""), True) for text in texts]
    nothing = hollow[0]
    for more in hollow[1:]:
        nothing = pc.and_(nothing, more)
    _refuse_rows(nothing, spec)
    parts = [
        pc.binary_join_element_wise(pa.scalar(name), _with_placeholders(text), ":")
        for name, text in zip(spec.record_key_fields, texts, strict=True)
    ]
    return parts[0] if len(parts) == 1 else pc.binary_join_element_wise(*parts, ",")


def _with_placeholders(text: pa.Array) -> pa.Array:
    filled = pc.if_else(pc.equal(text, ""), pa.scalar(EMPTY_PLACEHOLDER), text)
    return pc.fill_null(filled, NULL_PLACEHOLDER)


def _refuse_rows(hollow: pa.Array, spec: KeySpec) -> None:
    count = pc.sum(hollow).as_py() or 0
    if not count:
        return
    fields = ", ".join(spec.record_key_fields)
    first = pc.index(hollow, True).as_py()
    raise FormatError(
        f"The record key ({fields}) is null or empty in {count} of {len(hollow)} rows.",
        hint="Every row needs a key: fill the key columns, or choose others for the table.",
        context={"fields": fields, "rows": count, "first_row": first},
    )
