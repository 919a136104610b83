"""What happened in a world, line by line, and a digest of all of it.

The trace keeps the newest lines only; the digest covers every line, so that two runs of a seed can
be compared without keeping them.
"""

from __future__ import annotations

import zlib
from collections import deque
from dataclasses import dataclass
from typing import Final

__all__ = ["Line", "Trace"]

LINES_MAX: Final = 5000


@dataclass(slots=True)
class Line:
    """One thing that one process did."""

    time_s: float
    who: str
    what: str
    where: str
    outcome: str

    def __str__(self) -> str:
        return f"{self.time_s:12.6f}  {self.who:<14} {self.what:<17} {self.where}  {self.outcome}"


class Trace:
    """The newest lines, and a digest of all."""

    def __init__(self, lines_max: int = LINES_MAX) -> None:
        self.lines: deque[Line] = deque(maxlen=lines_max)
        self.count = 0
        self._digest = 0

    def add(self, time_s: float, who: str, what: str, where: str = "", outcome: str = "") -> None:
        """Note something."""
        self.count += 1
        self.lines.append(Line(time_s, who, what, where, outcome))
        text = f"{time_s:.6f}|{who}|{what}|{where}|{outcome}"
        self._digest = zlib.crc32(text.encode(), self._digest)

    @property
    def digest(self) -> str:
        """Equal for equal histories."""
        return f"{self._digest:08x}-{self.count}"

    def to_text(self, last: int | None = None) -> str:
        """The newest lines, oldest first."""
        lines = list(self.lines)[-last:] if last else list(self.lines)
        left_out = self.count - len(lines)
        head = [f"… {left_out} earlier lines"] if left_out else []
        return "\n".join([*head, *map(str, lines)])
