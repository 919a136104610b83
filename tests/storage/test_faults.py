"""Injected faults, and what retrying makes of them."""

from __future__ import annotations

import pytest

from lakewright.errors import (
    AlreadyExistsError,
    NotFoundError,
    OutcomeUnknownError,
    PreconditionFailedError,
    StorageUnavailableError,
)
from lakewright.runtime import ManualClock, RetryBudget, SeededRandom
from lakewright.storage import Guarantees, MemoryBucket, MemoryStorage, RetryingStorage
from lakewright.storage.faults import (
    Fault,
    FaultPlan,
    Operation,
    SimulatedCrash,
    crash,
    unavailable,
    unknown_outcome,
)


def _faulty(bucket: MemoryBucket, faults: dict[int, Fault]) -> MemoryStorage:
    return MemoryStorage(bucket, faults=FaultPlan(faults))


def _retrying(inner: MemoryStorage, attempts: int = 4) -> RetryingStorage:
    budget = RetryBudget(attempts=attempts, seconds=60)
    return RetryingStorage(inner, budget=budget, clock=ManualClock(), random=SeededRandom(7))


def test_times_and_versions_come_from_the_world_alone() -> None:
    clock = ManualClock(now_ms=1000)
    storage = MemoryStorage(MemoryBucket(clock=clock))
    first = storage.create_if_absent("x", b"1")
    clock.advance(2.5)
    second = storage.replace("x", b"2")
    assert (first.modified_ms, first.etag) == (1000, "v1")
    assert (second.modified_ms, second.etag) == (3500, "v2")
    assert storage.operations == 2


@pytest.mark.parametrize("effect", [False, True])
def test_a_crash_happens_before_or_after_the_effect_and_is_final(effect: bool) -> None:
    bucket = MemoryBucket()
    storage = _faulty(bucket, {1: crash(effect=effect)})
    storage.create_if_absent("a", b"")
    child = storage.child("d")
    with pytest.raises(SimulatedCrash):
        child.create_if_absent("b", b"")
    assert sorted(bucket.objects()) == (["a", "d/b"] if effect else ["a"])
    for dead in (storage, child):
        with pytest.raises(SimulatedCrash):
            dead.exists("a")
    assert MemoryStorage(bucket).exists("a")


def test_a_crash_is_no_exception_that_a_handler_could_swallow() -> None:
    assert not issubclass(SimulatedCrash, Exception)


def test_deleting_a_tree_can_stop_halfway() -> None:
    bucket = MemoryBucket()
    for name in "abc":
        MemoryStorage(bucket).create_if_absent(f"t/{name}", b"")
    with pytest.raises(SimulatedCrash):
        _faulty(bucket, {2: crash(effect=False)}).delete_tree("t")
    assert sorted(bucket.objects()) == ["t/b", "t/c"]


def test_stale_views_show_an_earlier_state_and_never_an_invented_one() -> None:
    bucket = MemoryBucket()
    writer = MemoryStorage(bucket)
    writer.create_if_absent("p/a", b"1")
    writer.create_if_absent("p/b", b"1")
    writer.replace("p/a", b"22")
    writer.delete("p/b")
    lags = dict(enumerate([0, 1, 2, 3, 4, 99]))
    reader = MemoryStorage(bucket, faults=FaultPlan(lags=lags))
    seen = [[(i.name, i.size) for i in reader.list("p")] for _ in lags]
    assert seen == [
        [("a", 2)],
        [("a", 2), ("b", 1)],
        [("a", 1), ("b", 1)],
        [("a", 1)],
        [],
        [],
    ]
    late = MemoryStorage(bucket, faults=FaultPlan(lags={0: 4, 1: 1, 2: 2}))
    with pytest.raises(NotFoundError):
        late.read("p/a")
    assert late.exists("p/b")
    assert late.read("p/a") == b"1"
    assert late.read("p/a") == b"22"


def test_hooks_see_every_operation_with_its_full_path() -> None:
    seen: list[Operation] = []

    class Watching(FaultPlan):
        def before(self, operation: Operation) -> None:
            seen.append(operation)

    storage = MemoryStorage(root="t", faults=Watching())
    storage.child("d").create_if_absent("x", b"")
    storage.list()
    assert seen == [Operation("create_if_absent", "t/d/x", 0), Operation("list", "t", 1)]


def test_passing_failures_are_overcome() -> None:
    bucket = MemoryBucket()
    MemoryStorage(bucket).create_if_absent("x", b"1")
    storage = _retrying(_faulty(bucket, {n: unavailable() for n in (0, 1, 3, 5, 7)}))
    assert storage.read("x") == b"1"
    assert [i.path for i in storage.list()] == ["x"]
    assert [i.path for i in storage.walk()] == ["x"]
    assert storage.delete("x") is True
    with pytest.raises(NotFoundError):
        storage.stat("x")


@pytest.mark.parametrize("effect", [False, True])
@pytest.mark.parametrize("content", [b"", b"content"])
def test_a_create_with_a_lost_answer_knows_its_own_object(effect: bool, content: bytes) -> None:
    bucket = MemoryBucket()
    storage = _retrying(_faulty(bucket, {0: unknown_outcome(effect=effect)}))
    assert storage.create_if_absent("x", content).size == len(content)
    assert bucket.objects() == {"x": content}


def test_a_create_with_a_lost_answer_does_not_take_anothers_object_for_its_own() -> None:
    bucket = MemoryBucket()

    class Rival(FaultPlan):
        def before(self, operation: Operation) -> None:
            if operation.index == 0:
                MemoryStorage(bucket).create_if_absent("x", b"", token="rival")
                raise unknown_outcome(effect=False).error(operation)

    with pytest.raises(AlreadyExistsError):
        _retrying(MemoryStorage(bucket, faults=Rival())).create_if_absent("x", b"")


def test_an_outcome_that_stays_unknown_is_told() -> None:
    bucket = MemoryBucket()
    storage = _retrying(_faulty(bucket, {n: unknown_outcome(effect=True) for n in range(9)}), 3)
    with pytest.raises(OutcomeUnknownError) as caught:
        storage.create_if_absent("x", b"")
    assert caught.value.context["attempts"] == 3


class _Tokenless(MemoryStorage):
    """A storage that keeps no tokens."""

    guarantees = Guarantees(False, True, False)  # type: ignore[assignment]

    def create_if_absent(self, path, data, *, token=None):  # type: ignore[no-untyped-def]
        return super().create_if_absent(path, data)


@pytest.mark.parametrize(
    ("there", "outcome"), [(b"mine", OutcomeUnknownError), (b"theirs", AlreadyExistsError)]
)
def test_without_tokens_equal_content_is_unknown_and_other_content_is_anothers(
    there: bytes, outcome: type[Exception]
) -> None:
    bucket = MemoryBucket()
    MemoryStorage(bucket).create_if_absent("x", there)
    storage = _retrying(_Tokenless(bucket, faults=FaultPlan({0: unavailable()})))
    with pytest.raises(outcome):
        storage.create_if_absent("x", b"mine")


@pytest.mark.parametrize("effect", [False, True])
def test_a_conditional_replace_with_a_lost_answer_is_resolved_by_content(effect: bool) -> None:
    bucket = MemoryBucket()
    etag = MemoryStorage(bucket).create_if_absent("x", b"1").etag or ""
    storage = _retrying(_faulty(bucket, {0: unknown_outcome(effect=effect)}))
    storage.replace_if_match("x", b"2", etag)
    assert bucket.objects() == {"x": b"2"}
    with pytest.raises(PreconditionFailedError):
        storage.replace_if_match("x", b"3", etag)


def test_a_conditional_replace_that_lost_to_another_is_not_resolved_as_its_own() -> None:
    bucket = MemoryBucket()
    etag = MemoryStorage(bucket).create_if_absent("x", b"1").etag or ""

    class Rival(FaultPlan):
        def before(self, operation: Operation) -> None:
            if operation.index == 0:
                MemoryStorage(bucket).replace("x", b"rival")
                raise unknown_outcome(effect=False).error(operation)

    with pytest.raises(PreconditionFailedError):
        _retrying(MemoryStorage(bucket, faults=Rival())).replace_if_match("x", b"2", etag)


def test_a_delete_tried_twice_counts_its_first_try() -> None:
    bucket = MemoryBucket()
    MemoryStorage(bucket).create_if_absent("x", b"1")
    assert _retrying(_faulty(bucket, {0: unavailable(effect=True)})).delete("x") is True


def test_crashes_and_final_errors_are_not_retried() -> None:
    inner = _faulty(MemoryBucket(), {0: crash(effect=False)})
    with pytest.raises(SimulatedCrash):
        _retrying(inner).read("x")
    inner = MemoryStorage()
    with pytest.raises(NotFoundError):
        _retrying(inner).read("x")
    assert inner.operations == 1


def test_the_budget_bounds_attempts_and_time() -> None:
    clock = ManualClock()
    inner = _faulty(MemoryBucket(), {n: unavailable() for n in range(99)})
    budget = RetryBudget(attempts=50, seconds=10, delay_s_first=1, delay_s_max=4)
    storage = RetryingStorage(inner, budget=budget, clock=clock, random=SeededRandom(3))
    with pytest.raises(StorageUnavailableError) as caught:
        storage.read("x")
    assert clock.monotonic_s() <= 10
    assert 3 <= inner.operations <= 12
    assert caught.value.context["attempts"] == inner.operations


def test_large_creates_are_not_repeated() -> None:
    inner = _faulty(MemoryBucket(), {0: unavailable()})
    with pytest.raises(StorageUnavailableError):
        _retrying(inner).create_from("x", lambda sink: sink.write(b"1"))
    assert inner.operations == 1
