"""Values of a column as the text under which a secondary index has them.

It is the text of what Avro stores: numbers in digits, and so dates, in days, and timestamps, in the
unit of the column. Other types have no text that can be relied upon, and no index of ours.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.types as pt

from lakewright.expr.coerce import is_text

__all__ = ["secondary_texts"]


def secondary_texts(values: pa.Array) -> pa.StringArray | None:
    """The text of each value, null for null; None if columns of this type cannot be indexed."""
    kind = values.type
    if is_text(kind):
        return values.cast(pa.string())
    if pt.is_integer(kind) or pt.is_boolean(kind):
        return values.cast(pa.string())
    if pt.is_date32(kind):
        return values.view(pa.int32()).cast(pa.string())
    if pt.is_timestamp(kind):
        return values.view(pa.int64()).cast(pa.string())
    return None
