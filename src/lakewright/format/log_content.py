"""Contents of log blocks: record frames of Avro blocks, Parquet files, delete records, positions.

Rows are not decoded here: an Avro block gives the boundaries of its records, for the columnar
decoder. Delete blocks are small and self-describing, and come as columns at once. Every length is
checked against the content before anything is allocated; what does not add up is a
`CorruptFileError` with file and offset.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, repeat
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakewright.codec.roaring import decode_positions
from lakewright.errors import CorruptFileError, FormatError, UnsupportedTableError
from lakewright.format.delete_ordering import Bools, Int64s, OrderingBranch, OrderingValues
from lakewright.format.delete_reading import DeleteScan
from lakewright.format.delete_writing import encode_delete_payload
from lakewright.format.log_block import BlockType, HeaderKey, LogBlock

AVRO_CONTENT_VERSION: Final = 3
DELETE_CONTENT_VERSION: Final = 3
RUN_BYTES_MAX: Final = 2**30
"""Contents joined for one decoder call; offsets inside stay below 2 GiB."""
POSITIONS_PER_BYTE_MAX: Final = 8
POSITIONS_MIN: Final = 1 << 16
"""How many record positions are believed of a block."""

_CONTENT_HEAD = struct.Struct(">ii")
_LENGTH = struct.Struct(">I")


@dataclass(frozen=True, slots=True, eq=False)
class RecordPositions:
    """Row numbers in a base file: record i of the block is row `positions[i]` of that file."""

    base_instant: str
    positions: Int64s


@dataclass(frozen=True, slots=True, eq=False)
class DeleteRows:
    """Deleted keys in columns, in the order they were written."""

    keys: pa.StringArray
    partitions: pa.StringArray
    ordering: OrderingValues

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def unordered(self) -> Bools:
        """Deletes without ordering value, which win over everything earlier."""
        return self.ordering.unordered

    def ordering_as(self, target: pa.DataType | Sequence[pa.DataType]) -> Any:
        """Ordering values in the type of the ordering column, or one array per ordering column.

        Null where the delete is unordered. Raises `SchemaError` for a value that does not fit.
        """
        if isinstance(target, pa.DataType):
            return self.ordering.as_type(target)
        return self.ordering.as_types(target)


def block_runs(
    blocks: Sequence[LogBlock], *, bytes_max: int = RUN_BYTES_MAX, by_instant: bool = False
) -> Iterator[list[LogBlock]]:
    """Adjacent blocks that can be decoded together: equal type, schema and partiality.

    With `by_instant` a run holds one instant only, for readers that treat instants differently.
    """

    def key(block: LogBlock) -> tuple[object, ...]:
        instant = block.instant if by_instant else None
        return block.type, block.headers.get(HeaderKey.SCHEMA), block.is_partial, instant

    for _, alike in groupby(blocks, key=key):
        run: list[LogBlock] = []
        size = 0
        for block in alike:
            if run and size + block.length > bytes_max:
                yield run
                run, size = [], 0
            run.append(block)
            size += block.length
        yield run


def avro_frames(block: LogBlock) -> tuple[Int64s, Int64s]:
    """Where the records of an Avro (or change) block begin and end inside its content."""
    _, starts, ends = avro_frames_of([block])
    return starts, ends


def avro_frames_of(blocks: Sequence[LogBlock]) -> tuple[memoryview, Int64s, Int64s]:
    """Contents of several blocks as one payload, and where each record begins and ends in it."""
    counts = record_counts(blocks)
    lengths: list[int] = []
    for block, count in zip(blocks, counts.tolist(), strict=True):
        lengths += _record_lengths(block, count)
    sizes = np.fromiter(lengths, dtype=np.int64, count=len(lengths))
    heads = np.repeat(np.arange(1, len(blocks) + 1) * _CONTENT_HEAD.size, counts)
    ends = heads + np.cumsum(sizes + _LENGTH.size)
    return _joined(blocks), ends - sizes, ends


def record_counts(blocks: Sequence[LogBlock]) -> Int64s:
    """Records of each Avro block, from its head."""
    return np.fromiter(map(_record_count, blocks), dtype=np.int64, count=len(blocks))


def parquet_content(block: LogBlock) -> pa.Buffer:
    """The complete Parquet file inside a Parquet block, without a copy."""
    _require(block, BlockType.PARQUET_DATA)
    return pa.py_buffer(block.content)


def delete_rows(block: LogBlock) -> DeleteRows:
    """The records of one delete block."""
    return delete_rows_of([block])


def delete_rows_of(blocks: Sequence[LogBlock]) -> DeleteRows:
    """The records of several delete blocks, one after the other."""
    scan = DeleteScan()
    for block in blocks:
        payload = _delete_payload(block)
        try:
            scan.add(payload)
        except (ValueError, IndexError) as problem:
            raise _corrupt(block, f"Delete records cannot be decoded: {problem}") from problem
    try:
        return DeleteRows(*scan.finish())
    except (ValueError, pa.ArrowInvalid) as problem:
        raise _corrupt(blocks[0], f"Delete records cannot be decoded: {problem}") from problem


def record_positions(block: LogBlock) -> RecordPositions | None:
    """Positions of the block's records, or None if it has none that name their base file."""
    text = block.headers.get(HeaderKey.RECORD_POSITIONS)
    base_instant = block.headers.get(HeaderKey.BASE_FILE_INSTANT_TIME_OF_RECORD_POSITIONS)
    if text is None or base_instant is None:
        return None
    # A bitmap of ten bytes can claim 65536 positions; rows take more than an eighth of a byte.
    limit = POSITIONS_MIN + POSITIONS_PER_BYTE_MAX * len(block.content)
    try:
        return RecordPositions(base_instant, decode_positions(text, limit=limit, path=block.path))
    except CorruptFileError as error:
        error.context["offset"] = block.offset
        raise


def encode_avro_content(bodies: bytes | memoryview | pa.Buffer, offsets: Int64s) -> bytes:
    """Content of an Avro block: record i is `bodies[offsets[i]:offsets[i + 1]]`."""
    lengths = np.diff(offsets)
    head = _CONTENT_HEAD.pack(AVRO_CONTENT_VERSION, len(lengths))
    if not len(lengths):
        return head
    prefixes = pa.Array.from_buffers(
        pa.binary(_LENGTH.size), len(lengths), [None, pa.py_buffer(lengths.astype(">u4"))]
    ).cast(pa.large_binary())
    records = pa.Array.from_buffers(
        pa.large_binary(),
        len(lengths),
        [None, pa.py_buffer(offsets.astype(np.int64)), pa.py_buffer(bodies)],
    )
    return head + _joined_bytes(
        pc.binary_join_element_wise(prefixes, records, pa.scalar(b"", pa.large_binary()))
    )


def encode_delete_rows(
    keys: pa.StringArray,
    partitions: pa.StringArray,
    ordering: pa.Array | None = None,
    *,
    date_wrapper: OrderingBranch = OrderingBranch.INT,
) -> bytes:
    """Content of a delete block.

    `ordering` has the type of the ordering column and chooses the wrapper; null (or no array) is
    written as int 0, the form every release understands as "no ordering value". Dates are int
    days, which 1.x compares with its rows; 0.x compares them only as `OrderingBranch.DATE`.
    """
    payload = encode_delete_payload(keys, partitions, ordering, date_wrapper=date_wrapper)
    return _CONTENT_HEAD.pack(DELETE_CONTENT_VERSION, len(payload)) + payload


def _joined(blocks: Sequence[LogBlock]) -> memoryview:
    if len(blocks) == 1:
        return blocks[0].content
    return memoryview(b"".join(block.content for block in blocks))


def _joined_bytes(rows: pa.LargeBinaryArray) -> bytes:
    offsets = np.frombuffer(rows.buffers()[1], dtype=np.int64)[rows.offset :][: len(rows) + 1]
    return bytes(memoryview(rows.buffers()[2])[offsets[0] : offsets[-1]])


def _record_count(block: LogBlock) -> int:
    if block.type not in (BlockType.AVRO_DATA, BlockType.CDC_DATA):
        _require(block, BlockType.AVRO_DATA)
    version, count = _head(block)
    if not 1 <= version <= AVRO_CONTENT_VERSION:
        raise FormatError(
            f"An Avro block has the unknown content version {version}.",
            hint="A newer release wrote it; upgrade lakewright or compact with that release.",
            context=_where(block),
        )
    if not 0 <= count <= (len(block.content) - _CONTENT_HEAD.size) // _LENGTH.size:
        raise _corrupt(block, f"An Avro block of {len(block.content)} bytes claims {count} records")
    return count


def _record_lengths(block: LogBlock, count: int) -> list[int]:
    """Follow the length prefixes. Serial by nature; bounded by the record count of the block."""
    content = block.content
    unpack = _LENGTH.unpack_from
    lengths: list[int] = []
    add = lengths.append
    cursor = _CONTENT_HEAD.size
    try:
        for _ in repeat(None, count):
            (length,) = unpack(content, cursor)
            add(length)
            cursor += length + 4
    except struct.error:
        cursor = -1
    if cursor != len(content):
        raise _corrupt(block, "The records of an Avro block do not fill it exactly")
    return lengths


def _delete_payload(block: LogBlock) -> bytes:
    _require(block, BlockType.DELETE)
    version, length = _head(block)
    if version in (1, 2):
        raise UnsupportedTableError(
            f"A delete block has content version {version}, which only old Hudi releases read "
            "(serialised Java objects).",
            hint="Compact the table with the Hudi release that wrote it (before 0.14), then read "
            "it.",
            context=_where(block),
        )
    if version != DELETE_CONTENT_VERSION:
        raise FormatError(
            f"A delete block has the unknown content version {version}.",
            hint="A newer release wrote it; upgrade lakewright or compact with that release.",
            context=_where(block),
        )
    payload = block.content[_CONTENT_HEAD.size :]
    if length != len(payload):
        raise _corrupt(block, f"A delete block of {len(payload)} bytes claims {length}")
    return bytes(payload)


def _head(block: LogBlock) -> tuple[int, int]:
    if len(block.content) < _CONTENT_HEAD.size:
        raise _corrupt(block, f"A {block.type.name} block has only {len(block.content)} bytes")
    first, second = _CONTENT_HEAD.unpack_from(block.content)
    return first, second


def _require(block: LogBlock, wanted: BlockType) -> None:
    if block.type is not wanted:
        raise FormatError(
            f"A {block.type.name} block was found where a {wanted.name} block is needed.",
            hint="Choose the reader by the type of the block.",
            context=_where(block),
        )


def _corrupt(block: LogBlock, what: str) -> CorruptFileError:
    return CorruptFileError(
        f"{what}.", hint="The file is damaged; restore it from a copy.", context=_where(block)
    )


def _where(block: LogBlock) -> dict[str, object]:
    return {"path": block.path, "offset": block.offset}
