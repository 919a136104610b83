"""Records of a file group: selections, deletes, schemas."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakewright.errors import CorruptFileError, MetadataTableError
from lakewright.metadata.records import (
    Everything,
    FileGroupReader,
    Keys,
    Part,
    Prefixes,
    decoded,
    living,
)
from lakewright.storage.local import LocalStorage
from tests.metadata.mdt_builder import TEXTS, files_value, log_blocks, reader

steps_ = st.lists(
    st.one_of(
        st.dictionaries(st.sampled_from("abcd"), st.integers(0, 99), max_size=4),
        st.lists(st.sampled_from("abcd"), unique=True, max_size=3),
    ),
    max_size=6,
)


def parts_of(steps: list[dict[str, int] | list[str]]) -> list[Part]:
    parts = []
    for step in steps:
        keys = pa.array([k.encode() for k in sorted(step)], pa.binary())
        values = None
        if isinstance(step, dict):
            values = pa.array([str(step[k]).encode() for k in sorted(step)], pa.binary())
        parts.append(Part(keys, values, None if values is None else "s", "x"))
    return [p for p in parts if len(p.keys)]


@given(steps_)
def test_newest_records_win_and_deletes_remove(steps: list[dict[str, int] | list[str]]) -> None:
    expected: dict[str, int] = {}
    for step in steps:
        if isinstance(step, dict):
            expected.update(step)
        else:
            for key in step:
                expected.pop(key, None)
    found = {}
    for part in living(parts_of(steps), newest_only=True):
        pairs = zip(part.keys.to_pylist(), part.values.to_pylist(), strict=True)
        found.update({k.decode(): int(v) for k, v in pairs})
    assert found == expected


@given(steps_)
def test_records_since_the_last_delete_are_kept_in_order(
    steps: list[dict[str, int] | list[str]],
) -> None:
    expected: dict[str, list[int]] = {}
    for step in steps:
        if isinstance(step, dict):
            for key, number in step.items():
                expected.setdefault(key, []).append(number)
        else:
            for key in step:
                expected.pop(key, None)
    found: dict[str, list[int]] = {}
    for part in living(parts_of(steps), newest_only=False):
        for key, text in zip(part.keys.to_pylist(), part.values.to_pylist(), strict=True):
            found.setdefault(key.decode(), []).append(int(text))
    assert found == expected


CONTENT = {k: files_value({k.decode(): 1}) for k in (b"aa", b"ab", b"b")}


def test_a_selection_reads_base_logs_and_deletes(tmp_path: Path) -> None:
    group = reader(tmp_path, CONTENT, [{b"ac": files_value({"x": 1})}, ["b", "aa", "zz"]])

    def keys(selection: Everything | Keys | Prefixes) -> list[list[bytes]]:
        return [p.keys.to_pylist() for p in group.read(selection)]

    assert keys(Everything()) == [[b"aa", b"ab", b"b"], [b"ac"], [b"b", b"aa", b"zz"]]
    assert keys(Prefixes((b"a",))) == [[b"aa", b"ab"], [b"ac"], [b"aa"]]
    wanted = pa.array([b"b", b"ac", b"no"], pa.binary())
    assert keys(Keys(wanted)) == [[b"b"], [b"ac"], [b"b"]]


def test_every_value_is_decoded_with_the_schema_beside_it(tmp_path: Path) -> None:
    base = reader(tmp_path, CONTENT, generation="D")
    parts = base.read(Everything())
    newer = FileGroupReader(
        LocalStorage(str(tmp_path)), None, log_blocks([{b"c": files_value({"x": 1})}], "D")
    ).read(Everything())
    mixed = [*parts, *newer, Part(newer[0].keys, newer[0].values, TEXTS["D"] + " ", "x")]
    runs = list(decoded(mixed, ("type", "filesystemMetadata")))
    assert [len(r.keys) for r in runs] == [4, 1]
    assert all(r.rows.column("type").to_pylist() == [2] * len(r.keys) for r in runs)


def test_records_without_the_asked_field_are_an_error(tmp_path: Path) -> None:
    parts = reader(tmp_path, CONTENT).read(Everything())
    with pytest.raises(MetadataTableError, match="lack somethingElse"):
        list(decoded(parts, ("somethingElse",)))
    odd = [Part(parts[0].keys, parts[0].values, '"string"', "x")]
    with pytest.raises(MetadataTableError, match="lack type"):
        list(decoded(odd, ("type",)))


def test_damage_inside_a_log_block_names_the_file_and_the_place(tmp_path: Path) -> None:
    (block,) = log_blocks([CONTENT])
    start = block.offset + block.length - 12 - len(block.content)
    content = bytearray(block.content)
    content[40] ^= 1
    group = FileGroupReader(
        LocalStorage(str(tmp_path)), None, [block._replace(content=memoryview(content))]
    )
    with pytest.raises(CorruptFileError) as caught:
        group.read(Everything())
    assert caught.value.context == {"path": "x.log", "offset": start}


@settings(max_examples=30)
@given(st.dictionaries(st.sampled_from("abcd"), st.integers(0, 9), max_size=4), steps_)
def test_keys_are_counted_without_reading_the_base_file(
    base: dict[str, int], steps: list[dict[str, int] | list[str]]
) -> None:
    alive = set(base)
    for step in steps:
        alive = alive | set(step) if isinstance(step, dict) else alive - set(step)
    blocks = [
        {k.encode(): files_value({k: n + 1}) for k, n in step.items()}
        if isinstance(step, dict)
        else step
        for step in steps
        if step
    ]
    stored = {k.encode(): files_value({k: n + 1}) for k, n in base.items()}
    with TemporaryDirectory() as folder:
        group = reader(Path(folder), stored or None, blocks)
        assert group.count() == len(alive)
