"""One fuzzing process: choosing parents, making mutants, judging them, keeping what is new.

A mutant is named by a recipe: the seed it came from and the numbers of its changes. The recipe
alone gives the bytes back, whatever else a run did before. A mutant is kept as a parent if it ended
in a way not seen before or executed a pair of lines nobody executed before; the latter is measured
on a sample (see `coverage`). For a given seed number and corpus a run makes the same mutants every
time; what it has learnt is a `Memory`, with which another process goes on as this one would.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final

from lakewright.errors import OptionError
from lakewright.testing.fuzz.corpus import Corpus, Seed
from lakewright.testing.fuzz.coverage import EdgeTracer
from lakewright.testing.fuzz.judging import Case, Kind, Limits, Outcome, Target, judge
from lakewright.testing.fuzz.mutators import Tools, mutate

__all__ = ["Finding", "Fuzzer", "Memory", "Recipe", "schedule"]

_TRACED_EVERY: Final = 16
_KEPT_MAX: Final = 400
_CHANGES_MAX: Final = 8
_PARTNERS_MAX: Final = 24
_WARM_UP_SEEDS: Final = 6
_RECIPE: Final = re.compile(r"(.+)@([0-9.]*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Recipe:
    """How to make one mutant of a target."""

    seed: str
    changes: tuple[int, ...] = ()

    def __str__(self) -> str:
        return f"{self.seed}@{'.'.join(map(str, self.changes))}"

    @classmethod
    def parse(cls, text: str) -> Recipe:
        """Read what `str` wrote."""
        match = _RECIPE.fullmatch(text)
        if match is None:
            raise OptionError(
                f"{text!r} is not a recipe.", hint="A recipe is <seed name>@<number>.<number>…"
            )
        return cls(match[1], tuple(int(n) for n in match[2].split(".") if n))


@dataclass(frozen=True, slots=True)
class Finding:
    """A mutant that a reader did not take as it must."""

    target: str
    recipe: str
    kind: Kind
    where: str
    detail: str
    data: bytes = b""
    saved: str = ""
    """Where the bytes were written to."""

    @property
    def key(self) -> tuple[str, str, str]:
        """Equal for mutants that very likely show the same fault."""
        return self.target, self.kind.value, self.where


@dataclass(frozen=True, slots=True)
class Memory:
    """What a fuzzer knows besides its seeds: kept mutants and endings by target, edges."""

    kept: Mapping[str, list[str]] = field(default_factory=dict)
    endings: Mapping[str, list[str]] = field(default_factory=dict)
    edges: Sequence[int] = ()


@dataclass(slots=True)
class _Parent:
    recipe: Recipe
    data: bytes
    seed: Seed


@dataclass(slots=True)
class _State:
    """What one process knows about one target."""

    target: Target
    parents: list[_Parent]
    seeds: int
    tools: Tools
    endings: set[str] = field(default_factory=set)


class Fuzzer:
    """Runs mutants of some targets in this process."""

    def __init__(self, targets: Sequence[Target], corpus: Corpus, limits: Limits | None) -> None:
        self._limits = limits
        self._tracer = EdgeTracer()
        self._states = {t.name: _state(t, corpus) for t in targets}
        self.empty = [n for n, s in self._states.items() if not s.seeds]
        """Targets for which the corpus has no seed."""

    @property
    def edges(self) -> int:
        """Pairs of lines that were executed one after the other."""
        return self._tracer.edges

    def memory(self) -> Memory:
        """What another fuzzer needs to go on as this one."""
        states = self._states.items()
        return Memory(
            {n: [str(p.recipe) for p in s.parents[s.seeds :]] for n, s in states},
            {n: sorted(s.endings) for n, s in states},
            self._tracer.seen,
        )

    def recall(self, memory: Memory) -> None:
        """Go on from what another fuzzer of the same targets and seeds knew."""
        self._tracer = EdgeTracer(memory.edges)
        for name, state in self._states.items():
            recipes = map(Recipe.parse, memory.kept.get(name, ()))
            state.parents[state.seeds :] = [self._made(state, recipe) for recipe in recipes]
            state.endings = set(memory.endings.get(name, ()))

    def warm_up(self) -> list[Finding]:
        """Read undamaged seeds, so that everything gets loaded; none of them may be a finding."""
        warnings.simplefilter("error", RuntimeWarning)
        findings = []
        for state in self._states.values():
            for parent in state.parents[: state.seeds : 1 + state.seeds // _WARM_UP_SEEDS]:
                outcome = self._judged(state, parent.data, parent.seed)[0]
                state.endings.add(outcome.where)
                if outcome.kind.is_finding:
                    findings.append(_finding(state.target, parent.recipe, outcome, parent.data))
        if self._limits is not None:
            self._limits.enter()
        return findings

    def run(
        self, name: str, number: int, announce: Callable[[str, bytes], None]
    ) -> tuple[Outcome, Finding | None]:
        """Make and judge one mutant; `announce` is told recipe and bytes before they are read."""
        state = self._states[name]
        random = Random(number)  # noqa: S311 - repeatable, not secret
        parent = _chosen(state, random)
        change = random.getrandbits(48)
        recipe = Recipe(parent.recipe.seed, (*parent.recipe.changes, change))
        announce(str(recipe), b"")
        data = mutate(parent.data, change, state.tools)
        announce(str(recipe), data)
        traced = number % _TRACED_EVERY == 0
        outcome, new = self._judged(state, data, parent.seed, traced=traced)
        if outcome.kind.is_finding:
            return outcome, _finding(state.target, recipe, outcome, data)
        if outcome.where not in state.endings:
            state.endings.add(outcome.where)
            new += 1
        if new and len(recipe.changes) < _CHANGES_MAX:
            state.parents.append(_Parent(recipe, data, parent.seed))
            if len(state.parents) > state.seeds + _KEPT_MAX:
                del state.parents[state.seeds + random.randrange(_KEPT_MAX // 2)]
        return outcome, None

    def replay(self, name: str, recipe: Recipe) -> tuple[bytes, Outcome]:
        """The bytes of one recipe, and how its target takes them."""
        state = self._states[name]
        made = self._made(state, recipe)
        return made.data, self._judged(state, made.data, made.seed)[0]

    def _made(self, state: _State, recipe: Recipe) -> _Parent:
        seeds = state.parents[: state.seeds]
        parent = next((p for p in seeds if p.recipe.seed == recipe.seed), None)
        if parent is None:
            raise OptionError(
                f"The corpus of {state.target.name} has no seed {recipe.seed!r}.",
                hint="Give the folders of tables that the recipe was found with.",
            )
        data = parent.data
        for change in recipe.changes:
            data = mutate(data, change, state.tools)
        return _Parent(recipe, data, parent.seed)

    def read(self, name: str, data: bytes) -> Outcome:
        """How a target takes bytes of unknown origin."""
        return judge(self._states[name].target, Case(data, Seed("", data)), self._limits)

    def _judged(
        self, state: _State, data: bytes, seed: Seed, *, traced: bool = False
    ) -> tuple[Outcome, int]:
        case = Case(data, seed, state.tools.partners)
        if not traced:
            return judge(state.target, case, self._limits), 0
        return self._tracer.run(lambda: judge(state.target, case, self._limits))


def _state(target: Target, corpus: Corpus) -> _State:
    seeds = target.seeds(corpus)
    parents = [_Parent(Recipe(s.name), s.data, s) for s in seeds]
    partners = [s.data for s in seeds[:_PARTNERS_MAX]]
    return _State(target, parents, len(seeds), Tools(target.tokens, partners, target.shapes))


def _chosen(state: _State, random: Random) -> _Parent:
    """A seed or a kept mutant, half of the time each."""
    kept = len(state.parents) - state.seeds
    if kept and random.random() < 0.5:
        return state.parents[state.seeds + random.randrange(kept)]
    return state.parents[random.randrange(state.seeds)]


def _finding(target: Target, recipe: Recipe, outcome: Outcome, data: bytes) -> Finding:
    return Finding(target.name, str(recipe), outcome.kind, outcome.where, outcome.detail, data)


def schedule(targets: Sequence[Target]) -> Iterator[str]:
    """Names of targets for ever, each as often as its share says, well mixed."""
    due = {t.name: 0.0 for t in targets}
    shares = {t.name: t.share for t in targets}
    while True:
        name = min(due, key=lambda n: due[n])
        due[name] += 1 / shares[name]
        yield name
