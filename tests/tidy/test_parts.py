"""Parts of the slow tests."""

from __future__ import annotations

import pytest

from tests.parts import Part


def test_every_test_is_in_exactly_one_part() -> None:
    names = [f"tests/a/test_b.py::test_c[{n}]" for n in range(300)]
    parts = [Part.parse(f"{k}/3") for k in range(3)]
    assert all(sum(part.has(name) for part in parts) == 1 for name in names)
    assert all(sum(map(part.has, names)) > 60 for part in parts)


@pytest.mark.parametrize("text", ["", "3", "3/3", "-1/3", "a/b", "0/0", "1/"])
def test_what_is_no_part_is_refused(text: str) -> None:
    with pytest.raises(pytest.UsageError, match="0/3"):
        Part.parse(text)
