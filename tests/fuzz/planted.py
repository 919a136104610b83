"""Readers with planted faults: what the fuzzer must find."""

from __future__ import annotations

import os

from lakewright.errors import CorruptFileError
from lakewright.testing.fuzz import Case, Corpus, Seed, Target
from lakewright.testing.fuzz.judging import PATH, demand

SOUND = b"sound file " * 4


def _seeds(corpus: Corpus) -> list[Seed]:
    del corpus
    return [Seed("planted", SOUND)]


def _damaged(case: Case) -> bool:
    return case.data != SOUND


def _refuses(case: Case) -> None:
    if _damaged(case):
        where = {"path": PATH, "offset": case.sound_bytes}
        raise CorruptFileError("Damaged.", hint="Restore it.", context=where)


def _raises(case: Case) -> None:
    if _damaged(case):
        raise KeyError("planted")


def _lies(case: Case) -> None:
    demand(not _damaged(case), "planted wrong row")


def _says_nothing(case: Case) -> None:
    if _damaged(case):
        raise CorruptFileError("Somewhere.", hint="Search.", context={"path": PATH})


def _says_nonsense(case: Case) -> None:
    if _damaged(case):
        where = {"path": PATH, "offset": len(case.data) + 1}
        raise CorruptFileError("Behind the end.", hint="Search.", context=where)


def _hides_memory_error(case: Case) -> None:
    if _damaged(case):
        try:
            raise MemoryError
        except MemoryError as error:
            where = {"path": PATH, "offset": 0}
            raise CorruptFileError("No.", hint="None.", context=where) from error


def _loops(case: Case) -> None:
    while _damaged(case):
        pass


def _grabs(case: Case) -> None:
    if _damaged(case):
        held = b"x" * (400 << 20)
        demand(len(held) == 400 << 20, "nothing")


def _aborts_or_never_returns(case: Case) -> None:
    if _damaged(case) and len(case.data) % 2:
        os.abort()
    if _damaged(case):
        sum(range(10**12))  # stays in C: no exception can be raised into it


def _target(name: str, check: object, *, share: int = 4) -> Target:
    return Target(
        name=name,
        about="planted",
        seeds=_seeds,
        check=check,  # type: ignore[arg-type]
        share=share,
    )


REFUSES = _target("refuses", _refuses)
RAISES = _target("raises", _raises)
LIES = _target("lies", _lies)
SAYS_NOTHING = _target("says-nothing", _says_nothing)
SAYS_NONSENSE = _target("says-nonsense", _says_nonsense)
HIDES_MEMORY_ERROR = _target("hides", _hides_memory_error)
LOOPS = _target("loops", _loops)
GRABS = _target("grabs", _grabs)
ABORTS = _target("aborts", _aborts_or_never_returns, share=1)
