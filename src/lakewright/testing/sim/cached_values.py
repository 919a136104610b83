"""Cached properties without the lock that Python 3.11 holds while it computes them.

That lock belongs to the class, so a process that reads storage inside a cached property would keep
every other one from doing the same, and the whole world would stand still. Later Pythons have no
such lock; here worlds are played as there.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["without_class_locks"]


def _get(self: Any, instance: Any, owner: type | None = None) -> Any:  # noqa: ARG001
    if instance is None:
        return self
    values = instance.__dict__
    if self.attrname not in values:
        values[self.attrname] = self.func(instance)
    return values[self.attrname]


@contextmanager
def without_class_locks() -> Iterator[None]:
    """Compute cached properties without a lock, as Python does from 3.12 on."""
    if sys.version_info >= (3, 12):
        yield
        return
    before = functools.cached_property.__get__
    functools.cached_property.__get__ = _get  # type: ignore[method-assign]
    try:
        yield
    finally:
        functools.cached_property.__get__ = before  # type: ignore[method-assign]
