"""The rows of the corpus: deterministic values of every Spark type, keyed by number and generation.

A row is a function of its key number `i` and its generation `g`; the ordering value `ts` is chosen
by the history, so that late and equal event times can be made. Values include nulls, empty text,
text beyond ASCII, negative numbers and the edges of their types. Arrays hold no nulls and no
one-field structs: Hudi 0.15 and 1.0 cannot rewrite those.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

REGIONS = ("north", "south", "east")
ODD_REGIONS = ("a b", "ü%1", "c:d")
DAYS = ("2024-01-30", "2024-02-01")
DAY_MILLIS = 86_400_000
FIRST_DAY = 1_706_572_800_000  # 2024-01-30 UTC

KEY_COLUMNS = "id string, sub int, region string, day string, at_ms bigint, ts bigint"
PLAIN = "name string, amount double, pieces int, flag boolean"
FLAT = (
    "b boolean, i32 int, i64 bigint, f float, d double, s string, bin binary, "
    "dec decimal(10,2), big decimal(30,10), dt date, tm timestamp"
)
NESTED = (
    "st struct<a:int,b:string,c:struct<x:double,y:array<int>>>, arr array<bigint>, "
    "arrs array<struct<k:string,n:int>>, m map<string,int>, mm map<string,struct<u:string,v:int>>, "
    "aa array<array<string>>"
)
COLUMNS = {"plain": PLAIN, "flat": FLAT, "nested": NESTED}
NAMES = ("anna", "", "Jürgen", "日本語", "z'\"\\", "🚀 up", "tab\tnew\nline")


def schema(columns: str) -> str:
    """The Spark DDL of a set of columns with the key columns in front."""
    return f"{KEY_COLUMNS}, {COLUMNS[columns]}"


def row(i: int, g: int, ts: int, columns: str, regions: Sequence[str]) -> dict[str, Any]:
    """The row of key `i` in generation `g`."""
    made = {"plain": _plain, "flat": _flat, "nested": _nested}[columns](i, g)
    return {**key_part(i, ts, regions), **made}


def key_part(i: int, ts: int, regions: Sequence[str]) -> dict[str, Any]:
    """The columns that key generators and ordering use."""
    return {
        "id": f"k{i:02d}" if i % 4 else f"ключ,{i}",
        "sub": i % 3,
        "region": regions[i % len(regions)],
        "day": DAYS[i % len(DAYS)],
        "at_ms": FIRST_DAY + (i % 3) * DAY_MILLIS + i,
        "ts": ts,
    }


def _plain(i: int, g: int) -> dict[str, Any]:
    return {
        "name": None if (i + g) % 6 == 5 else f"{NAMES[i % len(NAMES)]}{g}",
        "amount": i * 1.25 + g if (i + g) % 5 else None,
        "pieces": g * 100 + i,
        "flag": (None, True, False)[(i + g) % 3],
    }


def _flat(i: int, g: int) -> dict[str, Any]:
    n = i + g
    if n % 7 == 6:
        return dict.fromkeys(name.split()[0] for name in FLAT.split(", "))
    sign = -1 if n % 2 else 1
    return {
        "b": n % 2 == 0,
        "i32": sign * (2_147_483_647 - n),
        "i64": sign * (9_223_372_036_854_775_807 - n),
        "f": sign * (0.1 + n),
        "d": sign * 1.1e300 / (n + 1),
        "s": f"{NAMES[i % len(NAMES)]}|{g}",
        "bin": base64.b64encode(bytes(range(n))).decode(),
        "dec": f"{sign * (99_999_999 - n)}.{n % 100:02d}",
        "big": f"{sign * (12_345_678_901_234_567_890 - n)}.{n:010d}",
        "dt": f"{1969 + n}-12-{10 + n % 20}",
        "tm": f"{1965 + n}-06-0{1 + n % 9}T23:59:{n % 60:02d}.{n:03d}{n:03d}Z",
    }


def _nested(i: int, g: int) -> dict[str, Any]:
    n = i + g
    return {
        "st": None
        if n % 5 == 4
        else {
            "a": n,
            "b": NAMES[n % len(NAMES)],
            "c": None if n % 4 == 3 else {"x": n / 4, "y": list(range(n % 3))},
        },
        "arr": None if n % 6 == 5 else [n * 10**12 + k for k in range(n % 4)],
        "arrs": [{"k": f"e{k}", "n": None if k == 1 else k} for k in range(n % 3)],
        "m": {f"key{k}": k * g for k in range(n % 3)},
        "mm": None if n % 4 == 2 else {"ä": {"u": f"u{g}", "v": i}},
        "aa": [["x", f"{g}"], []] if n % 2 else [],
    }
