"""The shared merge cases, each through the public merger and through the engine's classes."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lakewright.format.version import TableVersion
from lakewright.merge import MergeConfig, MergeContext, MergerRegistry, Phase, RecordMerger
from lakewright.merge.names import PAYLOAD_ID, MergeMode, Semantics
from tests.merge.slices import KEY, Gone, Row, Version, merge_pair, read_slice

CASES_FILE = Path(__file__).parents[2].parent / "shared" / "format" / "merge_cases.json"
ABSENT = "the shared merge cases are not beside the project"

TYPES = {
    "int": pa.int32(),
    "long": pa.int64(),
    "double": pa.float64(),
    "string": pa.string(),
    "boolean": pa.bool_(),
    "timestamp-micros": pa.timestamp("us", "UTC"),
    "decimal(10,2)": pa.decimal128(10, 2),
}
PHASES = {
    "any": (Phase.LOG, Phase.BASE),
    "delta": (Phase.LOG,),
    "final": (Phase.BASE,),
    "dedupe": (Phase.DEDUPE,),
}


def _cases() -> list[dict[str, Any]]:
    if not CASES_FILE.exists():
        return []
    cases: list[dict[str, Any]] = json.loads(CASES_FILE.read_text())
    return [case | {"version": v} for case in cases for v in case["table_version"]]


def _versions(case: dict[str, Any]) -> list[dict[str, Any] | None]:
    older = case["older"] if isinstance(case["older"], list) else [case["older"]]
    return [*older, case["newer"]]


def _schema(case: dict[str, Any]) -> pa.Schema:
    samples: dict[str, list[Any]] = {KEY: ["1"]}
    for version in [*_versions(case), case["expect"]]:
        for name, value in ((version or {}).get("values") or {}).items():
            samples.setdefault(name, []).append(value)
    for name in [*case.get("reader_fields", ()), *case.get("types", {})]:
        samples.setdefault(name, [])
    stated = {name: TYPES[text] for name, text in case.get("types", {}).items()}
    return pa.schema([(n, stated.get(n) or _inferred(v)) for n, v in samples.items()])


def _inferred(values: list[Any]) -> pa.DataType:
    kinds = {type(v) for v in values if v is not None}
    if kinds <= {bool} and kinds:
        return pa.bool_()
    if kinds <= {int} and kinds:
        return pa.int64()
    return pa.float64() if kinds & {float} else pa.string()


def _value(value: Any, kind: pa.DataType) -> Any:
    if value is None:
        return None
    if pa.types.is_decimal(kind):
        return Decimal(value)
    if pa.types.is_floating(kind):
        return float(value)
    if pa.types.is_timestamp(kind):
        return pa.scalar(value, pa.int64()).cast(kind)
    return value


def _version(raw: dict[str, Any], ctx: MergeContext) -> Version:
    if raw["kind"] == "delete_block":
        ordering = raw["ordering"]
        if ordering is None or (ordering == 0 and raw["ordering_type"] == "int"):
            return Gone("1")
        values = tuple(ordering) if isinstance(ordering, list) else (ordering,)
        return Gone("1", values if ctx.ordering_columns else None)
    values = {n: _value(v, ctx.schema.field(n).type) for n, v in raw["values"].items()}
    row = {KEY: "1", **values}
    return Row(row, frozenset(row) if raw["kind"] == "partial" else None)


def _table(case: dict[str, Any]) -> tuple[RecordMerger, MergeContext]:
    version = TableVersion.of(case["version"])
    properties = dict(case.get("props", {}))
    rule = case["mode_or_payload"]
    if rule in {mode.value for mode in MergeMode}:
        properties["hoodie.record.merge.mode"] = rule
    else:
        properties["hoodie.compaction.payload.class"] = rule
    if case.get("path") == "payload":
        properties["hoodie.record.merge.mode"] = "CUSTOM"
        properties["hoodie.record.merge.strategy.id"] = str(PAYLOAD_ID)
    if case["ordering_fields"]:
        properties[version.ordering_fields_key] = ",".join(case["ordering_fields"])
    reader = Semantics(case["reader"]) if "reader" in case else None
    config = MergeConfig.from_properties(version, properties, semantics=reader)
    defaults = {k: v for k, v in case.get("schema_defaults", {}).items() if v is not None}
    ctx = config.context(_schema(case), Phase.LOG, defaults=defaults)
    return MergerRegistry().resolve(config), ctx


def _expected(case: dict[str, Any], versions: list[Version | None]) -> dict[str, Any] | None:
    expect = case["expect"]
    picked: Version | None = None
    match expect["result"]:
        case "delete":
            return None
        case "newer":
            picked = versions[-1]
        case "older":
            picked = versions[-2]
        case "base":
            picked = versions[0]
        case _:
            return {KEY: "1", **expect["values"]}
    assert isinstance(picked, Row)
    return dict(picked.values)


def _same(actual: dict[str, Any] | None, expected: dict[str, Any] | None, ctx: Any) -> bool:
    if actual is None or expected is None:
        return actual is expected
    for name, value in actual.items():
        wanted = expected.get(name)
        if isinstance(wanted, pa.Scalar):
            wanted = wanted.as_py()
        if isinstance(wanted, float) and math.isnan(wanted):
            if not math.isnan(value):
                return False
        elif value != wanted:
            return False
    return True


CASES = _cases()
PAIRS = [case for case in CASES if case["side"] != "slice"]
pytestmark = pytest.mark.skipif(not CASES, reason=ABSENT)


def _id(case: dict[str, Any]) -> str:
    return f"{case['id']}-v{case['version']}"


@pytest.mark.parametrize("case", PAIRS, ids=_id)
def test_public_merger_gives_the_stated_result(case: dict[str, Any]) -> None:
    merger, ctx = _table(case)
    older, newer = (_version(raw, ctx) for raw in _versions(case) if raw is not None)
    for phase in PHASES[case["side"]]:
        outcome = merge_pair(merger, replace(ctx, phase=phase), older, newer)
        expected = _expected(case, [older, newer])
        assert _same(outcome.row, expected, ctx), (phase, outcome, expected)


@pytest.mark.parametrize("case", CASES, ids=_id)
def test_engine_gives_the_stated_result(case: dict[str, Any]) -> None:
    merger, ctx = _table(case)
    versions = [None if raw is None else _version(raw, ctx) for raw in _versions(case)]
    expected = _expected(case, versions)
    for phase in PHASES.get(case["side"], (Phase.BASE,)):
        base, *log = versions if phase is Phase.BASE else [None, *versions]
        if base is not None and not isinstance(base, Row):
            continue
        ctx = replace(ctx, phase=Phase.LOG if phase is Phase.BASE else phase)
        stored = [] if base is None else [base.values]
        rows = read_slice(merger, ctx, stored, [[v] for v in log if v is not None])
        assert len(rows) == (expected is not None), (phase, rows)
        assert _same(rows[0] if rows else None, expected, ctx), (phase, rows, expected)
