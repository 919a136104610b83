"""The rows that lakewright and Hudi write in turn: every column type, nulls, text beyond ASCII.

A row is a function of its number and its generation, given as Python values (`row`), as Arrow
(`arrow_rows`) and as JSON for Hudi (`json_rows`); all three say the same. `WIDE` and `EVOLVED` are
the columns before and after the schema changes: `grow` from int to long, `swell` from float to
double, `more` added. Arrays hold no nulls and no one-field structs: Hudi 0.15 and 1.0 cannot
rewrite those.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

Row = dict[str, Any]

NAMES = ("anna", "", "Jürgen", "日本語", "z'\"\\", "🚀 up", "tab\tnew\nline")
KEY_TEXTS = ("k{}", "ключ,{}", "a b:{}", "日本{}", "🚀{}", "100%/{}", "ß'\"\\{}")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

INNER = pa.struct([("x", pa.float64()), ("y", pa.list_(pa.int32()))])
ENTRY = pa.struct([("k", pa.string()), ("n", pa.int32())])
PAIR = pa.struct([("u", pa.string()), ("v", pa.int32())])
KEYS = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        ("sub", pa.int32()),
        ("region", pa.string()),
        ("day", pa.string()),
        ("ts", pa.int64()),
    ]
)
FLAT = (
    ("b", pa.bool_()),
    ("i32", pa.int32()),
    ("i64", pa.int64()),
    ("f", pa.float32()),
    ("d", pa.float64()),
    ("s", pa.string()),
    ("bin", pa.binary()),
    ("dec5", pa.decimal128(5, 2)),
    ("dec18", pa.decimal128(18, 6)),
    ("dec38", pa.decimal128(38, 10)),
    ("dt", pa.date32()),
    ("tm", pa.timestamp("us", "UTC")),
)
LOCAL_TIME = (("ntz", pa.timestamp("us")),)
NESTED = (
    ("st", pa.struct([("a", pa.int32()), ("b", pa.string()), ("c", INNER)])),
    ("arr", pa.list_(pa.int64())),
    ("arrs", pa.list_(ENTRY)),
    ("m", pa.map_(pa.string(), pa.int32())),
    ("mm", pa.map_(pa.string(), PAIR)),
    ("aa", pa.list_(pa.list_(pa.string()))),
)
GROWING = (("grow", pa.int32()), ("swell", pa.float32()))
GROWN = (("grow", pa.int64()), ("swell", pa.float64()), ("more", pa.string()))


@dataclass(frozen=True)
class Columns:
    """The columns of a table at some time."""

    schema: pa.Schema

    @classmethod
    def of(cls, *groups: Sequence[tuple[str, pa.DataType]]) -> Columns:
        """Key columns, then these."""
        return cls(pa.schema([*KEYS, *(pa.field(n, t) for group in groups for n, t in group)]))

    @property
    def names(self) -> list[str]:
        """Names in order."""
        return list(self.schema.names)

    @property
    def ddl(self) -> str:
        """The columns in Spark's words."""
        return ", ".join(f"{f.name} {spark_type(f.type)}" for f in self.schema)

    def arrow(self, rows: Sequence[Row]) -> pa.Table:
        """Rows as Arrow."""
        arrays = [pa.array([row.get(f.name) for row in rows], f.type) for f in self.schema]
        return pa.Table.from_arrays(arrays, schema=self.schema)

    def json(self, rows: Sequence[Row]) -> list[Row]:
        """Rows as Hudi's process takes them."""
        return [{f.name: as_json(row.get(f.name)) for f in self.schema} for row in rows]


def columns(*, evolved: bool = False, local_time: bool = False) -> Columns:
    """The columns before or after the schema changes."""
    ntz = LOCAL_TIME if local_time else ()
    return Columns.of(FLAT, ntz, NESTED, GROWN if evolved else GROWING)


def row(i: int, g: int, regions: Sequence[str | None], days: Sequence[str | None]) -> Row:
    """The row of key number `i` in generation `g`, which orders it too."""
    return {
        "id": KEY_TEXTS[i % len(KEY_TEXTS)].format(i),
        "sub": i % 3,
        "region": regions[i % len(regions)],
        "day": days[i // 2 % len(days)],
        "ts": g,
        **_flat(i, g),
        **_nested(i, g),
        "grow": None if (i + g) % 5 == 1 else i * 1000 + g,
        "swell": None if (i + g) % 5 == 2 else i / 4 + g,
        "more": None if (i + g) % 4 == 3 else f"more {NAMES[i % len(NAMES)]}{g}",
    }


def _flat(i: int, g: int) -> Row:
    n = i + g
    if n % 7 == 6:
        return dict.fromkeys(name for name, _ in (*FLAT, *LOCAL_TIME))
    sign = -1 if n % 2 else 1
    moment = EPOCH + timedelta(days=sign * 9000 + n, hours=23, microseconds=123_456 + n)
    return {
        "b": n % 2 == 0,
        "i32": sign * (2_147_483_647 - n),
        "i64": sign * (9_223_372_036_854_775_807 - n),
        "f": sign * (0.5 + n),
        "d": sign * 1.1e300 / (n + 1),
        "s": f"{NAMES[i % len(NAMES)]}|{g}",
        "bin": bytes(range(n % 256)),
        "dec5": Decimal(sign * (99_999 - n)).scaleb(-2),
        "dec18": Decimal(sign * (999_999_999_999_999_999 - n)).scaleb(-6),
        "dec38": Decimal(sign * (12_345_678_901_234_567_890_123_456 - n)).scaleb(-10),
        "dt": date(1969, 12, 31) + timedelta(days=sign * n * 40),
        "tm": moment,
        "ntz": (moment + timedelta(seconds=n)).replace(tzinfo=None),
    }


def _nested(i: int, g: int) -> Row:
    n = i + g
    inner = None if n % 4 == 3 else {"x": n / 4, "y": list(range(n % 3))}
    return {
        "st": None if n % 5 == 4 else {"a": n, "b": NAMES[n % len(NAMES)], "c": inner},
        "arr": None if n % 6 == 5 else [n * 10**12 + k for k in range(n % 4)],
        "arrs": [{"k": f"e{k}", "n": None if k == 1 else k} for k in range(n % 3)],
        "m": {f"key{k}": k * g for k in range(n % 3)},
        "mm": None if n % 4 == 2 else {"ä": {"u": f"u{g}", "v": i}},
        "aa": [["x", f"{g}"], []] if n % 2 else [],
    }


def as_json(value: Any) -> Any:
    """A value in the JSON that Spark reads."""
    if isinstance(value, dict):
        return {key: as_json(item) for key, item in value.items()}
    if isinstance(value, list):
        return [as_json(item) for item in value]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, datetime):
        return value.isoformat(timespec="microseconds").replace("+00:00", "Z")
    if isinstance(value, date):
        return value.isoformat()
    return value


def spark_type(t: pa.DataType) -> str:
    """A type in Spark's words."""
    if pa.types.is_struct(t):
        return "struct<" + ",".join(f"{f.name}:{spark_type(f.type)}" for f in t) + ">"
    if pa.types.is_map(t):
        return f"map<{spark_type(t.key_type)},{spark_type(t.item_type)}>"
    if pa.types.is_list(t):
        return f"array<{spark_type(t.value_type)}>"
    if pa.types.is_decimal(t):
        return f"decimal({t.precision},{t.scale})"
    if pa.types.is_timestamp(t):
        return "timestamp" if t.tz else "timestamp_ntz"
    return {
        pa.bool_(): "boolean",
        pa.int32(): "int",
        pa.int64(): "bigint",
        pa.float32(): "float",
        pa.float64(): "double",
        pa.string(): "string",
        pa.binary(): "binary",
        pa.date32(): "date",
    }[t]
