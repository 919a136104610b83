"""Log files by a second, plain reader: what each byte of a file belongs to.

Written from the format alone, slowly and without sharing code with the product: where a block
begins and ends, which regions are corrupt, and in which file reading must stop with an error.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["ModelBlock", "ModelFile", "model_log_file"]

_MAGIC = b"#HUDI#"
_TYPES = 7
_CORRUPT = 2
_HEADERS = 10


@dataclass(frozen=True, slots=True)
class ModelBlock:
    """One region of the file; `content` is None where it is corrupt."""

    offset: int
    end: int
    type: int
    headers: dict[int, bytes]
    content: bytes | None


@dataclass(frozen=True, slots=True)
class ModelFile:
    """All regions before the first illegal one; `illegal` says what is wrong with that."""

    blocks: list[ModelBlock]
    illegal: str | None


def model_log_file(data: bytes) -> ModelFile:
    """Read a whole file."""
    blocks: list[ModelBlock] = []
    at = 0
    if len(data) >= 6 and data[:6] != _MAGIC:
        return ModelFile([], "no magic at the beginning")
    while len(data) - at >= 6:
        end = _sound_end(data, at)
        if end is None:
            found = data.find(_MAGIC, at + 6)
            end = found if found >= 0 else len(data)
            if blocks and blocks[-1].content is None:
                at = blocks.pop().offset
            blocks.append(ModelBlock(at, end, _CORRUPT, {}, None))
        else:
            try:
                blocks.append(_inside(data, at, end))
            except ValueError as illegal:
                return ModelFile(blocks, str(illegal))
        at = end
    return ModelFile(blocks, None)


def _int(data: bytes, at: int, width: int) -> int:
    return int.from_bytes(data[at : at + width], "big", signed=True)


def _sound_end(data: bytes, at: int) -> int | None:
    """A frame is sound if it fits, its two sizes agree, and a block or the end follows it."""
    if at + 14 > len(data):
        return None
    size = _int(data, at + 6, 8)
    end = at + 14 + size
    if size < 32 or end > len(data) or _int(data, end - 8, 8) != size + 6:
        return None
    follows = data[end : end + 6]
    return end if len(follows) < 6 or follows == _MAGIC else None


def _inside(data: bytes, at: int, end: int) -> ModelBlock:
    version, kind, count = (_int(data, at + 14 + 4 * i, 4) for i in range(3))
    if version != 1:
        raise ValueError("version")
    if not 0 <= kind < _TYPES or kind == _CORRUPT:
        raise ValueError("type")
    trailer = end - 8
    headers, cursor = _map(data, at + 26, count, trailer)
    if cursor + 8 > trailer:
        raise ValueError("no content length")
    length = _int(data, cursor, 8)
    start = cursor + 8
    if length < 0 or start + length + 4 > trailer:
        raise ValueError("content length")
    footers = _int(data, start + length, 4)
    _, cursor = _map(data, start + length + 4, footers, trailer)
    if cursor != trailer:
        raise ValueError("bytes left over")
    return ModelBlock(at, end, kind, headers, data[start : start + length])


def _map(data: bytes, cursor: int, count: int, limit: int) -> tuple[dict[int, bytes], int]:
    found: dict[int, bytes] = {}
    if count < 0:
        raise ValueError("negative count")
    for _ in range(count):
        if cursor + 8 > limit:
            raise ValueError("header beyond the block")
        key, length = _int(data, cursor, 4), _int(data, cursor + 4, 4)
        cursor += 8
        if not 0 <= key < _HEADERS or length < 0 or cursor + length > limit:
            raise ValueError("header")
        found[key] = data[cursor : cursor + length]
        cursor += length
        found[key].decode()  # UnicodeDecodeError is a ValueError
    return found, cursor
