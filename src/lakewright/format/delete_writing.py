"""Writing the Avro payload of delete blocks (`HoodieDeleteRecordList`) from columns.

The bytes are those that Hudi's own writers produce for the same records. The wrapper of an ordering
value follows the type of the ordering column; null becomes int 0, the form of "no ordering value"
that every release understands. The array wrapper of several ordering columns is never written:
releases below 1.1 cannot read it.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakewright.errors import SchemaError
from lakewright.format.delete_ordering import DECIMAL_WRAPPER_TYPE, Int64s, OrderingBranch
from lakewright.format.delete_reading import cut_pieces

_UNORDERED = b"\x04\x00"
_PRESENT = b"\x02"
"""Branch 1 of a nullable field."""


def encode_delete_payload(
    keys: pa.StringArray,
    partitions: pa.StringArray,
    ordering: pa.Array | None,
    *,
    date_wrapper: OrderingBranch = OrderingBranch.INT,
) -> bytes:
    """`HoodieDeleteRecordList` as Hudi writes it: one array block, or none if it is empty.

    Raises `SchemaError` for an ordering column that no wrapper can hold.
    """
    if not len(keys):
        return b"\x00"
    values: pa.Array | bytes = _UNORDERED
    if ordering is not None:
        values = _encoded_ordering(ordering, date_wrapper).fill_null(_UNORDERED)
    records = _concatenated(_PRESENT, _prefixed(keys), _PRESENT, _prefixed(partitions), values)
    if records.null_count:
        raise SchemaError(
            "A delete has no record key or no partition path.",
            hint="Drop rows without a key; use the empty text for the partition path of a table "
            "without partitions.",
        )
    offsets = np.frombuffer(records.buffers()[1], dtype=np.int64)[records.offset :]
    body = memoryview(records.buffers()[2])[offsets[0] : offsets[len(records)]]
    count = _varints(np.array([len(keys)], dtype=np.int64))[0].as_py()
    return b"".join((count, body, b"\x00"))


def _encoded_ordering(ordering: pa.Array, date_wrapper: OrderingBranch) -> pa.Array:
    kind = ordering.type
    if pt.is_date32(kind):
        return _wrapped(date_wrapper, _varints_of(ordering.cast(pa.int32())))
    if pt.is_boolean(kind):
        return _wrapped(OrderingBranch.BOOLEAN, _fixed(ordering.cast(pa.uint8()), np.uint8))
    if pt.is_integer(kind) or pt.is_time(kind) or pt.is_timestamp(kind):
        wide = kind.bit_width == 64
        branch = OrderingBranch.LONG if wide else OrderingBranch.INT
        whole = ordering if pt.is_integer(kind) else ordering.cast(f"int{kind.bit_width}")
        return _wrapped(branch, _varints_of(whole))
    if pt.is_float32(kind):
        return _wrapped(OrderingBranch.FLOAT, _fixed(ordering, np.float32))
    if pt.is_float64(kind):
        return _wrapped(OrderingBranch.DOUBLE, _fixed(ordering, np.float64))
    if pt.is_string(kind) or pt.is_large_string(kind):
        return _wrapped(OrderingBranch.STRING, _prefixed(ordering))
    if pt.is_binary(kind) or pt.is_large_binary(kind):
        return _wrapped(OrderingBranch.BYTES, _prefixed(ordering))
    if pt.is_decimal(kind):
        return _wrapped(OrderingBranch.DECIMAL, _prefixed(_decimal_bytes(ordering)))
    raise SchemaError(
        f"Deletes cannot carry ordering values of type {kind}.",
        hint="Order by a number, text, boolean, date or time column.",
    )


def _wrapped(branch: OrderingBranch, values: pa.Array) -> pa.Array:
    return _concatenated(bytes([branch << 1]), values)


def _prefixed(texts: pa.Array) -> pa.Array:
    raw = texts.cast(pa.large_binary())
    return _concatenated(_varints_of(pc.binary_length(raw)), raw)


def _concatenated(*pieces: pa.Array | bytes) -> pa.Array:
    """The pieces of each row joined; null where a piece is null."""
    kind = pa.large_binary()
    columns = [pa.scalar(p, kind) if isinstance(p, bytes) else p.cast(kind) for p in pieces]
    return pc.binary_join_element_wise(*columns, pa.scalar(b"", kind))


def _fixed(values: pa.Array, dtype: npt.DTypeLike) -> pa.Array:
    """Little-endian bytes of fixed-width values; null stays null."""
    plain = np.ascontiguousarray(values.fill_null(0).to_numpy(zero_copy_only=False), dtype=dtype)
    octets = pa.Array.from_buffers(
        pa.binary(plain.itemsize), len(plain), [None, pa.py_buffer(plain)]
    )
    return pc.if_else(values.is_valid(), octets.cast(pa.large_binary()), None)


def _varints_of(values: pa.Array) -> pa.Array:
    plain = values.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    return pc.if_else(values.is_valid(), _varints(plain), None)


def _varints(values: Int64s) -> pa.LargeBinaryArray:
    """Zigzag variable-length encoding of each value."""
    zigzag = ((values << 1) ^ (values >> 63)).view(np.uint64)
    lengths = np.ones(len(values), dtype=np.int64)
    for k in range(1, 10):
        lengths += (zigzag >> np.uint64(7 * k)) > 0
    offsets = np.concatenate(([0], np.cumsum(lengths)))
    octets = np.empty(offsets[-1], dtype=np.uint8)
    for k in range(int(lengths.max(initial=0))):
        rows = np.flatnonzero(lengths > k)
        more = (lengths[rows] > k + 1) * np.uint64(0x80)
        part = (zigzag[rows] >> np.uint64(7 * k)) & np.uint64(0x7F)
        octets[offsets[rows] + k] = part | more
    return pa.Array.from_buffers(
        pa.large_binary(), len(values), [None, pa.py_buffer(offsets), pa.py_buffer(octets)]
    )


def _decimal_bytes(values: pa.Array) -> pa.Array:
    """Unscaled values at scale 15 as the shortest big-endian two's complement."""
    try:
        exact = values.cast(DECIMAL_WRAPPER_TYPE)
    except pa.ArrowInvalid as cause:
        raise SchemaError(
            f"Ordering values of type {values.type} do not fit decimal(30,15), the only decimal "
            "that deletes can carry.",
            hint="Order by a column with at most 15 digits before and after the point.",
        ) from cause
    width = 16
    stored = np.frombuffer(exact.buffers()[1], dtype=np.uint8)
    stored = stored[exact.offset * width :][: len(exact) * width].reshape(-1, width)
    octets = np.ascontiguousarray(stored[:, ::-1])
    sign = np.where(octets[:, 0] >= 0x80, 0xFF, 0).astype(np.uint8)
    skip = np.zeros(len(octets), dtype=np.int64)
    spare = np.ones(len(octets), dtype=bool)
    for k in range(width - 1):
        spare &= (octets[:, k] == sign) & ((octets[:, k + 1] ^ sign) < 0x80)
        skip += spare
    starts = np.arange(len(octets), dtype=np.int64) * width
    cuts = np.column_stack((starts + skip, starts + width)).ravel()
    slots = np.arange(0, len(cuts), 2)
    missing = values.is_null().to_numpy(zero_copy_only=False)
    return cut_pieces(octets.tobytes(), cuts).take(pa.array(slots, mask=missing))
