"""Running worlds: exhaustively, in numbers, again, and from the command line."""

from __future__ import annotations

import pytest

from lakewright.storage.faults import SimulatedCrash
from lakewright.testing.sim.__main__ import main
from lakewright.testing.sim.actors import Actor
from lakewright.testing.sim.runner import (
    _chunks,
    every_crash,
    replay_command,
    run_batches,
    run_many,
    run_world,
    whole_run,
)
from lakewright.testing.sim.workloads import WORKLOADS
from lakewright.testing.sim.world import World


def _three_files() -> World:
    world = World(1)

    def work(actor: Actor) -> None:
        for name in "abc":
            actor.storage.create_if_absent(name, b"")

    world.add("writer", work)
    return world


def test_every_crash_dies_once_on_either_side_of_each_operation() -> None:
    runs = list(every_crash(_three_files, "writer"))
    assert [(r.index, r.effect) for r in runs] == [(i, e) for i in range(3) for e in (False, True)]
    left = ["".join(r.world.disk.bucket.objects()) for r in runs]
    assert left == ["", "a", "a", "ab", "ab", "abc"]
    assert all(r.outcome.ok and r.world.actors[0].dead for r in runs)


def test_every_crash_can_leave_operations_out() -> None:
    runs = every_crash(_three_files, "writer", stride=2)
    assert [(r.index, r.effect) for r in runs] == [(i, e) for i in (0, 2) for e in (False, True)]


def test_every_crash_wants_a_world_that_is_sound_without_one() -> None:
    def broken() -> World:
        world = World(1)
        world.add("writer", lambda a: a.storage.read("nothing"))
        return world

    with pytest.raises(AssertionError, match="NotFoundError"):
        list(every_crash(broken, "writer"))


def test_the_sound_toy_is_never_blamed() -> None:
    summary = run_many("toy", range(8))
    assert summary.failed == 0 and summary.worlds == 8
    assert summary.counts["commits"] > 8 * 6 and summary.counts["lock.taken_over"] > 0
    assert any(what.startswith("fault|crash before|writer|") for what in summary.counts)


def test_the_broken_toy_is_caught_by_several_rules() -> None:
    summary = run_many("toy-broken", range(16))
    assert summary.failed >= 12
    rules = {v.rule for o in summary.failures for v in o.violations}
    assert {"14.2", "14.3b", "14.9", "14.16"} <= rules
    assert "replay: python -m lakewright.testing.sim --world toy-broken" in summary.to_text()


@pytest.mark.slow
def test_other_processes_play_the_same_worlds() -> None:
    """Strings hash differently in each of them, so nothing may depend on the order of a set."""
    alone, shared = run_many("storm", range(6)), run_many("storm", range(6), jobs=2)
    assert (alone.counts, alone.digest) == (shared.counts, shared.digest)


@pytest.mark.parametrize("workload", ["storm", "services-storm"])
def test_a_trace_changes_nothing(workload: str) -> None:
    for seed in range(3):
        (told, first), (silent, second) = (
            run_world(WORKLOADS[workload], seed, traced=traced) for traced in (True, False)
        )
        assert first == second and first.digest == second.digest
        assert told.trace.lines and not silent.trace.lines


def test_a_whole_run_has_every_sound_workload_and_some_with_real_files() -> None:
    batches = whole_run(100_000)
    real = sum(len(seeds) for name, seeds in batches.items() if WORKLOADS[name].real)
    assert 2_000 <= real < 2_010
    assert 100_000 <= sum(map(len, batches.values())) - real < 100_100
    assert not any(WORKLOADS[name].broken for name in batches)
    assert set(whole_run(1)) == set(batches)


def test_an_early_end_has_seen_a_little_of_everything() -> None:
    batches = {"toy": range(40), "toy-broken": range(40)}
    found = run_batches(batches, seconds=0.0)
    assert 1 <= sum(summary.worlds for summary in found.values()) < 80
    assert [chunk[0] for chunk in _chunks(batches, 1)[:2]] == ["toy", "toy-broken"]


def test_the_replay_command_shows_the_violation_with_its_trace(
    capsys: pytest.CaptureFixture[str],
) -> None:
    outcome = next(o for s in range(9) if not (o := run_world(WORKLOADS["toy-broken"], s)[1]).ok)
    words = replay_command(outcome).split()
    assert words[:3] == ["python", "-m", "lakewright.testing.sim"]
    assert main(words[3:]) == 1
    said = capsys.readouterr().out
    assert str(outcome.violations[0]) in said and outcome.digest in said
    assert "writer1" in said and "create_if_absent" in said


def test_the_command_runs_seeds_and_tells_what_they_contained(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["--world", "toy", "--seeds", "3", "--first", "5"]) == 0
    said = capsys.readouterr().out
    assert "toy: 3 worlds in" in said and "per second" in said and "commits" in said
    assert main(["--world", "toy-broken", "--seeds", "4"]) == 1
    assert "FAILED toy-broken" in capsys.readouterr().out
    assert main(["--world", "nothing"]) == 2


def test_a_crash_cannot_be_swallowed_by_a_handler_for_errors() -> None:
    world = World(3)
    seen: list[BaseException] = []

    def work(actor: Actor) -> None:
        for name in "abc":
            try:
                actor.storage.create_if_absent(name, b"")
            except Exception as error:
                seen.append(error)

    world.add("a", work).crash_at(1, effect=False)
    world.run()
    assert seen == [] and isinstance(world.actors[0].main.error, SimulatedCrash)
