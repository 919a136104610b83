"""Finding keys: exactly what a dictionary finds, whatever the keys."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakewright.merge.key_index import KeyIndex

KEYS = st.one_of(
    st.text(max_size=3),
    st.text(alphabet="ab", max_size=24),
    st.from_regex(r"[0-9]{1,12}", fullmatch=True),
    st.builds(lambda n, m: f"0000000{n}-same-{m}0000000", st.integers(0, 9), st.integers(0, 9)),
)


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
@given(
    known=st.lists(KEYS, unique=True, max_size=40), wanted=st.lists(st.none() | KEYS, max_size=40)
)
def test_each_key_is_found_where_a_dictionary_finds_it(
    kind: pa.DataType, known: list[str], wanted: list[str | None]
) -> None:
    places = {key: place for place, key in enumerate(known)}
    asked = [*wanted, *known[::2]]
    expected = [-1 if key is None else places.get(key, -1) for key in asked]
    found = KeyIndex(pa.array(known, kind)).locate(pa.array(asked, kind))
    assert found.tolist() == expected


def test_slices_of_arrays_are_searched_from_their_offset() -> None:
    known = pa.array([f"key-{n:08d}" for n in range(100)])
    wanted = pa.array([f"key-{n:08d}" for n in range(0, 300, 2)])
    found = KeyIndex(known.slice(10, 50)).locate(wanted.slice(3, 60))
    expected = [n - 10 if 10 <= n < 60 else -1 for n in range(6, 126, 2)]
    assert found.tolist() == expected


def test_keys_with_equal_ends_are_still_told_apart() -> None:
    known = pa.array([f"begin-00-{n:04d}-00000000" for n in range(50)])
    wanted = pa.array([f"begin-00-{n:04d}-00000000" for n in range(40, 60)])
    assert KeyIndex(known).locate(wanted).tolist() == [*range(40, 50), *[-1] * 10]


def test_keys_that_are_no_text_are_found_too() -> None:
    assert KeyIndex(pa.array([5, 7])).locate(pa.array([7, None, 6])).tolist() == [1, -1, -1]


def test_many_strangers_leave_every_key_in_its_place() -> None:
    known = pa.array([f"{n * 7919:036x}" for n in range(5000)])
    wanted = pa.array([f"{n:036x}" for n in range(0, 5000 * 7919, 997)])
    places = {key: place for place, key in enumerate(known.to_pylist())}
    expected = [places.get(key, -1) for key in wanted.to_pylist()]
    assert KeyIndex(known).locate(wanted).tolist() == expected
