"""A part of the slow tests: continuous integration runs another third of them with every commit."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Self

import pytest

__all__ = ["Part"]


@dataclass(frozen=True, slots=True)
class Part:
    """The `number`-th of so many parts, from 0 on; every test is in exactly one."""

    number: int
    parts: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """`1/3`: the second of three."""
        number, slash, parts = text.partition("/")
        if not (slash and number.isdigit() and parts.isdigit() and int(number) < int(parts)):
            raise pytest.UsageError(f"--part {text}: say for example 0/3, 1/3 or 2/3")
        return cls(int(number), int(parts))

    def has(self, nodeid: str) -> bool:
        """Whether a test belongs to it."""
        return zlib.crc32(nodeid.encode()) % self.parts == self.number
