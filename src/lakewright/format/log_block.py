"""Log files: a concatenation of self-framed blocks, read from one buffer without copying.

`read_blocks` finds every block of a file. A region that is not a whole block (a crash while
appending, damaged sizes) becomes one block of type CORRUPT and reading goes on at the next magic,
as every Hudi reader does. What fails inside a block whose frame is sound (an unknown type or
header, lengths that do not add up) is an error, because skipping it would lose rows silently.
`encode_block` is the inverse. Contents are in `log_content`, validity in `log_scan`.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from enum import IntEnum
from functools import lru_cache
from types import MappingProxyType
from typing import Final, NamedTuple

import pyarrow as pa

from lakewright.errors import CorruptFileError, FormatError, UnsupportedTableError

MAGIC: Final = b"#HUDI#"
LOG_FORMAT_VERSION: Final = 1
BLOCK_BYTES_MAX: Final = 2**31 - 1
"""Java readers cast sizes to 32 bits."""
ROLLBACK_COMMAND: Final = "0"

_MAGIC_LEN = len(MAGIC)
_PREFIX = struct.Struct(">6sq")
_FIXED_FIELDS = struct.Struct(">iii")
_HEADER = struct.Struct(">ii")
_INT = struct.Struct(">i")
_LONG = struct.Struct(">q")
_TRAILER_AND_NEXT = struct.Struct(">q6s")
_BEHIND_CONTENT = 12
"""Bytes of a block behind its content: the number of footer entries and the size."""
_SIZE_MIN = 32
"""Size field of a block with no headers and no content."""
_FIND_MAGIC = re.compile(re.escape(MAGIC))
_NO_CONTENT = memoryview(b"")


class BlockType(IntEnum):
    """Kinds of blocks, by their ordinal on disk."""

    COMMAND = 0
    DELETE = 1
    CORRUPT = 2
    """Made by the reader, never on disk."""
    AVRO_DATA = 3
    HFILE_DATA = 4
    PARQUET_DATA = 5
    CDC_DATA = 6

    @property
    def is_data(self) -> bool:
        """Whether the block holds rows."""
        return self >= BlockType.AVRO_DATA


class HeaderKey(IntEnum):
    """Header entries, by their ordinal on disk."""

    INSTANT_TIME = 0
    TARGET_INSTANT_TIME = 1
    SCHEMA = 2
    COMMAND_BLOCK_TYPE = 3
    COMPACTED_BLOCK_TIMES = 4
    RECORD_POSITIONS = 5
    BLOCK_IDENTIFIER = 6
    IS_PARTIAL = 7
    BASE_FILE_INSTANT_TIME_OF_RECORD_POSITIONS = 8
    VERSION = 9


_BLOCK_TYPES = tuple(BlockType)
_HEADER_KEYS = tuple(HeaderKey)
_NO_HEADERS: Mapping[HeaderKey, str] = MappingProxyType({})


class LogBlock(NamedTuple):
    """One block of a log file; `content` is a view into the file's buffer.

    `offset` and `length` locate the whole block in the file `path`, magic and trailer included.
    """

    path: str
    offset: int
    length: int
    type: BlockType
    headers: Mapping[HeaderKey, str]
    content: memoryview

    @property
    def has_content(self) -> bool:
        """False for an index entry made by `without_content`."""
        return self.content is not _NO_CONTENT

    def without_content(self) -> LogBlock:
        """An index entry that no longer holds the file's buffer.

        The block is read again with `read_blocks(..., file_offset=block.offset)` on its own bytes.
        """
        return self._replace(content=_NO_CONTENT)

    @property
    def content_offset(self) -> int:
        """Where the content begins in the file; the footer of every known writer is empty."""
        return self.offset + self.length - _BEHIND_CONTENT - len(self.content)

    @property
    def instant(self) -> str | None:
        """Requested time of the instant that wrote the block."""
        return self.headers.get(HeaderKey.INSTANT_TIME)

    @property
    def target_instant(self) -> str | None:
        """The instant that a rollback command cancels."""
        return self.headers.get(HeaderKey.TARGET_INSTANT_TIME)

    @property
    def compacted_times(self) -> tuple[str, ...]:
        """Instants whose blocks this block replaces (log compaction); empty for other blocks."""
        text = self.headers.get(HeaderKey.COMPACTED_BLOCK_TIMES)
        return tuple(t for t in (text or "").split(",") if t)

    @property
    def is_partial(self) -> bool:
        """Whether the rows carry only the columns of the block's own schema."""
        return self.headers.get(HeaderKey.IS_PARTIAL, "").lower() == "true"

    @property
    def schema(self) -> str:
        """Avro schema of the rows as JSON text. Raises `FormatError` if the block has none."""
        text = self.headers.get(HeaderKey.SCHEMA)
        if text is None:
            raise FormatError(
                f"A {self.type.name} block has no schema header.",
                hint="The writer left out a header that every Hudi reader needs; rewrite the file "
                "with the engine that wrote it.",
                context={"path": self.path, "offset": self.offset},
            )
        return text


def read_blocks(
    data: bytes | memoryview | pa.Buffer, *, path: str, file_offset: int = 0
) -> list[LogBlock]:
    """Every block of one log file, in file order; contents stay views into `data`.

    `data` may also be a part of the file that begins with the block at `file_offset`.
    Raises `CorruptFileError` if the bytes do not begin with a block, or if the inside of a block
    contradicts its own frame; `FormatError` for unknown block types and headers.
    """
    return _BlockReader(data, path, file_offset).read()


def parse_block(data: bytes, *, path: str, file_offset: int) -> LogBlock:
    """The one block that is all of `data`, whose frame was found to be sound."""
    return _BlockReader(data, path, file_offset).block(0, len(data))


def encode_block(
    block_type: BlockType, headers: Mapping[HeaderKey, str], content: bytes | memoryview
) -> bytes:
    """The bytes of one block, headers in the order of the mapping. CORRUPT is never written."""
    parts: list[bytes | memoryview] = [
        b"",
        _FIXED_FIELDS.pack(LOG_FORMAT_VERSION, block_type, len(headers)),
    ]
    for key, text in headers.items():
        raw = text.encode()
        parts += (_HEADER.pack(key, len(raw)), raw)
    parts += (_LONG.pack(len(content)), content, _INT.pack(0))
    size = sum(map(len, parts)) + _LONG.size
    if size > BLOCK_BYTES_MAX:
        raise FormatError(
            f"A log block of {size} bytes is larger than Hudi can read.",
            hint="Write several blocks below 2 GiB.",
            context={"bytes": size},
        )
    parts[0] = _PREFIX.pack(MAGIC, size)
    parts.append(_LONG.pack(size + _MAGIC_LEN))
    return b"".join(parts)


def rollback_block(*, instant: str, target: str) -> bytes:
    """The command block by which the rollback `instant` cancels the blocks of `target`."""
    headers = {
        HeaderKey.INSTANT_TIME: instant,
        HeaderKey.COMMAND_BLOCK_TYPE: ROLLBACK_COMMAND,
        HeaderKey.TARGET_INSTANT_TIME: target,
    }
    return encode_block(BlockType.COMMAND, headers, b"")


class _BlockReader:
    """Reads one buffer; `source` is sliced for small fields, `view` for contents."""

    def __init__(self, data: bytes | memoryview | pa.Buffer, path: str, file_offset: int) -> None:
        self.view = memoryview(data).cast("B")
        self.source = data if isinstance(data, bytes) else self.view
        self.path = path
        self.file_offset = file_offset
        self.blocks: list[LogBlock] = []
        self.schema_raw = b""
        self.schema_text = ""

    def read(self) -> list[LogBlock]:
        size = len(self.view)
        if size >= _MAGIC_LEN and bytes(self.source[:_MAGIC_LEN]) != MAGIC:
            raise CorruptFileError(
                "The file does not begin with a log block.",
                hint="The file was damaged or is not a log file; restore it from a copy.",
                context={"path": self.path, "offset": self.file_offset},
            )
        position = 0
        # Bounded: every pass moves on by at least the length of the magic.
        while size - position >= _MAGIC_LEN:
            end = self._end_of_sound_block(position)
            if end is not None:
                self.blocks.append(self.block(position, end))
            else:
                found = _FIND_MAGIC.search(self.source, position + _MAGIC_LEN)
                end = found.start() if found else size
                self._add_corrupt(position, end)
            position = end
        return self.blocks

    def _end_of_sound_block(self, position: int) -> int | None:
        """Where the block that begins here ends, or None if its frame does not hold."""
        view = self.view
        left = len(view) - position
        if left < _PREFIX.size:
            return None
        size: int = _PREFIX.unpack_from(view, position)[1]
        left -= size + _PREFIX.size
        if size < _SIZE_MIN or left < 0:
            return None
        end = position + _PREFIX.size + size
        if left >= _MAGIC_LEN:
            trailer, following = _TRAILER_AND_NEXT.unpack_from(view, end - _LONG.size)
        else:
            (trailer,) = _LONG.unpack_from(view, end - _LONG.size)
            following = MAGIC
        return end if trailer == size + _MAGIC_LEN and following == MAGIC else None

    def _add_corrupt(self, position: int, end: int) -> None:
        """Touching regions become one, so that garbage cannot make many objects."""
        if self.blocks and self.blocks[-1].type is BlockType.CORRUPT:
            position = self.blocks.pop().offset - self.file_offset
        self.blocks.append(
            LogBlock(
                self.path,
                self.file_offset + position,
                end - position,
                BlockType.CORRUPT,
                _NO_HEADERS,
                self.view[position:end],
            )
        )

    def block(self, position: int, end: int) -> LogBlock:
        """The block between two positions."""
        version, ordinal, header_count = _FIXED_FIELDS.unpack_from(
            self.view, position + _PREFIX.size
        )
        if version != LOG_FORMAT_VERSION:
            raise UnsupportedTableError(
                f"A log block has format version {version}; only {LOG_FORMAT_VERSION} is read.",
                hint="Compact the table with the Hudi release that wrote it, then read it.",
                context={"path": self.path, "offset": self.file_offset + position},
            )
        if not 0 <= ordinal < len(_BLOCK_TYPES) or ordinal == BlockType.CORRUPT:
            raise self._unknown(f"type {ordinal}", position)
        trailer = end - _LONG.size
        try:
            headers, cursor = self._headers(
                position + _PREFIX.size + _FIXED_FIELDS.size, header_count, trailer
            )
            content, cursor = self._content(cursor, trailer)
            (footer_count,) = _INT.unpack_from(self.view, cursor)
            _, cursor = self._headers(cursor + _INT.size, footer_count, trailer)
            if cursor != trailer:
                raise ValueError(f"{trailer - cursor} bytes left over")
        except _UnknownHeaderError as unknown:
            raise self._unknown(f"header {unknown}", position) from None
        except (ValueError, struct.error) as problem:
            raise CorruptFileError(
                f"The inside of a log block contradicts its size: {problem}.",
                hint="The file is damaged; restore it from a copy.",
                context={"path": self.path, "offset": self.file_offset + position},
            ) from problem
        offset = self.file_offset + position
        return LogBlock(self.path, offset, end - position, _BLOCK_TYPES[ordinal], headers, content)

    def _headers(self, cursor: int, count: int, end: int) -> tuple[Mapping[HeaderKey, str], int]:
        """A map of `count` entries that must end before `end`; and where it ends."""
        if not count:
            return _NO_HEADERS, cursor
        if not 0 <= count <= (end - cursor) // _HEADER.size:
            raise ValueError(f"{count} header entries")
        headers: dict[HeaderKey, str] = {}
        for _ in range(count):
            ordinal, length = _HEADER.unpack_from(self.view, cursor)
            cursor += _HEADER.size
            if not 0 <= length <= end - cursor:
                raise ValueError(f"header of {length} bytes")
            if not 0 <= ordinal < len(_HEADER_KEYS):
                raise _UnknownHeaderError(ordinal)
            raw = bytes(self.source[cursor : cursor + length])
            cursor += length
            key = _HEADER_KEYS[ordinal]
            headers[key] = self._schema(raw) if key is HeaderKey.SCHEMA else raw.decode()
        return headers, cursor

    def _schema(self, raw: bytes) -> str:
        """Equal schemas of neighbouring blocks share one string, whatever their number."""
        if raw != self.schema_raw:
            self.schema_text = _shared_text(raw)
            self.schema_raw = raw
        return self.schema_text

    def _content(self, cursor: int, trailer: int) -> tuple[memoryview, int]:
        (length,) = _LONG.unpack_from(self.view, cursor)
        cursor += _LONG.size
        if not 0 <= length <= trailer - cursor - _INT.size:
            raise ValueError(f"content of {length} bytes")
        return self.view[cursor : cursor + length], cursor + length

    def _unknown(self, what: str, position: int) -> FormatError:
        return FormatError(
            f"A log block has the unknown {what}.",
            hint="A newer release wrote it; upgrade lakewright or compact with that release.",
            context={"path": self.path, "offset": self.file_offset + position},
        )


@lru_cache(maxsize=128)
def _shared_text(raw: bytes) -> str:
    return raw.decode()


class _UnknownHeaderError(Exception):
    """An ordinal beyond the known headers."""
