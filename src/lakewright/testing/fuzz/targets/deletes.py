"""Contents of delete blocks: keys, partitions and ordering values, held against fastavro."""

from __future__ import annotations

import json
import struct
from random import Random
from typing import Any, Final

import pyarrow as pa

from lakewright.errors import FormatError, SchemaError, UnsupportedTableError
from lakewright.format.delete_ordering import OrderingBranch, OrderingValues
from lakewright.format.log_block import BlockType, LogBlock
from lakewright.format.log_content import DeleteRows, delete_rows
from lakewright.testing.fuzz.avro_model import UndecodableError, model_datum
from lakewright.testing.fuzz.corpus import Corpus, Seed
from lakewright.testing.fuzz.judging import PATH, Case, Target, demand, demand_sound
from lakewright.testing.fuzz.made import delete_contents
from lakewright.testing.fuzz.mutators import mutate_plainly

__all__ = ["TARGETS", "check_delete_rows"]

_WRAPPERS: Final = {
    "BooleanWrapper": "boolean",
    "IntWrapper": "int",
    "LongWrapper": "long",
    "FloatWrapper": "float",
    "DoubleWrapper": "double",
    "BytesWrapper": "bytes",
    "StringWrapper": "bytes",  # that it is UTF-8 shows when it is converted to text
    "DateWrapper": "int",
    "DecimalWrapper": "bytes",
    "TimeMicrosWrapper": "long",
    "TimestampMicrosWrapper": "long",
}
_TYPES: Final = (
    pa.int64(),
    pa.int32(),
    pa.float64(),
    pa.string(),
    pa.timestamp("us", "UTC"),
    pa.timestamp("ms"),
    pa.date32(),
    pa.time32("ms"),
    pa.decimal128(20, 4),
    pa.binary(),
    pa.bool_(),
)


def _wrapper(name: str, kind: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": "value", "type": kind}]}


def _schema() -> str:
    parts = ["null", *_WRAPPERS, _wrapper("LocalDateWrapper", "int")]
    several = {"name": "wrappedValues", "type": ["null", {"type": "array", "items": parts}]}
    array = {"type": "record", "name": "ArrayWrapper", "fields": [several]}
    single = [_wrapper(name, kind) for name, kind in _WRAPPERS.items()]
    fields = [
        {"name": "recordKey", "type": ["null", "string"]},
        {"name": "partitionPath", "type": ["null", "string"]},
        {"name": "orderingVal", "type": ["null", *single, array]},
    ]
    record = {"type": "record", "name": "HoodieDeleteRecord", "fields": fields}
    records = {"name": "deleteRecordList", "type": {"type": "array", "items": record}}
    return json.dumps({"type": "record", "name": "HoodieDeleteRecordList", "fields": [records]})


_SCHEMA: Final = _schema()


def _seeds(corpus: Corpus) -> list[Seed]:
    del corpus  # real delete blocks are in the seeds of log files
    return [Seed(f"made:delete-{name}", data) for name, data in delete_contents().items()]


def _block(content: bytes) -> LogBlock:
    return LogBlock(PATH, 0, len(content), BlockType.DELETE, {}, memoryview(content))


def _check(case: Case) -> None:
    block = _block(case.data)
    rows = delete_rows(block)
    check_delete_rows(block, rows)
    for kind in _TYPES:
        _as_type(rows, kind)
    _as_type(rows, [pa.int64(), pa.int64(), pa.string()])
    _as_type(rows, [pa.date32()])


def _as_type(rows: DeleteRows, kind: pa.DataType | list[pa.DataType]) -> None:
    """A conversion gives a sound column, or says that the type does not fit."""
    try:
        columns = rows.ordering_as(kind)
    except SchemaError:
        return
    for column in columns if isinstance(columns, list) else [columns]:
        demand_sound(column)
        demand(len(column) == len(rows), "an ordering column has another length")


def check_delete_rows(block: LogBlock, rows: DeleteRows) -> None:
    """Keys, partitions and ordering values are those that fastavro reads."""
    demand_sound(rows.keys)
    demand_sound(rows.partitions)
    try:
        records = model_datum(_SCHEMA, bytes(block.content[8:]))["deleteRecordList"]
    except UndecodableError as error:
        demand(False, f"deletes that fastavro does not read: {error}")
        return
    demand(rows.keys.to_pylist() == [r["recordKey"] for r in records], "other keys")
    demand(rows.partitions.to_pylist() == [r["partitionPath"] for r in records], "other partitions")
    values = [r["orderingVal"] for r in records]
    ours = _plain(rows.ordering)
    demand(len(ours) == len(values), "another number of ordering values")
    for number, (mine, told) in enumerate(zip(ours, values, strict=True)):
        demand(_equal(mine, told), f"ordering value {number} is {mine}, not {told}")


def _plain(ordering: OrderingValues) -> list[Any]:
    out: list[Any] = []
    raw = ordering.raw.to_pylist()
    for row, code in enumerate(ordering.branches.tolist()):
        branch = OrderingBranch(code)
        if branch is OrderingBranch.ARRAY:
            assert ordering.part_offsets is not None
            begin, end = ordering.part_offsets[row : row + 2].tolist()
            out.append(None if ordering.parts is None else _plain(ordering.parts)[begin:end])
        elif branch in (OrderingBranch.FLOAT, OrderingBranch.DOUBLE):
            out.append(float(ordering.reals[row]))
        elif branch is OrderingBranch.NULL:
            out.append(None)
        elif raw[row] is not None:
            out.append(raw[row])
        else:
            out.append(int(ordering.integers[row]))
    return out


def _equal(ours: Any, told: Any) -> bool:
    if isinstance(told, dict):
        if "wrappedValues" in told:
            values = told["wrappedValues"] or []
            return len(ours) == len(values) and all(map(_equal, ours, values))
        told = told["value"]
    if isinstance(told, str):
        told = told.encode()
    return bool(ours == told or (ours != ours and told != told))


def _change_payload(data: bytes, random: Random) -> bytes:
    payload = mutate_plainly(data[8:], random)
    return data[:4] + struct.pack(">i", len(payload)) + payload


TARGETS: Final = (
    Target(
        name="delete",
        about="contents of delete blocks and their ordering values",
        seeds=_seeds,
        check=_check,
        allowed=(FormatError, UnsupportedTableError),
        tokens=(b"\x02", b"\x18", b"\x00", b"\xff" * 9 + b"\x01"),
        shapes=(_change_payload,),
        share=6,
    ),
)
