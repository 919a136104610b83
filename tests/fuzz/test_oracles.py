"""The oracles: a reader that gives wrong rows for damaged files is caught by its target."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lakewright.codec.hfile import HFile, encode_hfile
from lakewright.testing.fuzz import Case, Corpus, Kind, Seed
from lakewright.testing.fuzz.hfile_model import UnreadableError, model_cells
from lakewright.testing.fuzz.judging import judge
from lakewright.testing.fuzz.log_model import model_log_file
from lakewright.testing.fuzz.made import log_files, parquet_files
from lakewright.testing.fuzz.properties_model import MalformedError, model_properties
from lakewright.testing.fuzz.targets import TARGETS, hfiles, logs, parquet, tables, texts
from tests.fuzz import hfile_seeds

TABLES = Path(__file__).resolve().parents[1] / "tables"
TWO_BLOCKS = Seed("two", log_files()["avro"])
TORN = Case(TWO_BLOCKS.data[:-20], TWO_BLOCKS)
PATCH = pytest.MonkeyPatch


def _ending(target: str, case: Case) -> tuple[Kind, str]:
    outcome = judge(TARGETS[target], case)
    return outcome.kind, outcome.detail


def _after(module: Any, name: str, change: Callable[[Any], Any], patch: PATCH) -> None:
    real = getattr(module, name)
    patch.setattr(module, name, lambda *a, **k: change(real(*a, **k)))


def test_a_torn_end_is_a_valid_prefix_and_a_hole_is_skipped() -> None:
    data = TWO_BLOCKS.data
    assert _ending("log", Case(data, TWO_BLOCKS))[0] is Kind.WHOLE
    assert _ending("log", TORN)[0] is Kind.PREFIX
    assert _ending("log", Case(data + b"#HU", TWO_BLOCKS))[0] is Kind.PREFIX
    hole = Case(data[:6] + b"\x7f" + data[7:], TWO_BLOCKS)
    assert _ending("log", hole)[0] is Kind.SKIPPED


def test_a_block_that_is_lost_is_caught(monkeypatch: PATCH) -> None:
    _after(logs, "read_blocks", lambda blocks: blocks[1:], monkeypatch)
    assert _ending("log", TORN) == (Kind.WRONG_RESULT, "regions differ from the model's")


def test_a_corrupt_region_that_is_not_told_is_caught(monkeypatch: PATCH) -> None:
    _after(logs, "select_blocks", lambda chosen: replace(chosen, corrupt=[]), monkeypatch)
    assert _ending("log", TORN) == (Kind.WRONG_RESULT, "a corrupt region was not reported")


def test_rows_that_are_lost_from_an_untouched_block_are_caught(monkeypatch: PATCH) -> None:
    assert _ending("log", TORN)[0] is Kind.PREFIX
    _after(logs, "avro_rows", lambda rows: rows.slice(1), monkeypatch)
    assert _ending("log", TORN) == (Kind.WRONG_RESULT, "an undamaged block gave other rows")


def test_rows_of_a_changed_block_that_are_not_in_it_are_caught(monkeypatch: PATCH) -> None:
    _after(logs, "avro_rows", lambda rows: rows.take(list(range(rows.num_rows))[::-1]), monkeypatch)
    found = set()
    for letter in b"abcdefgh":  # some of these are held against fastavro
        data = TWO_BLOCKS.data.replace(b"k3", bytes([107, letter]))
        found.add(_ending("log", Case(data, TWO_BLOCKS)))
    assert (Kind.WRONG_RESULT, "rows differ from fastavro's") in found


def test_shifted_cells_are_caught(monkeypatch: PATCH) -> None:
    data = hfile_seeds.made()["plain.hfile"]
    seed = Seed("plain", data)
    assert _ending("hfile", Case(data, seed))[0] is Kind.WHOLE

    def shifted(file: HFile) -> tuple[pa.Array, pa.Array]:
        keys, values = real(file)
        return keys, pa.concat_arrays([values[1:], values[:1]])

    real = HFile.cells
    monkeypatch.setattr(hfiles.HFile, "cells", shifted)
    kind, why = _ending("hfile", Case(data, seed))
    assert (kind, why) == (Kind.WRONG_RESULT, "cells differ from the plain reader's")


def test_cells_of_no_file_that_a_mutant_is_made_of_are_caught() -> None:
    one, other = (
        encode_hfile(pa.array([key], pa.binary()), pa.array([b"v"], pa.binary()))
        for key in (b"one", b"other")
    )
    assert _ending("hfile", Case(other, Seed("one", one), (one, other)))[0] is Kind.WHOLE
    kind, why = _ending("hfile", Case(other, Seed("one", one), (one,)))
    assert kind is Kind.WRONG_RESULT and why.startswith("invented cells: [(b'other'")


@pytest.mark.parametrize("name", sorted(hfile_seeds.made()))
def test_the_plain_reader_of_hfiles_reads_what_was_written(name: str) -> None:
    data = hfile_seeds.made()[name]
    keys, values = HFile(data, path="f").cells()
    assert model_cells(data) == list(zip(keys.to_pylist(), values.to_pylist(), strict=True))
    with pytest.raises(UnreadableError):
        model_cells(data[:50])


def test_values_of_an_untouched_column_are_held_against_the_seed(monkeypatch: PATCH) -> None:
    data = parquet_files()["flat-plain"]
    seed = Seed("flat", data)
    case = Case(data.replace(b"key-3", b"key-9", 1), seed)
    assert _ending("parquet", case)[0] is Kind.WHOLE  # its pages have no checksums
    _after(
        parquet,
        "read_columns",
        lambda t: t.set_column(1, "n", t["n"].take([0, 1, 2, 3, 5, 4])),
        monkeypatch,
    )
    assert _ending("parquet", case) == (
        Kind.WRONG_RESULT,
        "other values in the untouched column n",
    )


def test_pairs_that_are_not_in_a_text_are_caught(monkeypatch: PATCH) -> None:
    data = b"a=1\nhoodie.table.name=t\n"
    _after(texts, "parse_properties", lambda pairs: pairs | {"a": "2"}, monkeypatch)
    kind, why = _ending("properties", Case(data, Seed("", data)))
    assert (kind, why) == (Kind.WRONG_RESULT, "other pairs than the plain reader's")


def test_the_plain_reader_of_properties_knows_the_syntax() -> None:
    text = b"! no\n \t a\\ b : c\\\r\n   d \r\n\x0ck=\\u00e9\\t\\q\nlone\n=v\n\\\n"
    assert model_properties(text) == {"a b": "cd ", "k": "é\tq", "lone": "", "": "v"}
    with pytest.raises(MalformedError):
        model_properties(b"a=\\u12g4")


def test_the_plain_reader_of_logs_finds_every_region() -> None:
    model = model_log_file(log_files()["cut"])
    assert [block.content is None for block in model.blocks] == [False, True, False]


@pytest.mark.parametrize("change", [lambda t: t.slice(1), lambda t: pa.concat_tables([t, t[:1]])])
def test_rows_lost_or_doubled_in_a_whole_table_are_caught(
    change: Callable[[pa.Table], pa.Table], monkeypatch: PATCH
) -> None:
    target = TARGETS["slice"]
    place = TABLES / "v6_mor_updates_bucket.zip"
    seed = next(s for s in target.seeds(Corpus.load([place])) if ".log." in s.name)
    torn = Case(seed.data[:-9], seed)
    assert judge(target, torn).kind is Kind.PREFIX
    untouched = tables._rows

    def wrong(*arguments: Any) -> pa.Table:
        rows = untouched(*arguments)
        hidden = tables._keys_of_file(torn, seed.name.partition("#")[2])
        others = [key not in hidden for key in tables._keys(rows)]
        return pa.concat_tables(
            [rows.filter([not other for other in others]), change(rows.filter(others))]
        )

    monkeypatch.setattr(tables, "_rows", wrong)
    assert judge(target, torn).kind is Kind.WRONG_RESULT
