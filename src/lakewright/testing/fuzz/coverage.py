"""Which lines of lakewright follow which: cheap enough to ask often.

Tracing a run costs several times the run itself, so only some mutants are traced: a sample, and
every mutant that ended in a way not seen before. What is remembered are edges, pairs of lines
executed one after the other in one function of the product; the test room does not count. Edges
are numbers that mean the same in every process, so that a run can be taken up again.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from types import FrameType
from typing import Any, Final, TypeVar

import lakewright

__all__ = ["EdgeTracer"]

_PRODUCT: Final = str(Path(lakewright.__file__).parent)
_TESTING: Final = str(Path(lakewright.__file__).parent / "testing")
_LINES: Final = 1 << 14

T = TypeVar("T")
_Tracer = Callable[[FrameType, str, Any], Any]


class EdgeTracer:
    """Collects the edges of traced calls, and tells how many were new."""

    def __init__(self, seen: Iterable[int] = ()) -> None:
        self._seen: set[int] = set(seen)
        self._found: set[int] = set()
        self._functions: dict[Any, int] = {}

    @property
    def edges(self) -> int:
        """How many edges are known."""
        return len(self._seen)

    @property
    def seen(self) -> list[int]:
        """All known edges, for another process."""
        return sorted(self._seen)

    def run(self, call: Callable[[], T]) -> tuple[T, int]:
        """The result of `call`, which must not raise, and how many edges it was the first to see.

        Another tracer (a debugger, a coverage tool) is left alone until the call is over.
        """
        self._found = set()
        previous = sys.gettrace()
        sys.settrace(self._enter)
        try:
            result = call()
        finally:
            sys.settrace(previous)
        new = self._found - self._seen
        self._seen |= new
        return result, len(new)

    def _enter(self, frame: FrameType, _event: str, _argument: Any) -> _Tracer | None:
        code = frame.f_code
        number = self._functions.get(code)
        if number is None:
            name = code.co_filename
            counted = name.startswith(_PRODUCT) and not name.startswith(_TESTING)
            place = f"{name[len(_PRODUCT) :]}:{code.co_firstlineno}:{code.co_name}"
            number = zlib.crc32(place.encode()) or 1 if counted else 0
            self._functions[code] = number
        if not number:
            return None
        add, base = self._found.add, number * _LINES
        before = 0

        def line(frame: FrameType, event: str, _argument: Any) -> Any:
            nonlocal before
            if event == "line":
                here = frame.f_lineno
                add((base + before) * _LINES + here)
                before = here
            return line

        return line
