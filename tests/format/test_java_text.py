"""Numbers and times as the JVM writes them. Expected texts were printed by Java 17."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakewright.format.java_text import (
    decimal_text,
    floating_text,
    hex_text,
    sql_timestamp_text,
    widened_through_text,
)

DOUBLES = [
    ("0x0.0p0", "0.0"),
    ("-0x0.0p0", "-0.0"),
    ("0x1.0p0", "1.0"),
    ("0x1.9p6", "100.0"),
    ("0x1.0624dd2f1a9fcp-10", "0.001"),
    ("0x1.05e1c15097c81p-10", "9.99E-4"),
    ("0x1.312dp23", "1.0E7"),
    ("0x1.312cfep23", "9999999.0"),
    ("0x1.a36e2eb1c432dp-14", "1.0E-4"),
    ("0x1.2a05f2p33", "1.0E10"),
    ("0x1.5555555555555p-2", "0.3333333333333333"),
    ("0x1.0624dd2f1a9fcp-9", "0.002"),
    ("0x1.52d02c7e14af6p76", "9.999999999999999E22"),
    ("0x1.52d02c7e14af6p77", "1.9999999999999998E23"),
    ("0x1.c7e83209e90b2p72", "8.409999999999999E21"),
    ("0x0.0000000000001p-1022", "4.9E-324"),
    ("0x0.000000000000ap-1022", "4.9E-323"),
    ("0x0.0000000000002p-1022", "1.0E-323"),
    ("0x0.0000000000014p-1022", "1.0E-322"),
    ("0x1.0p-44", "5.6843418860808015E-14"),
    ("0x1.0p60", "1.15292150460684698E18"),
    ("0x1.0p63", "9.223372036854776E18"),
    ("0x1.0p1023", "8.98846567431158E307"),
    ("0x1.0p63", "9.223372036854776E18"),
    ("0x1.d6f34548p26", "1.23456789125E8"),
    ("0x1.0p53", "9.007199254740992E15"),
    ("0x1.fffffffffffffp1023", "1.7976931348623157E308"),
    ("0x1.0p-1022", "2.2250738585072014E-308"),
    ("0x1.ae22487c1042bp84", "3.25E25"),
    ("NaN", "NaN"),
    ("inf", "Infinity"),
    ("-inf", "-Infinity"),
    ("-0x1.34ap10", "-1234.5"),
    ("0x1.78c29dccccccdp23", "1.23456789E7"),
]
FLOATS = [
    ("0x1.19999ap0", "1.1"),
    ("0x1.faa3b4p34", "3.3999999E10"),
    ("0x1.2a05f2p33", "1.0E10"),
    ("0x1.0p24", "1.6777216E7"),
    ("0x1.0p25", "3.3554432E7"),
    ("0x1.0p-126", "1.17549435E-38"),
    ("0x0.000002p-126", "1.4E-45"),
    ("0x0.00000ep-126", "9.8E-45"),
    ("0x0.00008cp-126", "9.8E-44"),
    ("0x1.fffffep127", "3.4028235E38"),
    ("0x1.99999ap-4", "0.1"),
    ("0x1.0p23", "8388608.0"),
    ("0x1.0p83", "9.6714065E24"),
    ("0x1.0624dep-10", "0.001"),
    ("0x1.312dp23", "1.0E7"),
    ("0x1.e240b4p16", "123456.7"),
    ("0x1.dcd65p30", "2.0E9"),
]


def test_doubles_are_written_as_java_writes_them() -> None:
    array = pa.array([float.fromhex(bits) for bits, _ in DOUBLES] + [None], pa.float64())
    assert floating_text(array).to_pylist() == [*(text for _, text in DOUBLES), None]


def test_floats_are_written_as_java_writes_them() -> None:
    array = pa.array([float.fromhex(bits) for bits, _ in FLOATS] + [None], pa.float32())
    assert floating_text(array).to_pylist() == [*(text for _, text in FLOATS), None]


def test_a_float_becomes_the_double_of_its_text() -> None:
    array = pa.array([float.fromhex(bits) for bits, _ in FLOATS], pa.float32())
    assert widened_through_text(array).to_pylist() == [float(text) for _, text in FLOATS]
    odd = pa.array([float("inf"), None, -float("inf")], pa.float32())
    assert widened_through_text(odd).to_pylist() == [float("inf"), None, -float("inf")]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.floats(allow_nan=False, width=64), max_size=20), st.integers(0, 3))
def test_text_of_a_double_reads_back_as_the_same_double(values: list[float], start: int) -> None:
    array = pa.array([0.5] * start + values, pa.float64())[start:]
    assert [float(text) for text in floating_text(array).to_pylist()] == values


@settings(max_examples=200, deadline=None)
@given(st.lists(st.floats(allow_nan=False, width=32), max_size=20))
def test_text_of_a_float_reads_back_as_the_same_float(values: list[float]) -> None:
    texts = floating_text(pa.array(values, pa.float32())).to_pylist()
    assert [np.float32(text) for text in texts] == [np.float32(v) for v in values]


@pytest.mark.parametrize(
    ("value", "scale", "text"),
    [
        ("50.00", 2, "50.00"),
        ("0.0000001", 7, "1E-7"),
        ("1E-10", 10, "1E-10"),
        ("0.000001", 6, "0.000001"),
        ("0E-7", 7, "0E-7"),
        ("-0.0000010", 7, "-0.0000010"),
        ("123456789012345678901234567890.12345678", 8, "123456789012345678901234567890.12345678"),
    ],
)
def test_decimals_have_an_exponent_only_when_tiny(value: str, scale: int, text: str) -> None:
    array = pa.array([Decimal(value), None], pa.decimal128(38, scale))
    assert decimal_text(array).to_pylist() == [text, None]


@pytest.mark.parametrize(
    ("millis", "text"),
    [
        (1483005240000, "2016-12-29 09:54:00.0"),
        (1483005240120, "2016-12-29 09:54:00.12"),
        (1483005240123, "2016-12-29 09:54:00.123"),
        (-1, "1969-12-31 23:59:59.999"),
        (-1000, "1969-12-31 23:59:59.0"),
        (0, "1970-01-01 00:00:00.0"),
    ],
)
def test_timestamps_are_sql_timestamps(millis: int, text: str) -> None:
    array = pa.array([None, millis], pa.timestamp("ms", "UTC"))
    assert sql_timestamp_text(array, zone="UTC").to_pylist() == [None, text]
    micros = pa.array([millis * 1000], pa.timestamp("us", "UTC"))
    assert sql_timestamp_text(micros, zone="UTC").to_pylist() == [text]


def test_timestamps_are_cut_toward_zero_and_told_in_the_zone() -> None:
    micros = pa.array([-1, 999, 1483005240000999], pa.timestamp("us", "UTC"))
    assert sql_timestamp_text(micros, zone="America/New_York").to_pylist() == [
        "1969-12-31 19:00:00.0",
        "1969-12-31 19:00:00.0",
        "2016-12-29 04:54:00.0",
    ]


@given(st.lists(st.none() | st.binary(max_size=9), max_size=9), st.integers(0, 2))
def test_bytes_become_lower_case_hex(values: list[bytes | None], start: int) -> None:
    array = pa.array([b"xx"] * start + values, pa.binary())[start:]
    assert hex_text(array).to_pylist() == [None if v is None else v.hex() for v in values]
