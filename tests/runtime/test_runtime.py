"""Clocks, chance, patience and background work."""

from __future__ import annotations

import pickle
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakewright.errors import (
    CancelledError,
    ConfigError,
    OptionError,
    StorageError,
    StorageUnavailableError,
)
from lakewright.runtime import (
    NEVER_CANCELLED,
    NO_RETRY,
    CancelToken,
    Event,
    ManualClock,
    RetryBudget,
    SeededRandom,
    SystemClock,
    SystemRandom,
    ThreadSpawner,
    ignore_events,
    retry,
    spawn,
)


def test_a_manual_clock_moves_only_when_told_or_slept_on() -> None:
    clock = ManualClock(now_ms=1000)
    assert (clock.now_ms(), clock.monotonic_s()) == (1000, 0.0)
    clock.sleep(1.5)
    clock.sleep(-1)
    clock.advance(0.25)
    assert (clock.now_ms(), clock.monotonic_s(), clock.slept_s) == (2750, 1.75, [1.5])
    clock.jump_wall(-10_000)
    assert (clock.now_ms(), clock.monotonic_s()) == (-7250, 1.75)
    with pytest.raises(ConfigError):
        clock.advance(-1)


def test_the_system_clock_goes_forward() -> None:
    clock = SystemClock()
    before = clock.monotonic_s()
    clock.sleep(0)
    assert clock.monotonic_s() >= before
    assert clock.now_ms() > 1_600_000_000_000


def test_one_seed_gives_one_sequence_and_forks_do_not_disturb_each_other() -> None:
    def draw(random: SeededRandom) -> list[object]:
        return [random.uuid(), random.token_hex(4), random.uniform(1, 2), random.below(100)]

    assert draw(SeededRandom(5)) == draw(SeededRandom(5))
    assert draw(SeededRandom(5)) != draw(SeededRandom(6))
    one, other = SeededRandom(5), SeededRandom(5)
    draw(other)
    assert draw(one.fork("a")) == draw(other.fork("a"))
    assert draw(one.fork("a")) != draw(one.fork("b"))
    assert SeededRandom(5).token_hex(4) == "da20fdc2"  # the same on every machine


def test_system_randomness_does_not_repeat_and_may_travel() -> None:
    random = SystemRandom()
    assert random.uuid() != random.uuid()
    assert random.uuid().version == 4
    assert len(random.fork("x").token_hex(8)) == 16
    assert isinstance(pickle.loads(pickle.dumps(random)), SystemRandom)


def _failing(times: int, error: Exception) -> tuple[list[int], object]:
    calls: list[int] = []

    def operation() -> str:
        calls.append(len(calls))
        if len(calls) <= times:
            raise error
        return "done"

    return calls, operation


def _passing() -> StorageUnavailableError:
    return StorageUnavailableError("down", hint="wait", retryable=True)


def test_retryable_errors_are_tried_again_within_the_budget() -> None:
    clock, heard = ManualClock(), []
    calls, operation = _failing(3, _passing())
    budget = RetryBudget(attempts=4, seconds=100, delay_s_first=1, delay_s_max=3)
    answer = retry(
        operation,  # type: ignore[arg-type]
        budget=budget,
        clock=clock,
        random=SeededRandom(1),
        on_retry=heard.append,
    )
    assert answer == "done" and len(calls) == 4 and len(heard) == 3
    for slept, full in zip(clock.slept_s, (1, 2, 3), strict=True):
        assert full / 2 <= slept <= full


@given(
    st.integers(1, 10),
    st.floats(0, 30),
    st.floats(0, 5),
    st.floats(0, 5),
    st.integers(0, 2**32),
)
def test_a_budget_is_never_overspent(
    attempts: int, seconds: float, first: float, more: float, seed: int
) -> None:
    clock = ManualClock()
    calls, operation = _failing(100, _passing())
    budget = RetryBudget(attempts, seconds, first, first + more)
    with pytest.raises(StorageUnavailableError) as caught:
        retry(operation, budget=budget, clock=clock, random=SeededRandom(seed))  # type: ignore[arg-type]
    assert 1 <= len(calls) <= attempts
    assert clock.monotonic_s() <= seconds + 1e-9
    assert caught.value.context["attempts"] == len(calls)


def test_final_errors_are_raised_at_once() -> None:
    clock = ManualClock()
    calls, operation = _failing(1, StorageError("broken", hint="look"))
    with pytest.raises(StorageError):
        retry(operation, budget=RetryBudget(), clock=clock, random=SeededRandom(1))  # type: ignore[arg-type]
    calls_too, operation = _failing(1, _passing())
    with pytest.raises(StorageUnavailableError):
        retry(operation, budget=NO_RETRY, clock=clock, random=SeededRandom(1))  # type: ignore[arg-type]
    assert len(calls) == len(calls_too) == 1 and clock.slept_s == []


def test_cancelling_ends_a_retry() -> None:
    clock = ManualClock()
    token = CancelToken.after(5, clock)
    _, operation = _failing(99, _passing())
    budget = RetryBudget(attempts=50, seconds=999, delay_s_first=2, delay_s_max=2)
    with pytest.raises(CancelledError):
        retry(operation, budget=budget, clock=clock, random=SeededRandom(1), cancel=token)  # type: ignore[arg-type]
    assert 5 <= clock.monotonic_s() <= 7


def test_impossible_budgets_are_refused() -> None:
    for wrong in ({"attempts": 0}, {"seconds": -1}, {"delay_s_first": 9, "delay_s_max": 1}):
        with pytest.raises(OptionError):
            RetryBudget(**wrong)  # type: ignore[arg-type]


def test_a_token_stays_cancelled_with_its_first_reason() -> None:
    token = CancelToken()
    token.check()
    assert not token.cancelled and token.remaining_s() is None
    token.cancel("enough")
    token.cancel("more than enough")
    assert token.cancelled
    with pytest.raises(CancelledError, match="enough") as caught:
        token.check()
    assert caught.value.context == {"reason": "enough"}


def test_a_deadline_counts_on_the_monotonic_clock() -> None:
    clock = ManualClock()
    token = CancelToken.after(10, clock)
    clock.jump_wall(1_000_000)
    token.check()
    clock.advance(9)
    assert token.remaining_s() == 1 and not token.cancelled
    clock.advance(5)
    assert token.remaining_s() == 0 and token.cancelled
    with pytest.raises(CancelledError, match="deadline"):
        token.check()


def test_the_shared_token_cannot_be_cancelled() -> None:
    with pytest.raises(ConfigError):
        NEVER_CANCELLED.cancel()
    NEVER_CANCELLED.check()


def test_background_work_returns_its_value_or_its_error() -> None:
    go = threading.Event()

    def wait() -> int:
        go.wait(5)
        return 42

    task = ThreadSpawner().spawn(wait, "waiter")
    assert (task.name, task.done, task.error) == ("waiter", False, None)
    assert not task.join(timeout_s=0)
    go.set()
    assert task.result() == 42 and task.done and task.join()

    def fail() -> int:
        raise KeyError("lost")

    failed = spawn(fail, "failing")
    assert failed.join()
    assert failed.done and isinstance(failed.error, KeyError)
    with pytest.raises(KeyError):
        failed.result()
    assert spawn(lambda: None, "nothing").result() is None


def test_events_are_plain_values() -> None:
    event = Event("scan.slice", 3, 10, "files", "20240101000000000")
    assert event == pickle.loads(pickle.dumps(event))
    ignore_events(event)
    assert Event("x", 1).total is None
