"""Answers recorded from real Hudi: the payload classes of 0.15.0 and the mergers of 1.2.0.

The recordings were made by calling the classes of the released bundles with random rows. Calls that
failed in Java (mostly ordering values of two classes) are not among them. Defaults of the schema:
`cnt` 0 and `tag` "none", both nullable; all others null.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lakewright.format.version import TableVersion
from lakewright.merge import MergeConfig, MergerRegistry, Phase, Take
from tests.merge.slices import KEY, Gone, Row, Version, merge_pair, read_slice

RECORDED = Path(__file__).parent / "recorded"
PAIRS = json.loads((RECORDED / "payload_pairs_0.15.0.json").read_text())
SLICES = json.loads((RECORDED / "slices_1.2.0.json").read_text())
DEFAULTS = {"cnt": 0, "tag": "none"}
TYPES = {
    "ts": pa.int64(),
    "cnt": pa.int32(),
    "_hoodie_is_deleted": pa.bool_(),
    "_event_lsn": pa.int64(),
}
WINNERS = {Take.OLDER: "older", Take.NEWER: "newer", Take.BUILT: "built"}


def _schema(columns: list[str], **types: pa.DataType) -> pa.Schema:
    return pa.schema([(name, types.get(name) or TYPES.get(name, pa.string())) for name in columns])


def _row(values: list[Any] | None, columns: list[str], schema: pa.Schema) -> dict[str, Any] | None:
    if values is None:
        return None
    row = dict(zip(columns, values, strict=True)) | {KEY: "1"}
    return {name: row[name] for name in schema.names}


def _grouped(cases: list[dict[str, Any]], key: Any) -> list[Any]:
    groups: dict[str, list[dict[str, Any]]] = {}
    for case in cases:
        groups.setdefault(key(case), []).append(case)
    return [pytest.param(group, id=name) for name, group in sorted(groups.items())]


@pytest.mark.parametrize(
    "cases", _grouped(PAIRS["cases"], lambda c: f"{c['payload']}-{c['phase']}")
)
def test_payload_classes_answer_as_in_hudi_0_15(cases: list[dict[str, Any]]) -> None:
    columns = PAIRS["columns"]
    for case in cases:
        payload = "org.apache.hudi.common.model." + case["payload"]
        config = MergeConfig.from_properties(
            TableVersion.of(6), {"hoodie.compaction.payload.class": payload} | case["properties"]
        )
        names = columns if case["meta"] else [KEY, *columns[5:]]
        schema = _schema(names)
        ctx = config.context(schema, Phase(case["phase"]), defaults=DEFAULTS)

        def version(side: str, case: Any = case, schema: pa.Schema = schema) -> Version:
            row = _row(case[side], columns, schema)
            ordering = case.get(f"{side}_ordering")
            return Gone("1", None if ordering is None else (ordering,)) if row is None else Row(row)

        outcome = merge_pair(
            MergerRegistry().resolve(config), ctx, version("older"), version("newer")
        )
        if ctx.phase is Phase.BASE:
            assert outcome.row == _row(case["row"], columns, schema), case
            continue
        # Hudi also "builds" a row in which there was nothing to fill: then it equals the winner.
        if case["winner"] == "built" and outcome.take is not Take.BUILT:
            side = WINNERS[outcome.take]
            assert _row(case[side], columns, schema) == _row(case["row"], columns, schema), case
            continue
        assert WINNERS[outcome.take] == case["winner"], case
        if outcome.take is Take.BUILT:
            assert outcome.row == _row(case["row"], columns, schema), case


def _rule(case: dict[str, Any]) -> str:
    properties = case["properties"]
    payload = properties.get("hoodie.compaction.payload.class", "").rsplit(".", 1)[-1]
    partial = properties.get("hoodie.table.partial.update.mode", "")
    return "-".join(filter(None, [properties["hoodie.record.merge.mode"], payload, partial]))


@pytest.mark.parametrize("cases", _grouped(SLICES["cases"], _rule))
def test_slices_merge_as_in_hudi_1_2(cases: list[dict[str, Any]]) -> None:
    columns = SLICES["columns"]
    for case in cases:
        names = [n for n in columns if n != "_hoodie_operation" or case["operation"]]
        schema = _schema(names, ts=pa.int32() if case["int_ts"] else pa.int64())
        config = MergeConfig.from_properties(TableVersion.of(9), case["properties"])
        ctx = config.context(schema, Phase.LOG, defaults=DEFAULTS)

        def version(raw: Any, ctx: Any = ctx, schema: pa.Schema = schema) -> Version:
            if isinstance(raw, dict):
                known = raw["delete"] is not None and ctx.ordering_columns
                return Gone("1", (raw["delete"],) if known else None)
            row = _row(raw, columns, schema)
            assert row is not None
            return Row(row)

        base = _row(case["base"], columns, schema)
        rows = read_slice(
            MergerRegistry().resolve(config),
            ctx,
            [] if base is None else [base],
            [[version(raw)] for raw in case["log"]],
        )
        expected = _row(case["row"], columns, schema)
        assert rows == ([] if expected is None else [expected]), case
