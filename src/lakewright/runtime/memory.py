"""Giving free memory back to the system.

Allocators keep what was freed for their next use. After a step of long work whose arrays are unlike
those of the next one, that is memory which nobody uses: so such a step gives it back.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any

import pyarrow as pa

__all__ = ["give_memory_back"]


def give_memory_back() -> None:
    """Give back what Arrow and the C library keep, as far as they can."""
    pa.default_memory_pool().release_unused()
    _trim()(0)


@cache
def _trim() -> Callable[[int], Any]:
    """The C library's way to do it; only GNU's has one."""
    try:
        found: Callable[[int], Any] = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):
        return lambda _: 0
    return found
