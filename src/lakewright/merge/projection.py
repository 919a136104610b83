"""Which columns must be read so that merging is right.

Without log files only the asked columns are. With them, those that decide join: record key,
ordering fields, marks of deletes, and whatever the merger itself must see. The extra ones are
dropped after merging.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from lakewright.merge.columns import top_level
from lakewright.merge.config import RECORD_KEY_COLUMN, MergeConfig
from lakewright.merge.deletes import delete_rule
from lakewright.merge.protocol import Phase, RecordMerger


def required_columns(
    config: MergeConfig,
    merger: RecordMerger,
    schema: pa.Schema,
    requested: Sequence[str],
    *,
    key_columns: Sequence[str] = (RECORD_KEY_COLUMN,),
) -> list[str]:
    """The columns to read from a slice with log files, in the order of the table's `schema`.

    `key_columns` are the columns the key is made of: the meta column, or the key fields where meta
    columns are not populated.
    """
    ctx = config.context(schema, Phase.LOG)
    wanted = merger.columns(ctx)
    if not isinstance(wanted, frozenset):
        return list(schema.names)
    paths = [*requested, *key_columns, *config.ordering_fields, *wanted]
    names = {top_level(path, schema) for path in paths}
    names |= delete_rule(merger, ctx).columns(schema)
    return [name for name in schema.names if name in names]
