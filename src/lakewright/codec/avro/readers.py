"""Readers of the types that have one value per lane: numbers, text, bytes, enums, decimals.

A reader turns the bytes at all cursors into one Arrow array and moves the cursors behind them.
Where `active` is given, the other lanes are null and their cursors stay. Values outside the type's
range, text that is not UTF-8 and decimals wider than declared are `CorruptFileError`s.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Final

import numpy as np
import pyarrow as pa

from lakewright.codec.avro.cursor import Bytes, Flags, Lanes, Positions

__all__ = [
    "BooleanReader",
    "DecimalReader",
    "EnumReader",
    "FixedReader",
    "FloatReader",
    "MaskedReader",
    "NullReader",
    "NumberReader",
    "Reader",
    "TextReader",
    "bitmap",
]


_UNITS_PER_DAY: Final = {"ms": 86_400_000, "us": 86_400_000_000}


class Reader(ABC):
    """What decodes one Avro type."""

    type: pa.DataType

    @abstractmethod
    def read(self, lanes: Lanes) -> pa.Array:
        """The values at the cursors."""

    @abstractmethod
    def skip(self, lanes: Lanes) -> None:
        """Move the cursors only."""


class MaskedReader(Reader):
    """A reader that can leave lanes out by itself; for others the lanes are selected before."""

    @abstractmethod
    def read(self, lanes: Lanes, active: Flags | None = None) -> pa.Array:
        """The values at the active cursors, null elsewhere."""

    @abstractmethod
    def skip(self, lanes: Lanes, active: Flags | None = None) -> None:
        """Move the active cursors only."""


def bitmap(active: Flags | None) -> pa.Buffer | None:
    """The validity bitmap of an Arrow array."""
    return None if active is None else pa.py_buffer(np.packbits(active, bitorder="little"))


def _bad(flags: Flags, active: Flags | None) -> Flags | None:
    if active is not None:
        flags &= active
    return flags if flags.any() else None


class NullReader(Reader):
    """Nothing at all."""

    type = pa.null()

    def read(self, lanes: Lanes) -> pa.Array:
        """As many nulls as lanes."""
        return pa.nulls(len(lanes))

    def skip(self, lanes: Lanes) -> None:
        """No byte to move over."""
        lanes.check()


class BooleanReader(MaskedReader):
    """One byte, 0 or 1."""

    type = pa.bool_()

    def read(self, lanes: Lanes, active: Flags | None = None) -> pa.Array:
        """Bits from bytes."""
        value = lanes.byte(active)
        bad = _bad(value > 1, active)
        if bad is not None:
            lanes.fail(bad, "a boolean is neither 0 nor 1")
        bits = np.packbits(value, bitorder="little")
        return pa.Array.from_buffers(self.type, len(value), [bitmap(active), pa.py_buffer(bits)])

    def skip(self, lanes: Lanes, active: Flags | None = None) -> None:
        """One byte."""
        lanes.move(1, active)


class NumberReader(MaskedReader):
    """int and long with their logical types: zig-zag varints."""

    def __init__(self, dtype: pa.DataType) -> None:
        self.type = dtype
        self._store = np.dtype(np.int32 if dtype.bit_width == 32 else np.int64)
        self._day = _UNITS_PER_DAY[dtype.unit] if pa.types.is_time(dtype) else None

    def read(self, lanes: Lanes, active: Flags | None = None) -> pa.Array:
        """Integers in the width of the type."""
        wide = lanes.varint(active)
        value = wide.astype(self._store, copy=False)
        if wide.itemsize > value.itemsize:
            bad = _bad(value != wide, active)
            if bad is not None:
                lanes.fail(bad, "an int has more than 32 bits")
        if self._day is not None:
            bad = _bad((value < 0) | (value >= self._day), active)
            if bad is not None:
                lanes.fail(bad, "a time of day is outside the day")
        return pa.Array.from_buffers(self.type, len(value), [bitmap(active), pa.py_buffer(value)])

    def skip(self, lanes: Lanes, active: Flags | None = None) -> None:
        """One varint, of any value."""
        lanes.unsigned(active)


class FloatReader(MaskedReader):
    """float and double: little-endian IEEE 754."""

    def __init__(self, dtype: pa.DataType) -> None:
        self.type = dtype
        self._width = dtype.bit_width // 8

    def read(self, lanes: Lanes, active: Flags | None = None) -> pa.Array:
        """The bytes as they are."""
        value = lanes.window(self._width)
        lanes.move(self._width, active)
        return pa.Array.from_buffers(self.type, len(value), [bitmap(active), pa.py_buffer(value)])

    def skip(self, lanes: Lanes, active: Flags | None = None) -> None:
        """Four or eight bytes."""
        lanes.move(self._width, active)


class TextReader(MaskedReader):
    """string and bytes: a length and as many bytes."""

    def __init__(self, dtype: pa.DataType) -> None:
        self.type = dtype

    def read(self, lanes: Lanes, active: Flags | None = None) -> pa.Array:
        """The bytes, copied together; text is checked to be UTF-8."""
        starts = lanes.pos
        value = lanes.gather(lanes.length(active), self.type, bitmap(active))
        if self.type == pa.string():
            self._check_utf8(value, lanes, starts)
        return value

    def _check_utf8(self, value: pa.Array, lanes: Lanes, starts: Positions) -> None:
        text = np.frombuffer(value.buffers()[2], np.uint8)
        if not text.size or text.max() < 0x80:
            return
        try:
            value.validate(full=True)
        except pa.ArrowInvalid:
            lanes.pos = starts
            lanes.fail(_not_utf8(value), "a string is not UTF-8")

    def skip(self, lanes: Lanes, active: Flags | None = None) -> None:
        """The length and its bytes."""
        lanes.move(lanes.length(active), active)


def _not_utf8(value: pa.Array) -> Flags:
    """Which values are not UTF-8; loops over the values of one chunk, on the way to an error."""
    bad = np.zeros(len(value), np.bool_)
    for lane, item in enumerate(value.cast(pa.binary()).to_pylist()):
        try:
            (item or b"").decode("utf-8")
        except UnicodeDecodeError:
            bad[lane] = True
            return bad
    return bad


class FixedReader(MaskedReader):
    """A fixed number of bytes."""

    def __init__(self, size: int) -> None:
        self.type = pa.binary(size)
        self._size = size

    def read(self, lanes: Lanes, active: Flags | None = None) -> pa.Array:
        """The bytes, copied together."""
        value = fixed_bytes(lanes, self._size, active)
        return pa.Array.from_buffers(self.type, len(lanes), [bitmap(active), pa.py_buffer(value)])

    def skip(self, lanes: Lanes, active: Flags | None = None) -> None:
        """As many bytes as the type has."""
        lanes.move(self._size, active)


def fixed_bytes(lanes: Lanes, size: int, active: Flags | None) -> Bytes:
    """`size` bytes each as the rows of a matrix; zeros where not active."""
    starts = lanes.pos
    lanes.move(size, active)
    rows = np.zeros((len(starts), size), np.uint8)
    if size and len(starts):
        index = slice(None) if active is None else np.flatnonzero(active)
        picked = lanes.chunk.windows(size)[starts[index]]
        rows[index] = picked.view(np.uint8).reshape(-1, size)
    return rows


class EnumReader(MaskedReader):
    """The index of a symbol, read as the symbol."""

    type = pa.string()

    def __init__(self, symbols: tuple[str, ...]) -> None:
        self._symbols = pa.array(symbols, pa.string())

    def read(self, lanes: Lanes, active: Flags | None = None) -> pa.Array:
        """Symbols from indexes."""
        index = lanes.varint(active)
        bad = _bad((index < 0) | (index >= len(self._symbols)), active)
        if bad is not None:
            lanes.fail(bad, "there is no enum symbol with that index")
        mask = None if active is None else ~active
        return self._symbols.take(pa.array(index, mask=mask))

    def skip(self, lanes: Lanes, active: Flags | None = None) -> None:
        """One varint, of any value."""
        lanes.unsigned(active)


class DecimalReader(MaskedReader):
    """Big-endian two's complement, in a fixed or in bytes."""

    def __init__(self, dtype: pa.DataType, size: int | None) -> None:
        self.type = dtype
        self._size = size  # None: bytes
        self._width = dtype.byte_width

    def read(self, lanes: Lanes, active: Flags | None = None) -> pa.Array:
        """Little-endian numbers of the width of the Arrow type."""
        out = np.zeros((len(lanes), self._width), np.uint8)
        starts = lanes.pos
        if self._size is None:
            sizes = lanes.length(active)
            begins = lanes.pos
            lanes.pos = begins + sizes
            # At most width + 1 rounds: longer values are cut to the width after a check.
            for size in np.unique(np.minimum(sizes, self._width)).tolist():
                index = np.flatnonzero(np.minimum(sizes, self._width) == size)
                self._place(out, index, begins[index] + sizes[index] - size, lanes, size)
            self._check_long(out, begins, sizes, lanes)
        else:
            lanes.move(self._size, active)
            size = min(self._size, self._width)
            index = np.arange(len(out)) if active is None else np.flatnonzero(active)
            self._place(out, index, starts[index] + self._size - size, lanes, size)
            if self._size > self._width:
                sizes = np.zeros(len(out), np.int64)
                sizes[index] = self._size
                self._check_long(out, starts, sizes, lanes)
        value = pa.Array.from_buffers(self.type, len(out), [bitmap(active), pa.py_buffer(out)])
        self._check_digits(value, lanes, starts)
        return value

    def _place(
        self, out: Bytes, index: Positions, starts: Positions, lanes: Lanes, size: int
    ) -> None:
        """Sign-extended little-endian copies of `size` bytes each."""
        if not size or not len(index):
            return
        big = lanes.chunk.windows(size)[starts].view(np.uint8).reshape(-1, size)
        rows = np.empty((len(index), self._width), np.uint8)
        rows[:, :size] = big[:, ::-1]
        rows[:, size:] = np.where(big[:, :1] >= 0x80, 0xFF, 0)
        out[index] = rows

    def _check_long(self, out: Bytes, begins: Positions, sizes: Positions, lanes: Lanes) -> None:
        """Bytes beyond the width may only repeat the sign; loops over such values only."""
        for lane in np.flatnonzero(sizes > self._width).tolist():
            sign = b"\xff" if out[lane, -1] >= 0x80 else b"\x00"
            begin, extra = int(begins[lane]), int(sizes[lane]) - self._width
            if lanes.chunk.raw[begin : begin + extra].strip(sign):
                lanes.fail(np.arange(len(out)) == lane, "a decimal has too many digits")

    def _check_digits(self, value: pa.Array, lanes: Lanes, starts: Positions) -> None:
        try:
            value.validate(full=True)
        except pa.ArrowInvalid:
            lanes.pos = starts
            lanes.fail(_too_long(value), "a decimal has more digits than its type")

    def skip(self, lanes: Lanes, active: Flags | None = None) -> None:
        """The bytes of the number."""
        size: int | Positions = self._size if self._size is not None else lanes.length(active)
        lanes.move(size, active)


def _too_long(value: pa.Array) -> Flags:
    """Which decimals exceed their precision; loops over one chunk, on the way to an error."""
    bad = np.zeros(len(value), np.bool_)
    for lane in range(len(value)):
        try:
            value.slice(lane, 1).validate(full=True)
        except pa.ArrowInvalid:
            bad[lane] = True
            return bad
    return bad
