"""Names of base and log files."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakewright.errors import UnsupportedTableError
from lakewright.format.file_names import (
    BaseFileName,
    LogFileName,
    log_order_key,
    parse_data_file,
    parse_log_file,
)

FILE_IDS = st.from_regex(r"[A-Za-z0-9-]+", fullmatch=True)
TOKENS = st.tuples(*[st.integers(0, 10**6)] * 3).map(lambda t: "-".join(map(str, t)))
INSTANTS = st.from_regex(r"[0-9]{1,20}", fullmatch=True)
BASE_NAMES = st.builds(BaseFileName, FILE_IDS, TOKENS, INSTANTS, st.sampled_from([".parquet"]))
LOG_NAMES = st.one_of(
    st.builds(
        LogFileName,
        FILE_IDS,
        INSTANTS,
        st.integers(0, 10**6),
        TOKENS,
        st.sampled_from(["", ".cdc"]),
    ),
    st.builds(LogFileName, FILE_IDS, INSTANTS, st.integers(0, 10**6), st.none()),
)


def test_a_real_base_name_falls_into_its_parts() -> None:
    name = "a079bdb3-731c-4894-b855-abfcd6921007-0_0-182-253_20240418173550988.parquet"
    parsed = parse_data_file(name)
    assert parsed == BaseFileName(
        "a079bdb3-731c-4894-b855-abfcd6921007-0", "0-182-253", "20240418173550988", ".parquet"
    )
    assert parsed.text == name


def test_a_real_log_name_falls_into_its_parts() -> None:
    name = ".d0304c53-6fd2-4b7a-a9d6-5ff632f79224-0_20250331030642808.log.1_0-26-85"
    parsed = parse_data_file(name)
    assert parsed == LogFileName(
        "d0304c53-6fd2-4b7a-a9d6-5ff632f79224-0", "20250331030642808", 1, "0-26-85"
    )
    assert parsed.text == name


def test_a_bootstrap_file_id_without_counter_is_accepted() -> None:
    name = "4b3de422-afe5-4286-a978-0e1fd511b2df_0-1-2_001.parquet"
    assert parse_data_file(name) == BaseFileName(
        "4b3de422-afe5-4286-a978-0e1fd511b2df", "0-1-2", "001", ".parquet"
    )


def test_change_logs_and_old_logs_without_token_are_recognised() -> None:
    change = parse_data_file(".f-0_20250101000000000.log.1_0-12-34.cdc")
    assert isinstance(change, LogFileName) and change.is_cdc and change.write_token == "0-12-34"
    old = parse_data_file(".f-0_20250101000000000.log.7")
    assert old == LogFileName("f-0", "20250101000000000", 7, None)


def test_archived_timeline_logs_share_the_shape_but_are_no_data_files() -> None:
    name = ".commits_.archive.2_1-0-1"
    assert parse_data_file(name) is None
    archived = parse_log_file(name)
    assert archived == LogFileName("commits", "", 2, "1-0-1", "", ".archive")
    assert archived.text == name


@pytest.mark.parametrize(
    "name",
    [
        ".hoodie_partition_metadata",
        "..f-0_1.log.1_0-1-2.crc",
        ".f-0_1.log.1_0-1-2.crc",
        ".f-0_0-1-2_1.parquet.crc",
        "._f-0_0-1-2_1.parquet",
        "_SUCCESS",
        "f-0_0-1-2_1.parquet\n",
        "f-0_0-1-2_1a.parquet",
        "f-0_0-1-2_1.csv",
        "f-0_0-1-2.parquet",
        "f_0_0-1-2_1.parquet",
        ".f-0_1.log.x_0-1-2",
        ".f-0_1.log.1_0-1",
        "",
    ],
)
def test_other_names_are_no_data_files(name: str) -> None:
    assert parse_data_file(name) is None


def test_files_registered_from_outside_are_refused_by_name() -> None:
    with pytest.raises(UnsupportedTableError, match="outside Hudi"):
        parse_data_file("part-0001.parquet_20250101000000000_hudiext")


@given(st.one_of(BASE_NAMES, LOG_NAMES))
def test_formatting_and_parsing_are_inverse(name: BaseFileName | LogFileName) -> None:
    assert parse_data_file(name.text) == name


@given(st.text(max_size=60))
def test_any_text_parses_or_does_not(text: str) -> None:
    parsed = parse_data_file(text)
    assert parsed is None or parsed.text.removesuffix(".cdc")


def test_logs_order_by_instant_version_token_text_and_suffix() -> None:
    ordered = [
        LogFileName("f", "1", 1, None),
        LogFileName("f", "1", 1, "10-1-1"),
        LogFileName("f", "1", 1, "2-1-1"),
        LogFileName("f", "1", 1, "2-1-1", ".cdc"),
        LogFileName("f", "1", 2, "0-0-0"),
        LogFileName("f", "1", 10, "0-0-0"),
        LogFileName("f", "2", 1, "0-0-0"),
    ]
    for shuffled in itertools.islice(itertools.permutations(ordered), 0, 5040, 97):
        assert sorted(shuffled, key=log_order_key) == ordered
