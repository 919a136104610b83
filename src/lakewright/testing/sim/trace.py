"""What happened in a world, line by line.

The newest lines are kept, and none where many worlds are played: a seed tells its story again.
"""

from __future__ import annotations

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
    """The newest lines, and how many there were."""

    def __init__(self, lines_max: int = LINES_MAX) -> None:
        self.lines: deque[Line] = deque(maxlen=lines_max)
        self.kept = True
        """Whether lines are kept."""
        self.count = 0

    def add(self, time_s: float, who: str, what: str, where: str = "", outcome: str = "") -> None:
        """Note something."""
        self.count += 1
        if self.kept:
            self.lines.append(Line(time_s, who, what, where, outcome))

    def to_text(self, last: int | None = None) -> str:
        """The newest lines, oldest first."""
        lines = list(self.lines)[-last:] if last else list(self.lines)
        left_out = self.count - len(lines)
        head = [f"… {left_out} earlier lines"] if left_out else []
        return "\n".join([*head, *map(str, lines)])
