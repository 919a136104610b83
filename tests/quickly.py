"""Long lists of cases: a few of them in the quick suite, the others among the slow tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

__all__ = ["a_few_quickly"]


def a_few_quickly(cases: Sequence[Any], few: int) -> list[Any]:
    """All cases as parameters; `few` of them, evenly spread over the list, are quick."""
    step = max(1, -(-len(cases) // few))
    return [
        pytest.param(
            *(case if isinstance(case, tuple) else (case,)),
            marks=() if number % step == 0 else (pytest.mark.slow,),
        )
        for number, case in enumerate(cases)
    ]
