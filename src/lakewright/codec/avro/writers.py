"""Writers of the types that have one value per lane: numbers, text, bytes, enums, decimals.

A writer appends one encoded value per lane to an `Assembly`; where `valid` is given, the other
lanes get nothing. Values that the Avro type cannot hold are `SchemaError`s.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, NoReturn

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakewright.codec.avro.assembly import Assembly
from lakewright.codec.avro.cursor import Flags
from lakewright.errors import SchemaError

__all__ = [
    "BooleanWriter",
    "DecimalWriter",
    "EnumWriter",
    "FixedWriter",
    "FloatWriter",
    "MaskedWriter",
    "NullWriter",
    "NumberWriter",
    "TextWriter",
    "Writer",
    "refuse",
    "validity",
]


class Writer(ABC):
    """What encodes one Avro type."""

    takes_null: ClassVar[bool] = False
    """Whether the column may hold nulls."""

    @abstractmethod
    def write(self, column: pa.Array, out: Assembly) -> None:
        """Append every value of the column."""


class MaskedWriter(Writer):
    """A writer that can leave lanes out by itself; for others the lanes are selected before."""

    @abstractmethod
    def write(self, column: pa.Array, out: Assembly, valid: Flags | None = None) -> None:
        """Append every value of the column that is valid."""


def refuse(message: str) -> NoReturn:
    """Values that do not fit the schema."""
    raise SchemaError(
        f"The rows cannot be written with this Avro schema: {message}.",
        hint="Convert the values to the table's schema first, or evolve the schema.",
    )


def validity(column: pa.Array) -> Flags | None:
    """Which values are not null; None when all are."""
    if not column.null_count:
        return None
    flags: Flags = column.is_valid().to_numpy(zero_copy_only=False)
    return flags


def _numbers(column: pa.Array, dtype: str, more: int = 0) -> npt.NDArray[Any]:
    """The values, or the offsets (one more) of a column."""
    buffer = column.buffers()[1]
    if buffer is None or not buffer.size:
        return np.zeros(len(column) + more, dtype)
    skip = column.offset * np.dtype(dtype).itemsize
    return np.frombuffer(buffer, dtype, len(column) + more, skip)


class NullWriter(Writer):
    """Nothing at all."""

    takes_null = True

    def write(self, column: pa.Array, out: Assembly) -> None:  # noqa: ARG002
        """Append nothing."""
        return


class BooleanWriter(MaskedWriter):
    """One byte, 0 or 1."""

    def write(self, column: pa.Array, out: Assembly, valid: Flags | None = None) -> None:
        """Append one byte each."""
        bits = np.frombuffer(column.buffers()[1], np.uint8)
        skip = column.offset // 8
        flags = np.unpackbits(bits[skip:], bitorder="little", count=len(column) + column.offset % 8)
        value = flags[column.offset % 8 :]
        if valid is None:
            out.word(value.astype(np.uint64), 1, 1)
        else:
            out.word((value & valid).astype(np.uint64), valid.astype(np.uint8), 1)


class NumberWriter(MaskedWriter):
    """int and long with their logical types: zig-zag varints."""

    def __init__(self, dtype: pa.DataType) -> None:
        self._store = "<i4" if dtype.bit_width == 32 else "<i8"

    def write(self, column: pa.Array, out: Assembly, valid: Flags | None = None) -> None:
        """Append one varint each."""
        out.signed(_numbers(column, self._store).astype(np.int64, copy=False), valid)


class FloatWriter(MaskedWriter):
    """float and double: little-endian IEEE 754."""

    def __init__(self, dtype: pa.DataType) -> None:
        self._width = dtype.bit_width // 8

    def write(self, column: pa.Array, out: Assembly, valid: Flags | None = None) -> None:
        """Append the bytes as they are."""
        word = _numbers(column, f"<u{self._width}").astype(np.uint64, copy=False)
        if valid is None:
            out.word(word, self._width, self._width)
        else:
            out.word(word * valid, valid.astype(np.uint8) * np.uint8(self._width), self._width)


class TextWriter(MaskedWriter):
    """string and bytes: a length and as many bytes."""

    def write(self, column: pa.Array, out: Assembly, valid: Flags | None = None) -> None:
        """Append lengths and bytes; what lies below a null is left out."""
        offsets = _numbers(column, "<i4", 1)
        size = np.diff(offsets)
        if valid is not None and (size * ~valid).any():
            column = column.fill_null("" if column.type == pa.string() else b"")
            offsets = _numbers(column, "<i4", 1)
            size = np.diff(offsets)
        out.varint(size.astype(np.uint64) << np.uint64(1), valid)
        data = column.buffers()[2]
        out.binary(offsets, data if data is not None else pa.py_buffer(b""))


class FixedWriter(MaskedWriter):
    """A fixed number of bytes."""

    def __init__(self, size: int) -> None:
        self._size = size

    def write(self, column: pa.Array, out: Assembly, valid: Flags | None = None) -> None:
        """Append the bytes as they are."""
        _put_rows(_matrix(column, self._size), out, valid)


def _matrix(column: pa.Array, width: int) -> npt.NDArray[np.uint8]:
    buffer = column.buffers()[1]
    if not width or not len(column):
        return np.zeros((len(column), width), np.uint8)
    flat = np.frombuffer(buffer, np.uint8, len(column) * width, column.offset * width)
    return flat.reshape(len(column), width)


def _put_rows(rows: npt.NDArray[np.uint8], out: Assembly, valid: Flags | None) -> None:
    out.rows(rows, None if valid is None else valid * np.int64(rows.shape[1]))


class EnumWriter(MaskedWriter):
    """A symbol as its index."""

    def __init__(self, name: str, symbols: tuple[str, ...]) -> None:
        self._name = name
        self._symbols = pa.array(symbols, pa.string())

    def write(self, column: pa.Array, out: Assembly, valid: Flags | None = None) -> None:
        """Append the index of each symbol."""
        index = pc.index_in(column, value_set=self._symbols)
        unknown = pc.and_(index.is_null(), column.is_valid())
        if pc.any(unknown, min_count=0).as_py():
            value = column.filter(unknown)[0].as_py()
            refuse(f"'{value}' is no symbol of enum '{self._name}'")
        number = index.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
        out.signed(number, valid)


class DecimalWriter(MaskedWriter):
    """Big-endian two's complement: in all bytes of a fixed, or in the fewest bytes."""

    def __init__(self, dtype: pa.DataType, size: int | None) -> None:
        self._width = dtype.byte_width
        self._size = size  # None: bytes

    def write(self, column: pa.Array, out: Assembly, valid: Flags | None = None) -> None:
        """Append the numbers, with their length where it is not fixed."""
        rows = _matrix(column, self._width)
        if valid is not None:
            rows = rows * valid[:, None]
        size = _fewest_bytes(rows)
        if self._size is None:
            self._put_shortest(rows, size, out, valid)
        else:
            if len(size) and int(size.max()) > self._size:
                refuse(f"a decimal needs {int(size.max())} bytes, its fixed has {self._size}")
            _put_rows(self._widened(rows, self._size), out, valid)

    def _widened(self, rows: npt.NDArray[np.uint8], size: int) -> npt.NDArray[np.uint8]:
        """The rows in `size` bytes, big-endian."""
        extra = size - self._width
        if extra > 0:
            sign = np.where(rows[:, -1:] >= 0x80, 0xFF, 0).astype(np.uint8)
            rows = np.concatenate([rows, np.repeat(sign, extra, axis=1)], axis=1)
        return rows[:, :size][:, ::-1]

    def _put_shortest(
        self,
        rows: npt.NDArray[np.uint8],
        size: npt.NDArray[np.int64],
        out: Assembly,
        valid: Flags | None,
    ) -> None:
        out.varint(size.view(np.uint64) << np.uint64(1), valid)
        width = self._width
        big = np.zeros(len(rows) * width + width, np.uint8)
        big[: len(rows) * width] = rows[:, ::-1].ravel()
        windows = np.ndarray((len(rows) * width + 1,), f"V{width}", buffer=big.data, strides=(1,))
        begin = np.arange(1, len(rows) + 1) * width - size
        left = windows[begin].view(np.uint8).reshape(len(rows), width)
        out.rows(left, size if valid is None else size * valid)


def _fewest_bytes(rows: npt.NDArray[np.uint8]) -> npt.NDArray[np.int64]:
    """The bytes that a little-endian two's complement number needs, at least one."""
    width = rows.shape[1]
    sign = np.where(rows[:, -1:] >= 0x80, 0xFF, 0).astype(np.uint8)
    differs = rows[:, ::-1] != sign
    leading = np.where(differs.any(axis=1), differs.argmax(axis=1), width)
    size: npt.NDArray[np.int64] = np.maximum(width - leading, 1).astype(np.int64)
    # The highest byte that is kept must carry the sign bit, or one more is needed.
    top = rows[np.arange(len(rows)), size - 1]
    size += (top ^ sign[:, 0]) >= 0x80
    return size
