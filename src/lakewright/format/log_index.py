"""The blocks of a log file that is too large to be held: found by their heads and ends alone.

The answer is that of `read_blocks` without contents, for a file that is read in windows. Memory is
two windows, or the headers of one block where these are larger.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final

from lakewright.format.log_block import MAGIC, BlockType, LogBlock, parse_block, read_blocks

__all__ = ["ReadRange", "index_blocks"]

ReadRange = Callable[[int, int], bytes]
"""The bytes of a file from an offset on, so many of them."""

WINDOW_BYTES = 1 << 20
_PREFIX: Final = struct.Struct(">6sq")
_HEAD: Final = struct.Struct(">6sqiii")
_ENTRY: Final = struct.Struct(">ii")
_LONG: Final = struct.Struct(">q")
_BEHIND_CONTENT: Final = 12
"""Bytes behind the content of a block without footers: their number, and the size."""
_SIZE_MIN: Final = 32
"""What the size field of a block says at least."""


def index_blocks(read: ReadRange, size: int, *, path: str) -> list[LogBlock]:
    """Every block of a file of `size` bytes, in file order, without contents.

    Errors are those of `read_blocks`.
    """
    file = _Window(read, size)
    read_blocks(file.at(0, len(MAGIC)), path=path)  # it begins with a block, or that is the error
    blocks: list[LogBlock] = []
    position = 0
    # Bounded: every pass moves on by at least the length of the magic.
    while size - position >= len(MAGIC):
        end = _sound_end(file, position)
        if end is not None:
            blocks.append(_block(file, position, end, path))
        else:
            end = _next_magic(file, position + len(MAGIC))
            if blocks and blocks[-1].type is BlockType.CORRUPT:
                position = blocks.pop().offset
            block = LogBlock(path, position, end - position, BlockType.CORRUPT, {}, memoryview(b""))
            blocks.append(block.without_content())
        position = end
    return blocks


class _Window:
    """A file of which the stretches that were read last are held: a head, and an end."""

    def __init__(self, read: ReadRange, size: int) -> None:
        self._read = read
        self.size = size
        self._held: list[tuple[int, bytes]] = []

    def at(self, offset: int, length: int) -> bytes:
        """So many bytes, fewer only at the end of the file."""
        length = max(0, min(length, self.size - offset))
        for begin, data in self._held:
            if begin <= offset and offset + length <= begin + len(data):
                return data[offset - begin : offset - begin + length]
        data = self._read(offset, max(length, WINDOW_BYTES))
        self._held = [*self._held[-1:], (offset, data)]
        return data[:length]


def _sound_end(file: _Window, position: int) -> int | None:
    """Where the block that begins here ends, or None if its frame does not hold."""
    prefix = file.at(position, _PREFIX.size)
    if len(prefix) < _PREFIX.size:
        return None
    size: int = _PREFIX.unpack(prefix)[1]
    end = position + _PREFIX.size + size
    if size < _SIZE_MIN or end > file.size:
        return None
    tail = file.at(end - _BEHIND_CONTENT, _BEHIND_CONTENT + len(MAGIC))
    following = tail[_BEHIND_CONTENT:]
    if len(following) == len(MAGIC) and following != MAGIC:
        return None
    (trailer,) = _LONG.unpack_from(tail, _BEHIND_CONTENT - _LONG.size)
    return end if trailer == size + len(MAGIC) else None


def _block(file: _Window, position: int, end: int, path: str) -> LogBlock:
    """The block without its content, parsed from what is before and behind that."""
    length = end - position
    begin = _content_begin(file, position, length)
    if begin is not None:
        (content,) = _LONG.unpack(file.at(position + begin, _LONG.size))
        behind = begin + _LONG.size + content
        if content >= 0 and behind <= length:
            head, rest = file.at(position, begin), file.at(position + behind, length - behind)
            data = head + _LONG.pack(0) + rest
            block = parse_block(data, path=path, file_offset=position)
            return block._replace(length=length).without_content()
    # Something in it contradicts its frame: the whole block says what.
    return parse_block(file.at(position, length), path=path, file_offset=position)


def _content_begin(file: _Window, position: int, length: int) -> int | None:
    """Where the length of the content is, counted from the block; None if headers do not end."""
    *_, count = _HEAD.unpack(file.at(position, _HEAD.size))
    cursor = _HEAD.size
    if not 0 <= count <= length // _ENTRY.size:
        return None
    for _ in range(count):
        if cursor + _ENTRY.size > length:
            return None
        _, size = _ENTRY.unpack(file.at(position + cursor, _ENTRY.size))
        cursor += _ENTRY.size + size
        if size < 0 or cursor > length:
            return None
    return cursor if cursor + _LONG.size <= length else None


def _next_magic(file: _Window, position: int) -> int:
    """Where the next block begins, or the end of the file."""
    while position < file.size:
        window = file.at(position, WINDOW_BYTES)
        found = window.find(MAGIC)
        if found >= 0:
            return position + found
        position += max(1, len(window) - len(MAGIC) + 1)
    return file.size
