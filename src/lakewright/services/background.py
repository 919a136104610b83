"""Services of one table again and again, beside whatever else the application does.

`start` spawns one task; it runs the services at once and then every `every_s` seconds, or earlier
when `wake` is called. `stop`, or the end of the `with` block, lets it end at the next safe point
(between two files or two slices, never inside a publication) and waits for that. What was begun and
not finished stays pending, to be finished by whoever comes next. A round that fails is kept among
the `outcomes`, told as an event and followed by the next round.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

from lakewright.errors import CancelledError, OptionError
from lakewright.runtime.cancel import CancelToken
from lakewright.runtime.clock import Clock
from lakewright.runtime.events import Event, EventHook, ignore_events
from lakewright.runtime.spawn import Spawner, Task
from lakewright.services.automatic import ServiceOutcome

__all__ = ["BackgroundServices", "Pace"]

Round = Callable[[CancelToken], list[ServiceOutcome]]
"""One run of the services; the token says when it has to stop."""
KEPT_OUTCOMES: Final = 100
_LOOK_S: Final = 0.2
"""How often the pause between two rounds looks whether it is over."""


@dataclass(frozen=True, slots=True)
class Pace:
    """When rounds come."""

    every_s: float = 60.0

    def __post_init__(self) -> None:
        if self.every_s <= 0:
            raise OptionError(
                f"Services cannot run every {self.every_s:g} seconds.",
                hint="Give a number of seconds above zero.",
                context={"option": "every_s", "value": self.every_s},
            )


class BackgroundServices:
    """Services that run beside the application until they are stopped."""

    def __init__(self, run: Round, pace: Pace, clock: Clock, on_event: EventHook) -> None:
        self._run = run
        self._pace = pace
        self._clock = clock
        self._on_event = on_event
        self._token = CancelToken()
        self._woken = threading.Event()
        self._task: Task[None] | None = None
        self._outcomes: deque[ServiceOutcome] = deque(maxlen=KEPT_OUTCOMES)
        self.rounds = 0
        """How many rounds were begun."""

    @classmethod
    def start(
        cls,
        run: Round,
        pace: Pace,
        *,
        clock: Clock,
        spawner: Spawner,
        name: str,
        on_event: EventHook = ignore_events,
    ) -> Self:
        """Begin the first round."""
        services = cls(run, pace, clock, on_event)
        services._task = spawner.spawn(services._rounds, name=name)
        return services

    @property
    def outcomes(self) -> tuple[ServiceOutcome, ...]:
        """What the last services did, or why they failed; the oldest first."""
        return tuple(self._outcomes)

    @property
    def failures(self) -> tuple[ServiceOutcome, ...]:
        """Those of them that failed."""
        return tuple(outcome for outcome in self.outcomes if outcome.error is not None)

    @property
    def running(self) -> bool:
        """Whether another round may come."""
        return not self._token.cancelled

    def wake(self) -> None:
        """Let the next round begin now, or right after the one that runs."""
        self._woken.set()

    def stop(self, timeout_s: float | None = None) -> tuple[ServiceOutcome, ...]:
        """Let no round begin any more and wait for the end of the last; what the services did."""
        self._token.cancel("the services are being stopped")
        self._woken.set()
        if self._task is not None:
            self._task.join(timeout_s)
        return self.outcomes

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def _rounds(self) -> None:
        while not self._token.cancelled:
            self._woken.clear()
            self.rounds += 1
            self._outcomes.extend(filter(self._is_news, self._round()))
            self._wait()

    def _round(self) -> list[ServiceOutcome]:
        try:
            return self._run(self._token)
        except Exception as error:  # the next round may find the table again
            outcome = ServiceOutcome("opening", error=error)
            self._on_event(Event("service.failed.opening", 1, path=outcome.warning))
            return [outcome]

    def _is_news(self, outcome: ServiceOutcome) -> bool:
        """Not what did nothing, and not what ended because it was stopped."""
        stopped = self._token.cancelled and isinstance(outcome.error, CancelledError)
        return bool(outcome.did or outcome.error) and not stopped

    def _wait(self) -> None:
        due_s = self._clock.monotonic_s() + self._pace.every_s
        while not self._token.cancelled and not self._woken.is_set():
            left_s = due_s - self._clock.monotonic_s()
            if left_s <= 0:
                return
            self._clock.sleep(min(left_s, _LOOK_S))
