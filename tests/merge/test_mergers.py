"""Users' mergers, the registry that finds mergers, and what they make readers read."""

from __future__ import annotations

import pickle
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lakewright.errors import ConfigError, MergeError, MergerNotFoundError
from lakewright.format.version import TableVersion
from lakewright.merge import (
    ALL,
    MergeConfig,
    MergeContext,
    Merged,
    MergerRef,
    MergerRegistry,
    Phase,
    RecordType,
    Take,
    merger,
    names,
    record_merger,
    required_columns,
)
from lakewright.merge.commit_time import CommitTimeMerger
from lakewright.merge.deletes import DeleteRule
from lakewright.merge.event_time import EventTimeMerger
from lakewright.merge.payloads import PAYLOADS, PayloadMerger
from tests.merge.slices import KEY, Gone, Row, merge_pair, read_slice

SCHEMA = pa.schema([("_hoodie_commit_time", pa.string()), (KEY, pa.string()), ("n", pa.int64())])
MAX_ID = "6f3c2c1e-7d1b-4b6a-9b57-0d2f4f0c9a01"
SUM_ID = "6f3c2c1e-7d1b-4b6a-9b57-0d2f4f0c9a02"
DICT_ID = "6f3c2c1e-7d1b-4b6a-9b57-0d2f4f0c9a03"


@merger(strategy=MAX_ID, columns=["n"], builds=False)
def keep_max(older: pa.RecordBatch, newer: pa.RecordBatch, ctx: MergeContext) -> Merged:
    assert older.schema.names == [KEY, "n"]
    take = pc.if_else(pc.greater(older["n"], newer["n"]), int(Take.OLDER), int(Take.NEWER))
    return Merged(take.cast(pa.uint8()))


@merger(strategy=SUM_ID)
def add_up(older: pa.RecordBatch, newer: pa.RecordBatch, ctx: MergeContext) -> Merged:
    built = newer.select([KEY, "n"]).set_column(1, "n", pc.add(older["n"], newer["n"]))
    return Merged(pa.array(np.full(len(newer), Take.BUILT, np.uint8)), built)


@record_merger(strategy=DICT_ID)
def by_record(older: dict[str, Any], newer: dict[str, Any]) -> dict[str, Any] | None:
    if newer["n"] == 0:
        return None
    if newer["n"] < 0:
        return older
    return newer if newer["n"] > 9 else {**newer, "n": older["n"] * newer["n"]}


def _config(strategy: str | UUID, version: int = 8, **properties: str) -> MergeConfig:
    stored = {
        "hoodie.record.merge.mode": "CUSTOM",
        "hoodie.record.merge.strategy.id": str(strategy),
    }
    return MergeConfig.from_properties(TableVersion.of(version), stored | properties)


def _rows(strategy: str, base: list[int], log: list[list[tuple[str, int]]]) -> list[Any]:
    config = _config(strategy)
    found = MergerRegistry([keep_max, add_up, by_record]).resolve(config)
    stored = [{KEY: f"k{i}", "n": n, "_hoodie_commit_time": "1"} for i, n in enumerate(base)]
    blocks = [
        [Row({KEY: k, "n": n, "_hoodie_commit_time": "2"}) for k, n in block] for block in log
    ]
    rows = read_slice(found, config.context(SCHEMA, Phase.LOG), stored, blocks)
    return [(row[KEY], row["n"], row["_hoodie_commit_time"]) for row in rows]


def test_a_function_that_only_chooses_sees_only_its_columns() -> None:
    rows = _rows(MAX_ID, [5, 1], [[("k0", 3), ("k1", 2)], [("k1", 7), ("k2", 1), ("k2", 4)]])
    assert rows == [("k0", 5, "1"), ("k1", 7, "2"), ("k2", 4, "2")]


def test_a_function_that_builds_may_leave_meta_columns_to_the_newer_row() -> None:
    rows = _rows(SUM_ID, [5, 1], [[("k0", 3)], [("k0", 4), ("k2", 1), ("k2", 4), ("k2", 5)]])
    assert rows == [("k0", 12, "2"), ("k1", 1, "1"), ("k2", 10, "2")]


def test_a_function_on_dicts_keeps_replaces_builds_and_deletes() -> None:
    rows = _rows(
        DICT_ID, [2, 3, 4, 5], [[("k0", 3), ("k1", 0), ("k2", -1)], [("k0", 2), ("k3", 10)]]
    )
    assert rows == [("k0", 12, "2"), ("k2", 4, "1"), ("k3", 10, "2")]


def test_a_function_on_dicts_never_sees_deletes() -> None:
    ctx = _config(DICT_ID).context(SCHEMA, Phase.LOG)
    row = Row({KEY: "k", "n": 1})
    assert merge_pair(by_record, ctx, row, Gone("k")).row is None
    assert merge_pair(by_record, ctx, Gone("k"), row).row == dict(row.values) | {
        "_hoodie_commit_time": None
    }


def test_wrong_answers_of_a_merger_are_named() -> None:
    def answer(merged: Merged) -> None:
        @merger(strategy=SUM_ID)
        def wrong(older: pa.RecordBatch, newer: pa.RecordBatch, ctx: MergeContext) -> Merged:
            return merged

        config = _config(SUM_ID)
        blocks = [[Row({KEY: "k", "n": 1})], [Row({KEY: "k", "n": 2})]]
        read_slice(wrong, config.context(SCHEMA, Phase.LOG), [], blocks)

    with pytest.raises(MergeError, match="other than 1 takes"):
        answer(Merged(pa.array([1, 1], pa.uint8())))
    with pytest.raises(MergeError, match="unknown take"):
        answer(Merged(pa.array([9], pa.uint8())))
    with pytest.raises(MergeError, match="built 0 rows for 1"):
        answer(Merged(pa.array([2], pa.uint8())))
    lacking = pa.RecordBatch.from_pydict({KEY: ["k"]})
    with pytest.raises(MergeError, match="without the column n"):
        answer(Merged(pa.array([2], pa.uint8()), lacking))
    textual = pa.RecordBatch.from_pydict({KEY: ["k"], "n": ["x"]})
    with pytest.raises(MergeError, match="built n as string"):
        answer(Merged(pa.array([2], pa.uint8()), textual))


def test_deletes_that_a_merger_makes_carry_an_ordering_value() -> None:
    schema = pa.schema([(KEY, pa.string()), ("ts", pa.int64()), ("v", pa.string())])

    @merger(strategy=SUM_ID)
    def cancel(older: pa.RecordBatch, newer: pa.RecordBatch, ctx: MergeContext) -> Merged:
        if ctx.older_deleted is not None:
            wins = pc.greater_equal(newer["ts"], older["ts"])
            return Merged(pc.if_else(wins, 1, 0).cast(pa.uint8()))
        return Merged(pa.array([Take.DELETE] * len(newer), pa.uint8()))

    config = _config(SUM_ID, **{"hoodie.table.precombine.field": "ts"})
    ctx = config.context(schema, Phase.LOG)
    rows = [Row({KEY: "k", "ts": ts, "v": str(ts)}) for ts in (5, 3, 4)]
    assert read_slice(cancel, ctx, [], [[row] for row in rows]) == []
    rows[2] = Row({KEY: "k", "ts": 5, "v": "back"})
    result = read_slice(cancel, ctx, [], [[row] for row in rows])
    assert [row["v"] for row in result] == ["back"]


def test_partial_rows_need_a_function_for_them() -> None:
    config = _config(SUM_ID)
    ctx = config.context(SCHEMA, Phase.LOG)
    partial = Row({KEY: "k", "n": 2}, frozenset({KEY, "n"}))
    with pytest.raises(MergeError, match="partial"):
        read_slice(add_up, ctx, [{KEY: "k", "n": 1}], [[partial]])
    payload = PayloadMerger.of(MergeConfig.from_properties(TableVersion.of(6), {}))
    assert payload is not None
    with pytest.raises(MergeError, match="partial"):
        read_slice(payload, ctx, [{KEY: "k", "n": 1}], [[partial]])


def test_null_record_keys_are_refused() -> None:
    config = _config(SUM_ID)
    with pytest.raises(MergeError, match="no record key"):
        read_slice(add_up, config.context(SCHEMA, Phase.LOG), [], [[Row({KEY: None})]])


def test_built_in_modes_never_consult_users() -> None:
    registry = MergerRegistry([keep_max])
    for mode, kind in (
        ("EVENT_TIME_ORDERING", EventTimeMerger),
        ("COMMIT_TIME_ORDERING", CommitTimeMerger),
    ):
        config = MergeConfig.from_properties(
            TableVersion.of(8),
            {"hoodie.record.merge.mode": mode, "hoodie.record.merge.strategy.id": MAX_ID},
        )
        assert isinstance(registry.resolve(config), kind)


def test_missing_mergers_are_an_error_that_says_what_there_is() -> None:
    registry = MergerRegistry([keep_max])
    with pytest.raises(MergerNotFoundError) as caught:
        registry.resolve(_config(SUM_ID))
    assert MAX_ID in str(caught.value) and SUM_ID in caught.value.hint
    user = {"hoodie.compaction.payload.class": "com.acme.Mine"}
    for version in (6, 8):
        config = MergeConfig.from_properties(TableVersion.of(version), user)
        with pytest.raises(MergerNotFoundError, match=r"com\.acme\.Mine") as caught:
            registry.resolve(config)
        assert "payload_class=" in caught.value.hint


def test_a_payload_class_is_found_by_its_name_old_or_new() -> None:
    registry = MergerRegistry()
    registry.register(add_up, payload_class="com.uber.hoodie.Mine")
    properties = {"hoodie.compaction.payload.class": "org.apache.hudi.Mine"}
    for version in (6, 8, 9):
        config = MergeConfig.from_properties(TableVersion.of(version), properties)
        assert registry.resolve(config) is add_up


def test_a_users_strategy_on_an_old_table_is_not_replaced_by_its_payload_class() -> None:
    config = MergeConfig.from_properties(
        TableVersion.of(6),
        {
            "hoodie.compaction.payload.class": names.OVERWRITE_WITH_LATEST,
            "hoodie.compaction.record.merger.strategy": MAX_ID,
        },
    )
    assert MergerRegistry([keep_max]).resolve(config) is keep_max
    with pytest.raises(MergerNotFoundError):
        MergerRegistry().resolve(config)


def test_record_types_share_a_strategy_and_avro_serves_for_all() -> None:
    registry = MergerRegistry([by_record])
    assert by_record.record_type is RecordType.AVRO
    assert registry.resolve(_config(DICT_ID)) is by_record
    arrow = merger(strategy=DICT_ID)(lambda older, newer, ctx: Merged(newer["n"]))
    registry.register(arrow)
    assert registry.resolve(_config(DICT_ID)) is arrow
    assert registry.resolve(_config(DICT_ID), record_type=RecordType.AVRO) is by_record


def test_what_hudi_defines_cannot_be_replaced() -> None:
    registry = MergerRegistry([keep_max])
    registry.register(keep_max)
    with pytest.raises(ConfigError, match="built in"):
        registry.register(merger(strategy=names.EVENT_TIME_ID)(keep_max.function))
    with pytest.raises(ConfigError, match="built in"):
        registry.register(keep_max, payload_class=names.OVERWRITE_WITH_LATEST)
    with pytest.raises(ConfigError, match="Another merger"):
        registry.register(merger(strategy=MAX_ID)(add_up.function))
    registry.register(keep_max, payload_class="com.acme.Mine")
    with pytest.raises(ConfigError, match="Another merger"):
        registry.register(add_up, payload_class="com.acme.Mine")


def test_strategies_and_record_types_are_checked_when_a_merger_is_made() -> None:
    with pytest.raises(ConfigError, match="not a strategy id"):
        merger(strategy="mine")
    with pytest.raises(ConfigError, match="not a record type"):
        merger(strategy=MAX_ID, record_type="flink")
    assert merger(strategy=MAX_ID, record_type="SPARK")(keep_max.function).record_type is (
        RecordType.SPARK
    )


def test_a_reference_travels_by_path_where_the_merger_can_be_imported() -> None:
    local = merger(strategy=MAX_ID)(lambda older, newer, ctx: Merged(newer["n"]))
    by_value = MergerRef.of(local)
    assert not by_value.importable and by_value.load() is local
    event = MergerRef.of(EventTimeMerger(), "lakewright.merge.event_time:EventTimeMerger")
    assert not event.importable
    imported = MergerRef.of(keep_max, "tests.merge.test_mergers:keep_max")
    if imported.importable:
        assert pickle.loads(pickle.dumps(imported)).load() == MergerRef(path=imported.path).load()
    with pytest.raises(ConfigError, match="does not lead to a merger"):
        MergerRef(path="lakewright.merge.nowhere:it").load()
    with pytest.raises(ConfigError, match="it is a str"):
        MergerRef(path="lakewright.errors:__doc__").load()


def test_delete_marks_are_ored_and_null_never_matches() -> None:
    rows = pa.RecordBatch.from_pydict(
        {
            "_hoodie_is_deleted": pa.array([True, None, False, False, None]),
            "_hoodie_operation": pa.array([None, "D", "-U", "I", None]),
            "Op": pa.array([None, None, None, 7, 8]),
        }
    )
    rule = DeleteRule(field="Op", marker="7")
    mask = rule.mask(rows)
    assert mask is not None and mask.tolist() == [True, True, True, True, False]
    assert rule.columns(rows.schema) == {"_hoodie_is_deleted", "_hoodie_operation", "Op"}
    assert DeleteRule().mask(rows.select(["Op"])) is None
    texts = pa.RecordBatch.from_pydict({"_hoodie_is_deleted": ["true"], "Op": ["d"]})
    assert DeleteRule().mask(texts) is None
    exact, lenient = (DeleteRule(field="Op", marker="D", ignore_case=i) for i in (False, True))
    assert [r.mask(texts) for r in (exact, lenient)] == [[False], [True]]
    nested = pa.RecordBatch.from_pydict({"m": pa.array([{"op": "D"}, {"op": None}, None])})
    found = DeleteRule(field="m.op", marker="D").mask(nested)
    assert found is not None and found.tolist() == [True, False, False]


TABLE = pa.schema(
    [
        (KEY, pa.string()),
        ("_hoodie_operation", pa.string()),
        ("id", pa.string()),
        ("ts", pa.int64()),
        ("meta", pa.struct([("seq", pa.int64())])),
        ("a", pa.string()),
        ("_hoodie_is_deleted", pa.bool_()),
        ("Op", pa.string()),
        ("_event_seq", pa.string()),
    ]
)


@pytest.mark.parametrize(
    ("version", "properties", "expected"),
    [
        (
            9,
            {
                "hoodie.record.merge.mode": "EVENT_TIME_ORDERING",
                "hoodie.table.ordering.fields": "ts,meta.seq",
            },
            [KEY, "_hoodie_operation", "ts", "meta", "a", "_hoodie_is_deleted"],
        ),
        (
            9,
            {
                "hoodie.record.merge.mode": "COMMIT_TIME_ORDERING",
                "hoodie.table.ordering.fields": "ts",
                "hoodie.payload.delete.field": "Op",
                "hoodie.payload.delete.marker": "D",
            },
            [KEY, "_hoodie_operation", "a", "_hoodie_is_deleted", "Op"],
        ),
        (
            6,
            {
                "hoodie.table.precombine.field": "ts",
                "hoodie.compaction.payload.class": names.MYSQL_DEBEZIUM,
            },
            [KEY, "ts", "a", "_hoodie_is_deleted", "_event_seq"],
        ),
    ],
)
def test_projections_gain_exactly_what_decides(
    version: int, properties: dict[str, str], expected: list[str]
) -> None:
    config = MergeConfig.from_properties(TableVersion.of(version), properties)
    found = MergerRegistry().resolve(config)
    assert required_columns(config, found, TABLE, ["a"]) == expected
    keyed = required_columns(config, found, TABLE, ["a"], key_columns=["id"])
    assert [name for name in keyed if name not in expected] == ["id"]


def test_a_users_merger_reads_all_columns_unless_it_says_otherwise() -> None:
    config = _config(SUM_ID)
    assert add_up.columns(config.context(TABLE, Phase.LOG)) is ALL
    assert required_columns(config, add_up, TABLE, ["a"]) == TABLE.names
    narrow = merger(strategy=SUM_ID, columns=["ts"])(add_up.function)
    expected = [KEY, "_hoodie_operation", "ts", "a", "_hoodie_is_deleted"]
    assert required_columns(config, narrow, TABLE, ["a"]) == expected


def test_every_payload_class_of_the_page_is_there_for_both_release_lines() -> None:
    for known in PAYLOADS.values():
        assert set(known) > names.RETIRED_PAYLOADS
        assert set(known) > {names.FIRST_VALUE, names.REVERSE_ORDER, names.AVRO_PAYLOAD}
    for built_in in (EventTimeMerger(), CommitTimeMerger()):
        assert built_in.spark(_config(SUM_ID).context(SCHEMA, Phase.LOG)) is None


@pytest.mark.parametrize(
    ("version", "lsn", "survives"), [(8, 400, True), (8, 600, False), (6, 400, False)]
)
def test_a_postgres_delete_is_compared_by_its_position_from_version_8_on(
    version: int, lsn: int, survives: bool
) -> None:
    schema = pa.schema([(KEY, pa.string()), ("_event_lsn", pa.int64())])
    properties = {
        "hoodie.compaction.payload.class": names.POSTGRES_DEBEZIUM,
        "hoodie.record.merge.mode": "CUSTOM",
        "hoodie.record.merge.strategy.id": str(names.PAYLOAD_ID),
        "hoodie.table.precombine.field": "_event_lsn",
    }
    config = MergeConfig.from_properties(TableVersion.of(version), properties)
    ctx = config.context(schema, Phase.BASE)
    stored = Row({KEY: "1", "_event_lsn": 500})
    outcome = merge_pair(MergerRegistry().resolve(config), ctx, stored, Gone("1", (lsn,)))
    assert (outcome.row is not None) == survives
