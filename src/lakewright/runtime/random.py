"""Randomness as a parameter: identifiers, tokens and jitter.

Guarantees: `SystemRandom` is fit for names that must never collide between machines (it reads the
operating system's source, so that forked processes differ); `SeededRandom` gives the same values
for the same seed on every machine and Python version, and `fork` gives independent streams whose
values do not depend on the order in which other streams are used.
"""

from __future__ import annotations

import hashlib
import random
import threading
from typing import Protocol
from uuid import UUID


class Random(Protocol):
    """Where chance comes from."""

    def uuid(self) -> UUID:
        """A version 4 identifier."""
        ...

    def token_hex(self, size: int = 16) -> str:
        """`size` random bytes in hexadecimal."""
        ...

    def uniform(self, low: float, high: float) -> float:
        """A number between `low` and `high`."""
        ...

    def below(self, stop: int) -> int:
        """A whole number from 0 up to, not including, `stop`."""
        ...

    def fork(self, name: str) -> Random:
        """An independent stream for `name`."""
        ...


class _FromBits:
    """Every draw of the protocol, made from one source of bits."""

    def __init__(self, source: random.Random) -> None:
        self._source = source
        self._lock = threading.Lock()

    def uuid(self) -> UUID:
        """A version 4 identifier."""
        return UUID(bytes=self._bytes(16), version=4)

    def token_hex(self, size: int = 16) -> str:
        """`size` random bytes in hexadecimal."""
        return self._bytes(size).hex()

    def uniform(self, low: float, high: float) -> float:
        """A number between `low` and `high`."""
        with self._lock:
            return low + (high - low) * self._source.random()

    def below(self, stop: int) -> int:
        """A whole number from 0 up to, not including, `stop`."""
        with self._lock:
            return self._source.randrange(stop)

    def _bytes(self, size: int) -> bytes:
        with self._lock:
            return self._source.getrandbits(8 * size).to_bytes(size, "big")


class SystemRandom(_FromBits):
    """The operating system's randomness."""

    def __init__(self) -> None:
        super().__init__(random.SystemRandom())

    def fork(self, name: str) -> SystemRandom:  # noqa: ARG002
        """The same source; its draws are independent anyway."""
        return self

    def __reduce__(self) -> tuple[object, ...]:
        return (SystemRandom, ())


class SeededRandom(_FromBits):
    """Reproducible randomness for tests and simulated worlds."""

    def __init__(self, seed: int | str) -> None:
        self.seed = seed
        digest = hashlib.sha256(str(seed).encode()).digest()
        super().__init__(random.Random(int.from_bytes(digest, "big")))  # noqa: S311

    def fork(self, name: str) -> SeededRandom:
        """An independent stream that depends on this stream's seed and `name` only."""
        return SeededRandom(f"{self.seed}/{name}")

    def __repr__(self) -> str:
        return f"SeededRandom({self.seed!r})"
