"""Worlds: one thing at a time, in an order that the seed decides, with crashes and wrong clocks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakewright.errors import (
    NotFoundError,
    OutcomeUnknownError,
    StorageUnavailableError,
)
from lakewright.storage.faults import SimulatedCrash
from lakewright.testing.sim.actors import Actor, SimProcesses
from lakewright.testing.sim.clocks import EPOCH_MS
from lakewright.testing.sim.faults import FaultRates
from lakewright.testing.sim.scheduler import Fiber, Scheduler, StuckError
from lakewright.testing.sim.world import World


def _busy(actor: Actor, files: int = 20) -> None:
    for number in range(files):
        actor.storage.create_if_absent(f"{actor.name}/{number}", b"")
        actor.clock.sleep(actor.random.uniform(0, 0.02))
        actor.storage.list("")


def _busy_world(seed: int) -> World:
    world = World(seed)
    rates = FaultRates(crash=0.01, stall=0.02, unavailable=0.02, unknown=0.02, jump=0.02)

    def stubborn(actor: Actor) -> None:
        try:
            _busy(actor)
        except (StorageUnavailableError, OutcomeUnknownError):
            actor.clock.sleep(1)

    for name in ("a", "b", "c"):
        world.add(name, stubborn, rates=rates, restarts=2)
    return world


def test_a_seed_is_a_whole_history_and_another_seed_is_another() -> None:
    digests = [_busy_world(seed).run().digest for seed in range(6)]
    assert digests == [_busy_world(seed).run().digest for seed in range(6)]
    assert len(set(digests)) == 6


def test_only_one_process_runs_and_switches_happen_inside_operations_only() -> None:
    world = World(1)
    running: list[str] = []

    def work(actor: Actor) -> None:
        for number in range(30):
            running.append(actor.name)
            assert running[-1] == actor.name
            assert len(running) == 1
            running.clear()
            actor.storage.create_if_absent(f"{actor.name}-{number}", b"")

    for name in ("a", "b", "c"):
        world.add(name, work)
    assert world.run().ok
    makers = list(world.disk.makers.values())
    assert sorted(set(makers)) == ["a", "b", "c"] and makers != sorted(makers)


def test_a_crash_ends_the_process_with_all_its_threads() -> None:
    world = World(2)
    after: list[str] = []

    def beat(actor: Actor) -> None:
        while True:
            actor.clock.sleep(0.01)
            actor.storage.replace("beat", b"")

    def work(actor: Actor) -> None:
        actor.spawn(lambda: beat(actor), "beating")
        try:
            actor.clock.sleep(100)
            after.append("went on")
        finally:
            try:
                actor.storage.delete("beat")
                after.append("cleaned up")
            except SimulatedCrash:
                after.append("could not clean up")

    victim = world.add("victim", work)
    changes: list[int] = []

    def kill(actor: Actor) -> None:
        actor.clock.sleep(1)
        victim.crash()
        changes.append(world.disk.bucket.changes)
        actor.clock.sleep(10)
        changes.append(world.disk.bucket.changes)

    world.add("killer", kill)
    assert world.run().ok
    assert victim.dead and after == ["could not clean up"]
    assert changes[0] == changes[1] > 10 and world.disk.bucket.get("beat") is not None


@pytest.mark.parametrize("effect", [False, True])
def test_a_crash_at_an_operation_happens_before_or_after_its_effect(effect: bool) -> None:
    world = World(3)
    actor = world.add("a", _busy)
    actor.crash_at(4, effect=effect)
    outcome = world.run()
    assert outcome.ok and actor.operations == 5
    assert sorted(world.disk.bucket.objects()) == [f"a/{n}" for n in range(3 if effect else 2)]
    side = "after" if effect else "before"
    assert outcome.counts == {f"fault|crash {side}|a|write data file": 1}


def test_a_dead_process_is_started_again_as_often_as_it_may_be() -> None:
    world = World(4)
    world.add("a", _busy, rates=FaultRates(crash=1.0), restarts=2)
    world.run()
    assert [a.name for a in world.actors] == ["a", "a#2", "a#3"]
    assert all(a.dead for a in world.actors)


def test_a_stalled_process_stands_still_with_its_threads_and_others_go_on() -> None:
    world = World(5)
    seen: dict[str, float] = {}

    def work(actor: Actor) -> None:
        task = actor.spawn(lambda: actor.clock.sleep(1), "second thread")
        actor.storage.exists("x")
        task.result()
        seen[actor.name] = world.now

    world.add("slow", work).stall_at(0, 100.0)
    world.add("quick", work)
    assert world.run().ok
    assert seen["quick"] < 2 and seen["slow"] >= 100


def test_no_thread_stalls_its_process_while_another_one_publishes_under_the_lock() -> None:
    world = World(0)
    ends: dict[str, float] = {}

    def work(actor: Actor, steady: bool) -> None:
        actor.fates.steady = lambda operation: steady and operation.path == "published"
        task = actor.spawn(lambda: actor.storage.replace("published", b""), "publishing thread")
        actor.storage.exists("x")
        task.result()
        ends[actor.name] = world.now

    rates = FaultRates(stall=1e-9, latency_s=1.0)
    for name, steady in (("free", False), ("held", True)):
        actor = world.add(name, lambda a, steady=steady: work(a, steady), rates=rates)  # type: ignore[misc]
        actor.stall_at(1, 100.0)  # while the first operation, of the thread, takes its time
    assert world.run().ok
    assert ends["held"] < 10 and ends["free"] > 100


def test_clocks_drift_jump_and_never_run_back_monotonically() -> None:
    world = World(6)
    read: dict[str, tuple[int, float]] = {}

    def look(actor: Actor) -> None:
        actor.clock.sleep(100)
        before = actor.clock.monotonic_s()
        actor.clock.jump(-50_000)
        read[actor.name] = (actor.clock.now_ms() - EPOCH_MS, actor.clock.monotonic_s())
        assert actor.clock.monotonic_s() >= before

    world.add("exact", look)
    fast = world.add("fast", look)
    fast.clock.pace = 1.25
    fast.clock.offset_ms = 7_000
    assert world.run().ok
    assert read["exact"] == (50_000, pytest.approx(100, abs=1e-3))
    assert read["fast"] == (57_000, pytest.approx(100, abs=1e-3))
    assert world.now == pytest.approx(100, abs=1e-3)


def test_waiting_costs_no_time_and_a_loop_that_looks_at_the_clock_ends() -> None:
    world = World(7)

    def spin(actor: Actor) -> None:
        actor.clock.sleep(3e7)
        until = actor.clock.monotonic_s() + 0.001
        while actor.clock.monotonic_s() < until:
            pass

    world.add("a", spin)
    assert world.run().seconds > 3e7


def test_listings_may_be_old_by_a_bounded_time_and_never_show_what_never_was() -> None:
    world = World(8)
    history: list[set[str]] = [set()]
    times = [0.0]

    def note(_: object) -> None:
        history.append(set(world.disk.bucket.objects()))
        times.append(world.now)

    def write(actor: Actor) -> None:
        for number in range(40):
            actor.storage.create_if_absent(f"f/{number}", b"")
            if number % 3 == 0:
                actor.storage.delete(f"f/{number}")

    old = 0

    def read(actor: Actor) -> None:
        nonlocal old
        for _ in range(100):
            seen = {info.path for info in actor.storage.list("f")}
            recent = [
                h
                for h, t in zip(history, [*times[1:], world.now], strict=True)
                if t >= world.now - 0.3
            ]
            assert seen in recent
            old += seen != history[-1]

    world.observe(note)
    world.add("writer", write)
    world.add("reader", read, rates=FaultRates(lag_s_max=0.3))
    assert world.run().ok
    assert old > 10


def test_errors_come_before_and_lost_answers_on_either_side_of_the_effect() -> None:
    world = World(9)
    seen = set()

    def work(actor: Actor) -> None:
        for number in range(300):
            try:
                actor.storage.create_if_absent(f"{number}", b"")
            except StorageUnavailableError:
                seen.add(("unavailable", world.disk.bucket.get(f"{number}") is not None))
            except OutcomeUnknownError:
                seen.add(("unknown", world.disk.bucket.get(f"{number}") is not None))

    world.add("a", work, rates=FaultRates(unavailable=0.2, unknown=0.2))
    assert world.run().ok
    assert seen == {("unavailable", False), ("unknown", False), ("unknown", True)}


def test_retrying_hides_passing_failures() -> None:
    world = World(10)

    def work(actor: Actor) -> None:
        storage = actor.retrying()
        for number in range(50):
            storage.create_if_absent(f"{number}", b"")

    world.add("a", work, rates=FaultRates(unavailable=0.2, unknown=0.2))
    assert world.run().ok
    assert len(world.disk.bucket.objects()) == 50


def test_folders_are_real_where_they_are() -> None:
    world = World(11, folders=True)

    def work(actor: Actor) -> None:
        storage = actor.storage.child("t")
        with pytest.raises(NotFoundError):
            storage.list("a")
        storage.create_if_absent("a/b/c", b"1")
        storage.make_dir("empty")
        assert storage.names("") == ["a", "empty"] and storage.list("empty") == []
        storage.delete("a/b/c")
        assert storage.exists("a/b") and storage.names("a") == ["b"]
        assert storage.delete_tree("a") == 0
        assert not storage.exists("a") and storage.names("") == ["empty"]
        assert storage.guarantees.real_directories

    world.add("a", work)
    assert world.run().violations == ()


@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("xyz"), st.booleans())))
def test_a_listing_is_what_is_there_whatever_was_listed_before(
    changes: list[tuple[str, str, bool]],
) -> None:
    world = World(1)
    storage, there = world.setup.storage.child("t"), set[str]()
    for folder, name, removes in changes:
        path = f"{folder}/{name}"
        if removes:
            storage.delete(path)
            there.discard(path)
        else:
            storage.replace(path, b"")
            there.add(path)
        assert storage.names(folder) == sorted(p[2:] for p in there if p[0] == folder)
        assert [i.path for i in storage.list()] == sorted({p[0] for p in there})
        assert [i.path for i in storage.walk()] == sorted(there)
        assert storage.exists(folder) == any(p[0] == folder for p in there)


def test_tasks_give_their_results_and_errors_to_whoever_asks() -> None:
    world = World(12)

    def work(actor: Actor) -> None:
        good = actor.spawn(lambda: actor.storage.exists("x") or 7, "good")
        bad = actor.spawn(lambda: actor.storage.read("x"), "bad")
        slow = actor.spawn(lambda: actor.clock.sleep(50), "slow")
        assert good.result() == 7 and good.done and good.name == "good"
        with pytest.raises(NotFoundError):
            bad.result()
        assert not slow.join(timeout_s=1) and not slow.done
        actor.clock.sleep(0.5)
        assert slow.join() and slow.error is None and world.now == pytest.approx(50, abs=1)

    world.add("a", work)
    assert world.run().violations == ()


def test_what_is_left_running_ends_with_its_process() -> None:
    world = World(13)

    def forever(actor: Actor) -> None:
        while True:
            actor.clock.sleep(1)

    world.add("a", lambda a: a.spawn(lambda: forever(a), "forever") and None)
    assert world.run().ok
    assert world.scheduler.alive() == []


def test_one_machine_knows_its_dead_and_several_do_not() -> None:
    world = World(14)
    answers = {}

    def watch(actor: Actor) -> None:
        actor.clock.sleep(5)
        for one_machine in (True, False):
            mine = SimProcesses(actor, one_machine=one_machine)
            identities = [SimProcesses(a, one_machine=one_machine).own for a in world.actors]
            answers[one_machine] = [mine.is_dead(identity) for identity in identities]

    world.add("victim", _busy).crash_at(3, effect=True)
    world.add("watcher", watch)
    assert world.run().ok
    assert answers == {True: [True, False], False: [False, False]}


def test_a_process_that_fails_is_a_violation_with_its_stack() -> None:
    world = World(15)
    world.add("a", lambda a: a.storage.read("nothing"))
    outcome = world.run()
    assert [v.rule for v in outcome.violations] == ["actor"]
    assert "NotFoundError" in outcome.violations[0].text


def test_a_world_that_does_not_end_is_a_violation() -> None:
    world = World(16, steps_max=1000)

    def forever(actor: Actor) -> None:
        while True:
            actor.clock.sleep(1)

    world.add("a", forever)
    outcome = world.run()
    assert [v.rule for v in outcome.violations] == ["stuck"]
    assert "a" in outcome.violations[0].text


def test_threads_that_wait_for_each_other_are_noticed() -> None:
    scheduler = Scheduler()
    fibers: list[Fiber] = []
    for name in ("a", "b"):
        other = 1 - len(fibers)
        fibers.append(Fiber(name, None, lambda other=other: scheduler.wait(fibers[other])))
    for fiber in fibers:
        scheduler.start(fiber)
    with pytest.raises(StuckError, match="a, b"):
        scheduler.run()
    assert scheduler.alive() == []


def test_the_storage_of_one_process_is_not_for_another() -> None:
    world = World(17)
    first = world.add("a", lambda a: a.clock.sleep(1))
    world.add("b", lambda _: first.storage.exists("x"))
    assert [v.rule for v in world.run().violations] == ["actor"]
