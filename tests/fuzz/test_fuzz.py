"""The fuzzer: mutants are repeatable, faults are found, and a fixed set of mutants passes."""

from __future__ import annotations

import json
import zipfile
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakewright.errors import OptionError
from lakewright.testing.fuzz import (
    Case,
    Corpus,
    Finding,
    Fuzzer,
    Kind,
    Plan,
    Recipe,
    Report,
    Seed,
    Tally,
    Target,
    find_target,
    run_plan,
)
from lakewright.testing.fuzz.__main__ import main
from lakewright.testing.fuzz.coverage import EdgeTracer
from lakewright.testing.fuzz.judging import Limits, judge
from lakewright.testing.fuzz.mutators import BYTES_MAX, Tools, mutate
from lakewright.testing.fuzz.targets import TARGETS
from tests.fuzz import hfile_seeds, planted

TESTS = Path(__file__).resolve().parents[1]
PLACES = (TESTS / "tables", TESTS / "fuzz" / "seeds")
FILES = 300


def test_a_fixed_set_of_mutants_is_read_or_refused() -> None:
    report = run_plan(Plan(targets=tuple(TARGETS), places=PLACES, seed=1, files=FILES))
    found = [f"{f.kind.value} {f.where} --replay {f.target} '{f.recipe}'" for f in report.findings]
    assert found == []
    assert report.files == FILES
    assert report.empty == ()
    assert set(report.tallies) == set(TARGETS)
    assert report.edges > 1000


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_made_seeds_are_sound(target: Target) -> None:
    for seed in target.seeds(Corpus({})):
        outcome = judge(target, Case(seed.data, seed))
        assert outcome.kind in (Kind.WHOLE, Kind.SKIPPED), (seed.name, outcome)


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_mutators_of_a_target_take_any_bytes(target: Target) -> None:
    seeds = target.seeds(Corpus({}))[:3] or [Seed("none", b"#HUDI#")]
    tools = Tools(target.tokens, [seed.data for seed in seeds], target.shapes)
    for number in range(60):
        data = [b"", b"\x00", *(s.data for s in seeds)][number % (2 + len(seeds))]
        for change in range(4):
            data = mutate(data, number * 10 + change, tools)
            assert len(data) <= BYTES_MAX


@given(st.binary(max_size=300), st.integers(0, 2**48), st.lists(st.binary(max_size=9), max_size=3))
def test_a_number_names_one_mutant(data: bytes, number: int, tokens: list[bytes]) -> None:
    tools = Tools(tokens, [data[::-1]])
    assert mutate(data, number, tools) == mutate(data, number, tools)


@given(st.text(min_size=1, max_size=30), st.lists(st.integers(0, 2**48), max_size=5))
def test_recipes_survive_being_written(seed: str, changes: list[int]) -> None:
    recipe = Recipe(seed, tuple(changes))
    assert Recipe.parse(str(recipe)) == recipe


def test_a_recipe_gives_the_mutant_that_was_judged() -> None:
    fuzzer = Fuzzer([TARGETS["filter"]], Corpus({}), None)
    told: list[tuple[str, bytes]] = []
    numbers = Random(3)
    for _ in range(30):
        outcome, finding = fuzzer.run(
            "filter", numbers.getrandbits(48), lambda recipe, data: told.append((recipe, data))
        )
        assert finding is None
        recipe, data = told[-1]
        assert fuzzer.replay("filter", Recipe.parse(recipe)) == (data, outcome)


@pytest.mark.parametrize(
    ("target", "kind"),
    [
        (planted.REFUSES, Kind.REFUSED),
        (planted.RAISES, Kind.WRONG_ERROR),
        (planted.LIES, Kind.WRONG_RESULT),
        (planted.SAYS_NOTHING, Kind.UNPLACED_ERROR),
        (planted.SAYS_NONSENSE, Kind.UNPLACED_ERROR),
        (planted.HIDES_MEMORY_ERROR, Kind.TOO_LARGE),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_planted_faults_are_told_apart(target: Target, kind: Kind) -> None:
    seed = Seed("planted", planted.SOUND)
    assert judge(target, Case(planted.SOUND, seed)).kind is Kind.WHOLE
    assert judge(target, Case(planted.SOUND + b"!", seed)).kind is kind


@pytest.mark.slow
def test_children_that_die_hang_or_grow_are_findings_and_the_run_goes_on(tmp_path: Path) -> None:
    names = ("LOOPS", "GRABS", "ABORTS", "REFUSES")
    targets = tuple(f"tests.fuzz.planted:{name}" for name in names)
    report = run_plan(Plan(targets=targets, seed=5, files=9, cpu_s=0.5, save=tmp_path))
    kinds = {(finding.target, finding.kind) for finding in report.findings}
    assert ("loops", Kind.TOO_SLOW) in kinds
    assert ("grabs", Kind.TOO_LARGE) in kinds
    assert {kind for name, kind in kinds if name == "aborts"} <= {Kind.CRASH, Kind.HANG}
    assert any(name == "aborts" for name, _ in kinds)
    assert report.tallies["refuses"].endings == {"refused": report.tallies["refuses"].files}
    died = next(f for f in report.findings if f.target == "aborts")
    assert Recipe.parse(died.recipe).seed == "planted"
    remade, _ = Fuzzer([planted.REFUSES], Corpus({}), None).replay(
        "refuses", Recipe.parse(died.recipe)
    )
    assert Path(died.saved).read_bytes() == died.data == remade


@pytest.mark.slow
def test_a_run_that_was_stopped_goes_on_behind_its_last_round(tmp_path: Path) -> None:
    targets = ("tests.fuzz.planted:REFUSES", "tests.fuzz.planted:LIES")
    plan = Plan(targets=targets, seed=3, round_files=40, state=tmp_path / "state.json")
    first = run_plan(replace(plan, files=90))
    assert first.files == 90  # ends in its third round, which is done again
    again = run_plan(replace(plan, files=120))
    assert again.files == 120
    assert again.tallies["refuses"].files == again.tallies["lies"].files == 60
    assert sum(again.faults.values()) == again.tallies["lies"].endings["wrong result"]
    with pytest.raises(OptionError, match="another run"):
        run_plan(replace(plan, files=120, seed=4))


def test_a_fuzzer_with_the_memory_of_another_goes_on_as_that_one() -> None:
    numbers = Random(8)
    one, other = (Fuzzer([TARGETS["filter"]], Corpus({}), None) for _ in range(2))
    for _ in range(80):
        one.run("filter", numbers.getrandbits(48), lambda _recipe, _data: None)
    memory = one.memory()
    assert memory.kept["filter"] and memory.edges
    other.recall(memory)
    for _ in range(40):
        made: list[tuple[str, bytes]] = []
        number = numbers.getrandbits(48)
        for fuzzer in (one, other):
            fuzzer.run("filter", number, lambda recipe, data: made.append((recipe, data)))  # noqa: B023
        assert made[:2] == made[2:]
    assert other.memory() == one.memory()


def test_a_report_survives_being_written(tmp_path: Path) -> None:
    report = Report(edges=5, seconds=1.5, empty=("hfile",))
    report.found(Finding("log", "s@1", Kind.CRASH, "exit code -6", "died", b"x", "saved"))
    report.counted({"log": Tally(2, 0.5, 0.25, {"refused": 2})}, 7)
    told = report.to_json()
    assert Report.from_json(json.loads(json.dumps(told))).to_json() == told
    assert told["endings"]["refused"] == 2 and told["files"] == 3
    assert "1 faults" in report.to_text() and "saved: saved" in report.to_text()


def test_coverage_counts_new_edges_once() -> None:
    tracer = EdgeTracer()
    limits = Limits()
    _, first = tracer.run(lambda: limits.too_large(1 << 40))
    assert first == 0  # the test room does not count
    target = TARGETS["filter"]
    seed = Seed("one", b"n = 1")
    _, new = tracer.run(lambda: judge(target, Case(seed.data, seed)))
    _, again = tracer.run(lambda: judge(target, Case(seed.data, seed)))
    assert new > 50 and again < new / 10 and tracer.edges >= new


def test_the_sound_beginning_of_a_mutant_is_found() -> None:
    seed = Seed("s", b"abcdef")
    for data, length in ((b"abcdef", 6), (b"abXdef", 2), (b"", 0), (b"abcdefgh", 6), (b"abc", 3)):
        assert Case(data, seed).sound_bytes == length


def test_seeds_are_what_the_builder_makes() -> None:
    with zipfile.ZipFile(hfile_seeds.ARCHIVE) as archive:
        assert {n: archive.read(n) for n in archive.namelist()} == hfile_seeds.made()


def test_the_command_replays_a_recipe_and_tells_wrong_usage(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["--tables", "nowhere", "--replay", "filter", "made:filter-0@"]) == 0
    assert "read whole" in capsys.readouterr().out
    assert main(["--replay", "filter", "no recipe"]) == 2
    assert main(["--targets", "no-such-target"]) == 2
    assert "Use one of" in capsys.readouterr().out
    with pytest.raises(OptionError):
        find_target("tests.fuzz.planted:SOUND")
