"""Change logs: what a merged base file changed, kept beside it for change queries.

One record per changed row, in the mode that the table stores: operation and key, the image before
the change too, or both images. Rows that stayed are not in it; a merge that changed nothing leaves
an empty log, so that readers need not guess. The file has the name and the token of the base file's
attempt, and its own marker.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from lakewright.codec.avro.schema import parse_schema, to_json
from lakewright.codec.avro.types import Field, Primitive, Record, Union
from lakewright.engine.write_context import RECORD_KEY, WriteContext, WriteToken
from lakewright.format.cdc import LoggingMode, Operation
from lakewright.format.file_names import LogFileName
from lakewright.format.log_writing import BlockWriter
from lakewright.format.table_schema import META_COLUMNS
from lakewright.merge.columns import Int64s
from lakewright.storage.base import Storage
from lakewright.txn.markers import Marker, MarkerType
from lakewright.txn.publishing import publish_file

__all__ = ["ChangeLog"]

SUFFIX = ".cdc"
_TEXT = Primitive("string")
_NULL = Primitive("null")


@dataclass(slots=True)
class ChangeLog:
    """Collects the changes of one file group."""

    context: WriteContext
    mode: LoggingMode
    _parts: list[pa.RecordBatch] = field(default_factory=list)

    def replaced(
        self, base: pa.RecordBatch, positions: Int64s, newer: pa.RecordBatch, removed: Int64s
    ) -> None:
        """Rows of `base` that got another version, and rows that went."""
        if len(positions):
            before = base.take(pa.array(positions))
            self._add(Operation.UPDATE, newer.column(RECORD_KEY), before, newer)
        if len(removed):
            before = base.take(pa.array(removed))
            self._add(Operation.DELETE, before.column(RECORD_KEY), before, None)

    def inserted(self, rows: pa.RecordBatch) -> None:
        """Rows that the base file did not have."""
        if rows.num_rows:
            self._add(Operation.INSERT, rows.column(RECORD_KEY), None, rows)

    def publish(
        self, storage: Storage, partition: str, file_id: str, token: WriteToken
    ) -> dict[str, int]:
        """Write the log; its path and size, as a commit tells them."""
        context = self.context
        schema = self._record()
        rows = pa.Table.from_batches(self._parts, self._arrow()).combine_chunks()
        batch = rows.to_batches()[0] if rows.num_rows else _empty(self._arrow())
        block = BlockWriter(context.instant, to_json(schema), context.version).changes(batch)
        name = LogFileName(file_id, context.instant, 1, str(token), SUFFIX)
        marker = Marker(partition, name.text, MarkerType.CREATE)

        def write(sink: Any) -> None:
            sink.write(block)

        info = publish_file(storage, context.fence, marker, write)
        return {marker.data_path: info.size}

    def _add(
        self,
        operation: Operation,
        keys: pa.Array,
        before: pa.RecordBatch | None,
        after: pa.RecordBatch | None,
    ) -> None:
        size = len(keys)
        known: dict[str, pa.Array] = {
            "op": pa.repeat(pa.scalar(operation.value), size),
            "ts_ms": pa.repeat(pa.scalar(self.context.instant), size),
            "record_key": keys,
            "before": self._image(before, size),
            "after": self._image(after, size),
        }
        schema = self._arrow()
        self._parts.append(
            pa.RecordBatch.from_arrays([known[name] for name in schema.names], schema=schema)
        )

    def _image(self, rows: pa.RecordBatch | None, size: int) -> pa.Array:
        fields = self._image_fields()
        kind = pa.struct(fields)
        if rows is None:
            return pa.nulls(size, kind)
        columns = [rows.column(f.name).cast(f.type) for f in fields]
        return pa.StructArray.from_arrays(columns, fields=fields)

    def _image_fields(self) -> list[pa.Field]:
        return [f.with_nullable(True) for f in self.context.schema if f.name not in META_COLUMNS]

    def _names(self) -> Sequence[str]:
        if self.mode is LoggingMode.DATA_BEFORE_AFTER:
            return ("op", "ts_ms", "before", "after")
        if self.mode is LoggingMode.DATA_BEFORE:
            return ("op", "record_key", "before")
        return ("op", "record_key")

    def _arrow(self) -> pa.Schema:
        image = pa.struct(self._image_fields())
        return pa.schema(
            [(n, image if n in ("before", "after") else pa.string()) for n in self._names()]
        )

    def _record(self) -> Record:
        """The Avro schema of the log, in the words of Hudi's writers."""
        if self.mode is LoggingMode.OP_KEY_ONLY:
            texts = [Field(name, Union((_TEXT, _NULL))) for name in self._names()]
            return Record("Record", tuple(texts))
        stored = parse_schema(self.context.avro_schema)
        assert isinstance(stored, Record)
        data = tuple(f for f in stored.fields if f.name not in META_COLUMNS)
        image = replace(stored, fields=data)
        fields = [
            Field(
                name,
                Union((_NULL, image if name in ("before", "after") else _TEXT)),
                default=None,
                doc="",
            )
            for name in self._names()
        ]
        namespace = stored.name.rpartition(".")[0]
        return Record(f"{namespace}.CDC" if namespace else "CDC", tuple(fields))


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], f.type) for f in schema], schema=schema)
