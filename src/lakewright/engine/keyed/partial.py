"""Which columns a partial upsert takes from its rows."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from lakewright.errors import InputError
from lakewright.format.key_spec import KeySpec
from lakewright.format.table_properties import TableProperties
from lakewright.merge.config import MergeConfig

__all__ = ["partial_schema"]


def partial_schema(
    given: pa.Schema | None, columns: Sequence[str], properties: TableProperties
) -> pa.Schema:
    """The columns to be changed, and those that tell which rows and in which order.

    `InputError` names what the rows lack.
    """
    spec = KeySpec.from_properties(properties)
    merge = MergeConfig.from_properties(properties.version, properties.values)
    telling = [
        *spec.record_key_fields,
        *(field.name for field in spec.partition_fields),
        *merge.ordering_fields,
    ]
    wanted = dict.fromkeys([*(name.partition(".")[0] for name in telling), *columns])
    have = [] if given is None else given.names
    lacking = [name for name in wanted if name not in have]
    if given is None or lacking:
        raise InputError(
            f"The rows of a partial upsert lack {', '.join(lacking)}.",
            hint="Rows need the columns to be changed, and those of the key, the partition and the "
            "order.",
            context={"lacking": lacking, "got": have},
        )
    return pa.schema([given.field(name) for name in given.names if name in wanted])
