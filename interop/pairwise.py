"""Pairwise coverage: few combinations in which every allowed pair of values occurs.

`cover(axes, allowed)` is deterministic. It draws a large fixed sample of all combinations and goes
greedily: of the allowed ones it takes that with the most pairs not seen before, until none is
left. Pairs that no sampled combination has do not count; the sample is large enough that each
allowed pair of axes as small as ours occurs in it hundreds of times.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations

import numpy as np

SAMPLE = 60_000


def cover(
    axes: Mapping[str, Sequence[str]],
    allowed: Callable[[Mapping[str, str]], bool],
    cost: Callable[[Mapping[str, str]], float],
) -> list[dict[str, str]]:
    """Combinations that cover all allowed pairs, the richest first.

    The cost of a combination is counted against it in pairs, so that cheap ones do most of the
    work; it is a price, not a bar.
    """
    draw = np.random.default_rng(0)
    codes = np.stack([draw.integers(0, len(v), SAMPLE) for v in axes.values()], axis=1)
    chosen = [_named(axes, row) for row in codes]
    kept = np.array([allowed(candidate) for candidate in chosen])
    pairs = _pair_numbers(axes, codes[kept])
    candidates = [c for c, keep in zip(chosen, kept, strict=True) if keep]
    price = np.array([cost(candidate) for candidate in candidates])
    wanted = np.zeros(int(pairs.max()) + 1, dtype=bool)
    wanted[pairs.ravel()] = True
    picked = []
    while wanted.any():
        new = wanted[pairs].sum(axis=1)
        best = int(np.where(new > 0, new - price, -np.inf).argmax())
        wanted[pairs[best]] = False
        picked.append(candidates[best])
    return picked


def _named(axes: Mapping[str, Sequence[str]], codes: np.ndarray) -> dict[str, str]:
    return {name: values[code] for (name, values), code in zip(axes.items(), codes, strict=True)}


def _pair_numbers(axes: Mapping[str, Sequence[str]], codes: np.ndarray) -> np.ndarray:
    """For each combination the numbers of the pairs it has, one per pair of axes."""
    sizes = [len(values) for values in axes.values()]
    columns = []
    start = 0
    for left, right in combinations(range(len(sizes)), 2):
        columns.append(start + codes[:, left] * sizes[right] + codes[:, right])
        start += sizes[left] * sizes[right]
    return np.stack(columns, axis=1)
