"""Cursors into many records at once: the lanes that a column-lockstep decoder moves.

`Chunk` is a stretch of the payload that may be read `PADDING` bytes past the last frame. `Lanes`
hold one cursor per record (or per array item), the end of its frame and the record it belongs to.
Every method reads for all lanes and moves all cursors; `active` restricts the moving and the
checking to some lanes while the reading stays unconditional, because garbage is cheaper than a
selection.

After every method each cursor is within its frame, or a `CorruptFileError` named the first bad
record. Nothing is allocated beyond a few vectors of the number of lanes and the bytes gathered.
"""

from __future__ import annotations

from typing import Any, Final, NoReturn, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakewright.errors import CorruptFileError

__all__ = [
    "EMPTY_ITEMS_PER_BYTE",
    "PADDING",
    "Bytes",
    "Chunk",
    "Flags",
    "Lanes",
    "Positions",
    "Words",
]

Bytes: TypeAlias = npt.NDArray[np.uint8]
Flags: TypeAlias = npt.NDArray[np.bool_]
Positions: TypeAlias = npt.NDArray[np.int64]
Words: TypeAlias = npt.NDArray[np.uint64]

PADDING: Final = 16
"""Bytes behind the last frame that a window may touch."""
EMPTY_ITEMS_PER_BYTE: Final = 16
"""Array items without bytes (nulls, empty records) per payload byte: nothing else bounds them."""
NULL_BYTES_MIN: Final = 4 << 20
NULL_BYTES_PER_BYTE: Final = 64
"""Bytes that nulls of wide fixed types may take in columns: a null is one byte in the payload."""

_U = np.uint64
_ONE: Final = _U(1)
_STOPS: Final = _U(0x8080808080808080)
_SEVENS: Final = _U(0x7F7F7F7F7F7F7F7F)
# Three folds pack eight 7-bit groups into 56 bits: pairs, pairs of pairs, halves.
_FOLDS: Final = (
    (_U(0x007F007F007F007F), _U(1), _U(0x3F803F803F803F80)),
    (_U(0x00003FFF00003FFF), _U(2), _U(0x0FFFC0000FFFC000)),
    (_U(0x000000000FFFFFFF), _U(4), _U(0x00FFFFFFF0000000)),
)


class Chunk:
    """A padded stretch of a payload, and where it came from."""

    __slots__ = (
        "_raw",
        "arrow",
        "base",
        "column",
        "data",
        "empty_items",
        "first",
        "null_bytes",
        "path",
    )

    def __init__(self, data: Bytes, *, base: int | Positions, first: int, path: str) -> None:
        self.data = data
        self.arrow = pa.py_buffer(data)
        self._raw: bytes | None = None
        self.base = base  # of all or each record: what leads from data to the payload
        self.first = first  # number of the first record
        self.path = path
        self.column = ""  # for messages: the top-level field being decoded
        self.empty_items = 0  # how many more are allowed, see EMPTY_ITEMS_PER_BYTE
        self.null_bytes = NULL_BYTES_MIN + NULL_BYTES_PER_BYTE * len(data)

    @property
    def raw(self) -> bytes:
        """The same bytes for loops in Python, which read `bytes` fastest; copied once."""
        if self._raw is None:
            self._raw = self.data.tobytes()
        return self._raw

    def windows(self, width: int) -> npt.NDArray[np.void]:
        """Every stretch of `width` bytes as one element: overlapping, unaligned, without a copy."""
        size = max(len(self.data) - width + 1, 0)
        return np.ndarray((size,), dtype=f"V{width}", buffer=self.data.data, strides=(1,))

    def fail(self, record: int, offset: int, what: str) -> NoReturn:
        """Report the record (counted within this chunk) whose bytes do not follow the schema."""
        base = self.base if isinstance(self.base, int) else int(self.base[record])
        column = f" in column '{self.column}'" if self.column else ""
        raise CorruptFileError(
            f"Avro record {self.first + record} cannot be decoded: {what}{column}.",
            hint="The bytes are damaged, or were written with another schema than the one given; "
            "compare the file with another copy of it.",
            context={
                "path": self.path,
                "record": self.first + record,
                "offset": base + offset,
            },
        )


class Lanes:
    """One cursor per lane; see the module."""

    __slots__ = ("chunk", "end", "pos", "rows")

    def __init__(
        self, chunk: Chunk, pos: Positions, end: Positions, rows: Positions | None = None
    ) -> None:
        self.chunk = chunk
        self.pos = pos
        self.end = end
        self.rows = rows  # the record of each lane; None: lane i is record i

    def __len__(self) -> int:
        return len(self.pos)

    def select(self, index: Positions) -> Lanes:
        """Some of the lanes, to be moved on their own; see `merge`."""
        rows = index if self.rows is None else self.rows[index]
        return Lanes(self.chunk, self.pos[index], self.end[index], rows)

    def front(self, count: int) -> Lanes:
        """The first `count` lanes."""
        rows = None if self.rows is None else self.rows[:count]
        return Lanes(self.chunk, self.pos[:count], self.end[:count], rows)

    def merge(self, index: Positions, moved: Lanes) -> None:
        """Take over the cursors of lanes that were selected and moved."""
        self.pos[index] = moved.pos

    def spread(self, width: int) -> None:
        """Before a column of fixed `width` gets a place for every lane, also for those without."""
        self.chunk.null_bytes -= width * len(self)
        if self.chunk.null_bytes < 0:
            self.fail_lane(0, int(self.pos[0]), f"too many nulls of types with {width} bytes")

    def fail(self, bad: Flags, what: str) -> None:
        """Report the first lane of `bad`."""
        lane = int(np.argmax(bad))
        self.fail_lane(lane, int(self.pos[lane]), what)

    def fail_lane(self, lane: int, offset: int, what: str) -> NoReturn:
        """Report one lane."""
        record = lane if self.rows is None else int(self.rows[lane])
        self.chunk.fail(record, offset, what)

    def check(self) -> None:
        """Every cursor is within its frame."""
        over = self.pos > self.end
        if over.any():
            self.fail(over, "a value ends behind the end of the record")

    def move(self, size: int | Positions, active: Flags | None) -> None:
        """Advance by `size` bytes, which must not overflow an int64."""
        if active is None:
            self.pos = self.pos + size
        else:
            self.pos = self.pos + size * active
        self.check()

    def byte(self, active: Flags | None) -> Bytes:
        """One byte each."""
        value: Bytes = self.chunk.data.take(self.pos, mode="clip")
        self.move(1, active)
        return value

    def window(self, width: int) -> npt.NDArray[np.void]:
        """`width` bytes each, at most `PADDING` behind the frame; cursors stay."""
        picked: npt.NDArray[np.void] = self.chunk.windows(width)[self.pos]
        return picked

    def fixed(self, width: int, dtype: str, active: Flags | None) -> npt.NDArray[Any]:
        """`width` bytes each as numbers of that width."""
        value = self.window(width).view(dtype)
        self.move(width, active)
        return value

    def unsigned(self, active: Flags | None) -> npt.NDArray[Any]:
        """A varint each, as uint8 when all are short, else as uint64."""
        first = self.chunk.data.take(self.pos, mode="clip")
        long = first >= 0x80
        if not (long.any() if active is None else (long & active).any()):
            self.move(1, active)
            return first
        value, size = self._long_varint(active)
        self.move(size, active)
        return value

    def _long_varint(self, active: Flags | None) -> tuple[Words, Positions]:
        window = self.window(8).view(np.uint64)
        stop = ~window & _STOPS
        unfinished = stop == 0
        mask = stop - _ONE  # with stop: all bits up to the lowest stop bit; all 64 without one
        mask ^= stop
        size = (np.bitwise_count(mask) >> 3).astype(np.int64)
        window &= mask
        window &= _SEVENS
        for keep, shift, fold in _FOLDS[: 2 if int(size.max()) <= 4 else 3]:
            high = window >> shift
            high &= fold
            window &= keep
            window |= high
        if active is not None:
            unfinished &= active
        if unfinished.any():
            self._finish_varint(np.flatnonzero(unfinished), window, size)
        return window, size

    def _finish_varint(self, index: Positions, value: Words, size: Positions) -> None:
        """Bytes nine and ten of the varints that are longer than a window."""
        data, pos = self.chunk.data, self.pos[index]
        ninth = data.take(pos + 8, mode="clip")
        more = ninth >= 0x80
        tenth = data.take(pos + 9, mode="clip") * more
        if (tenth > 1).any():
            bad = np.zeros(len(self.pos), np.bool_)
            bad[index[tenth > 1]] = True
            self.fail(bad, "a number has more than 64 bits")
        value[index] |= ((ninth & 0x7F).astype(np.uint64) << _U(56)) | (
            tenth.astype(np.uint64) << _U(63)
        )
        size[index] = 9 + more

    def varint(self, active: Flags | None) -> npt.NDArray[np.signedinteger[Any]]:
        """A signed number each, as int8 when all are short, else as int64."""
        value = self.unsigned(active)
        if value.dtype == np.uint8:
            return (value >> 1).view(np.int8) ^ -(value & 1).view(np.int8)
        sign = (value & _ONE).view(np.int64)
        np.negative(sign, out=sign)
        value >>= _ONE
        signed = value.view(np.int64)
        signed ^= sign
        return signed

    def length(self, active: Flags | None) -> Positions:
        """A byte length each, within the frame; 0 where not active."""
        raw = self.unsigned(active)
        odd = (raw & 1).astype(np.bool_)
        if active is not None:
            odd &= active
        if odd.any():
            self.fail(odd, "a length is negative")
        size = (raw >> 1).astype(np.int64)
        if active is not None:
            size *= active
        over = size > self.end - self.pos
        if over.any():
            self.fail(over, "a length reaches behind the end of the record")
            size[over] = 0  # for lanes that only probe, see chains
        return size

    def gather(self, size: Positions, dtype: pa.DataType, validity: pa.Buffer | None) -> pa.Array:
        """`size` bytes each as a string or binary array; the sizes were checked before."""
        count = len(size)
        starts = self.pos
        self.pos = starts + size
        width = int(size[0]) if count else 0
        if 0 < width <= 64 and (size == width).all():
            values = pa.py_buffer(self.chunk.windows(width)[starts])
            offsets = np.arange(0, (count + 1) * width, width, dtype=np.int32)
        else:
            # A view of the payload whose odd elements are the wanted bytes.
            bounds = np.empty(2 * count + 2, np.int64)
            bounds[0], bounds[-1] = 0, len(self.chunk.data)
            bounds[1:-1:2] = starts
            bounds[2:-1:2] = self.pos
            frames = pa.Array.from_buffers(
                pa.large_binary(), 2 * count + 1, [None, pa.py_buffer(bounds), self.chunk.arrow]
            )
            picked = pc.take(frames, _odd(count), boundscheck=False)
            _, wide, values = picked.buffers()
            offsets = np.frombuffer(wide, np.int64, count + 1).astype(np.int32)
        return pa.Array.from_buffers(dtype, count, [validity, pa.py_buffer(offsets), values])


def _odd(count: int) -> pa.Array:
    if count <= len(_ODD):
        return _ODD.slice(0, count)
    return pa.array(np.arange(1, 2 * count, 2, dtype=np.int64))


_ODD: Final = pa.array(np.arange(1, 1 << 17, 2, dtype=np.int32))
