"""Where the time of a call goes: every few milliseconds the module that each thread is in.

A thread counts for the innermost module of lakewright on its stack, also while native code works
for it; a thread that waits for a lock, a queue or the clock counts as waiting. Sampling costs a few
per cent, which is why nothing is timed while it runs.
"""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from types import FrameType

EVERY_S = 0.002
WAITING = "waiting (locks, queues, the clock)"
ELSEWHERE = "other code"
_WAITS = frozenset({"threading", "queue", "concurrent.futures._base", "concurrent.futures.thread"})


@dataclass
class Samples:
    """How often each module was seen."""

    seen: Counter[str] = field(default_factory=Counter)
    looks: int = 0

    def shares(self, least: float = 0.02) -> dict[str, float]:
        """Thread seconds by module as parts of the wall time, largest first; small ones joined."""
        found: dict[str, float] = {}
        rest = 0.0
        for name, count in self.seen.most_common():
            share = count / max(1, self.looks)
            if share >= least:
                found[name] = share
            else:
                rest += share
        return {**found, "all others": rest}


def sampled(call: Callable[[], object]) -> Samples:
    """Run a call, and look at it meanwhile."""
    samples, over = Samples(), threading.Event()
    main = threading.get_ident()
    before = {main: 0, **dict.fromkeys((t.ident or 0 for t in threading.enumerate()), 0)}

    def look() -> None:
        own = threading.get_ident()
        while not over.wait(EVERY_S):
            samples.looks += 1
            for ident, frame in sys._current_frames().items():  # noqa: SLF001 - what it is for
                if ident != own and (ident == main or ident not in before):
                    samples.seen[_place(frame)] += 1

    looker = threading.Thread(target=look, daemon=True)
    looker.start()
    try:
        call()
    finally:
        over.set()
        looker.join()
    return samples


def _place(frame: FrameType | None) -> str:
    module = "" if frame is None else frame.f_globals.get("__name__", "")
    waits = module in _WAITS
    while frame is not None:
        name: str = frame.f_globals.get("__name__", "")
        if name.startswith("lakewright."):
            if waits or name.startswith("lakewright.runtime."):
                return WAITING
            return name.removeprefix("lakewright.")
        frame = frame.f_back
    return WAITING if waits else ELSEWHERE
