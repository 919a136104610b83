"""Keys that several file groups have: which of these places still mean anything.

A record index forgets keys that were deleted, and their next rows go into other file groups, while
the base files below the deletes still have them. Whoever looks into files finds both; a row written
to both would live twice. So of the places of such a key those without a living row are left out,
and if none lives, one is kept. Rows that a table really has twice are all changed, as Hudi does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from lakewright.engine.keyed.log_lookup import LogQuestion
from lakewright.engine.keyed.lookup import Hits, Int32s
from lakewright.format.file_slices import FileSlice
from lakewright.merge.columns import Bools, Int64s

__all__ = ["living_places"]


def living_places(
    hits: Hits,
    slices: Sequence[FileSlice | None],
    ask: Callable[[Sequence[LogQuestion]], Hits],
    *,
    scopes: Int32s | None = None,
) -> Hits:
    """The places of keys, without dead ones beside others; `hits.files` number `slices`.

    A key may be in one file of every scope, which are those of the files; without them in one of
    all. `ask` tells which keys live in slices whose logs may have deleted them.
    """
    if not len(hits.codes) or np.bincount(hits.codes).max() < 2:
        return hits
    scope = hits.codes.astype(np.int64)
    if scopes is not None:
        scope = scope * (int(scopes.max()) + 1) + scopes[hits.files]
    doubtful = _in_several_files(scope, hits.files)
    questions = [
        LogQuestion(int(n), np.unique(hits.codes[doubtful & (hits.files == n)]), slice_, whole=True)
        for n in np.unique(hits.files[doubtful])
        if (slice_ := slices[n]) is not None and slice_.logs
    ]
    if not questions:
        return hits
    found = ask(questions)
    living = np.ones(len(hits.codes), dtype=np.bool_)
    for question in questions:
        here = doubtful & (hits.files == question.number)
        living[here] = np.isin(hits.codes[here], found.codes[found.files == question.number])
    return hits.at(np.flatnonzero(living | _first_of_the_dead(scope, hits.files, living)))


def _in_several_files(scope: Int64s, files: Int32s) -> Bools:
    """Which places are of keys that are in more than one file of a scope."""
    _, first, number = np.unique(scope, return_index=True, return_inverse=True)
    elsewhere = files != files[first][number]
    several: Bools = np.isin(number, number[elsewhere])
    return several


def _first_of_the_dead(scope: Int64s, files: Int32s, living: Bools) -> Bools:
    """Of keys that live nowhere the places in one file."""
    _, first, number = np.unique(scope, return_index=True, return_inverse=True)
    lives = np.isin(number, number[living])
    chosen: Bools = ~lives & (files == files[first][number])
    return chosen
