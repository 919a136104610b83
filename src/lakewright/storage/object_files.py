"""Objects of a store as Python files: one to read ranges of, one to write large objects into.

Guarantees: a reader sees one version, by the range requests it is given; an upload is collected up
to its limit and sent in parts beyond it, and nothing is visible before `publish`.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable
from typing import Any

from lakewright.errors import StorageError
from lakewright.storage.object_errors import CLIENT_ERRORS


class RangeReader(io.RawIOBase):
    """One version of an object as a file; Arrow asks for whole column chunks at once."""

    def __init__(self, fetch: Callable[[int, int], bytes], size: int) -> None:
        self._fetch = fetch
        self._size = size
        self._position = 0

    def readable(self) -> bool:
        """Yes."""
        return True

    def seekable(self) -> bool:
        """Yes."""
        return True

    def tell(self) -> int:
        """Where the next read begins."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Choose where the next read begins."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = base + offset
        return self._position

    def read(self, size: int | None = -1) -> bytes:
        """Up to `size` bytes, all that are left by default."""
        start = self._position
        end = self._size if size is None or size < 0 else min(start + size, self._size)
        if end <= start:
            return b""
        self._position = end
        return self._fetch(start, end)


class Upload(io.RawIOBase):
    """A sink that collects small objects and sends large ones in parts while they are written."""

    def __init__(
        self,
        limit_bytes: int,
        *,
        open_parts: Callable[[], Any],
        failure: Callable[[Exception], StorageError],
    ) -> None:
        self._limit_bytes = limit_bytes
        self._open_parts = open_parts
        self._failure = failure
        self._collected = bytearray()
        self._parts: Any = None
        self._position = 0

    @property
    def in_parts(self) -> bool:
        """Whether the object was too large to be collected."""
        return self._parts is not None

    def writable(self) -> bool:
        """Yes."""
        return True

    def tell(self) -> int:
        """Bytes written so far."""
        return self._position

    def write(self, data: Any) -> int:
        """Take `data`; beyond the limit it goes to the store at once."""
        size = len(data)
        self._position += size
        if self._parts is None and self._position > self._limit_bytes:
            self._parts = self._open_parts()
            self._send(self._collected)
            self._collected = bytearray()
        if self._parts is None:
            self._collected += data
        else:
            self._send(data)
        return size

    def collected(self) -> bytes:
        """What a small object consists of."""
        return bytes(self._collected)

    def publish(self) -> None:
        """Make an object sent in parts visible."""
        try:
            if self._parts is not None:
                self._parts.close()
        except CLIENT_ERRORS as error:
            raise self._failure(error) from None

    def abandon(self) -> None:
        """Drop an object sent in parts; what cannot be dropped is never visible."""
        parts, self._parts = self._parts, None
        if parts is not None:
            with contextlib.suppress(*CLIENT_ERRORS):
                parts.__exit__(RuntimeError, RuntimeError("abandoned"), None)

    def _send(self, data: Any) -> None:
        try:
            self._parts.write(bytes(data))
        except CLIENT_ERRORS as error:
            raise self._failure(error) from None
