"""Which data rows are deletes, by their own content.

Hudi has three marks besides delete blocks: the column `_hoodie_is_deleted`, the meta column
`_hoodie_operation` and a column of the table's choice with a marker text. Releases and payload
classes differ in which of them count; a `DeleteRule` says it for one merger. Rows of a base file
are never tested: what is stored there is alive.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakewright.errors import ConfigError
from lakewright.merge.columns import Bools, as_bools, column_at, path_type, top_level
from lakewright.merge.protocol import MergeContext, RecordMerger

DELETED_COLUMN: Final = "_hoodie_is_deleted"
OPERATION_COLUMN: Final = "_hoodie_operation"
DELETE_FIELD: Final = "hoodie.payload.delete.field"
DELETE_MARKER: Final = "hoodie.payload.delete.marker"
_DELETING_OPERATIONS: Final = ("D", "-U")


@dataclass(frozen=True, slots=True)
class DeleteRule:
    """The marks that make a data row a delete; any one of them suffices, null never does."""

    flag: bool = True
    """`_hoodie_is_deleted` counts."""
    operation: bool = True
    """`_hoodie_operation` counts: D, and -U, which is only the image before an update."""
    field: str | None = None
    """Column of the custom marker."""
    marker: str | None = None
    ignore_case: bool = False

    def columns(self, schema: pa.Schema) -> frozenset[str]:
        """Top-level columns of `schema` that the rule reads."""
        paths = [DELETED_COLUMN] if self.flag else []
        if self.operation:
            paths.append(OPERATION_COLUMN)
        if self.field is not None:
            paths.append(self.field)
        names = set(schema.names)
        return frozenset(top_level(path, schema) for path in paths) & names

    def mask(self, rows: pa.RecordBatch) -> Bools | None:
        """Which rows are deletes; None if none can be, which is the usual case and free."""
        found: pa.Array | None = None
        if self.flag and pt.is_boolean(path_type(rows.schema, DELETED_COLUMN)):
            found = column_at(rows, DELETED_COLUMN)
        if self.operation and rows.schema.get_field_index(OPERATION_COLUMN) >= 0:
            hit = pc.is_in(rows.column(OPERATION_COLUMN), value_set=pa.array(_DELETING_OPERATIONS))
            found = hit if found is None else pc.or_kleene(found, hit)
        if self.field is not None and not pt.is_null(path_type(rows.schema, self.field)):
            hit = self._marked(column_at(rows, self.field))
            found = hit if found is None else pc.or_kleene(found, hit)
        return None if found is None else as_bools(found, rows.num_rows)

    def _marked(self, column: pa.Array) -> pa.Array:
        if pt.is_dictionary(column.type):
            column = column.dictionary_decode()
        text = column if pt.is_string(column.type) else column.cast(pa.string())
        marker = self.marker or ""
        if self.ignore_case:
            return pc.equal(pc.utf8_lower(text), marker.lower())
        return pc.equal(text, marker)


def custom_marker(properties: Mapping[str, str]) -> tuple[str, str] | None:
    """Field and marker of the custom delete mark; `ConfigError` if only one of them is set."""
    field, marker = properties.get(DELETE_FIELD), properties.get(DELETE_MARKER)
    if not field and not marker:
        return None
    if not field or not marker:
        raise ConfigError(
            f"Either {DELETE_FIELD} or {DELETE_MARKER} is not specified.",
            hint="Set both of them, or neither.",
            context={DELETE_FIELD: field, DELETE_MARKER: marker},
        )
    return field, marker


def delete_rule(merger: RecordMerger, ctx: MergeContext) -> DeleteRule:
    """The merger's own rule (`deletes`), else every mark that current releases know."""
    own = getattr(merger, "deletes", None)
    if isinstance(own, DeleteRule):
        return own
    custom = custom_marker(ctx.properties)
    return DeleteRule() if custom is None else DeleteRule(field=custom[0], marker=custom[1])
