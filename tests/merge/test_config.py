"""What table properties say about merging, and how the parts follow from each other."""

from __future__ import annotations

from uuid import UUID

import pyarrow as pa
import pytest

from lakewright.errors import ConfigError, UnsupportedTableError
from lakewright.format.version import TableVersion
from lakewright.merge import MergeConfig, MergeMode, PartialUpdateMode, Phase, Semantics, names
from lakewright.merge.inference import behaviour_properties, infer_behaviour
from tests.merge.slices import KEY

SIX, EIGHT, NINE = (TableVersion.of(number) for number in (6, 8, 9))
ET, CT, CUSTOM = MergeMode.EVENT_TIME, MergeMode.COMMIT_TIME, MergeMode.CUSTOM
OWL, DEF, EVT = names.OVERWRITE_WITH_LATEST, names.DEFAULT_PAYLOAD, names.EVENT_TIME_PAYLOAD
USER = "com.acme.MyPayload"
X = UUID("12345678-1234-4234-8234-123456789abc")
IDS = (None, names.EVENT_TIME_ID, names.COMMIT_TIME_ID, names.PAYLOAD_ID, X)

EVENT = (ET, DEF, names.EVENT_TIME_ID)
EVENT_EVT = (ET, EVT, names.EVENT_TIME_ID)
COMMIT = (CT, OWL, names.COMMIT_TIME_ID)


def _custom(payload: str, strategy: UUID = names.PAYLOAD_ID) -> tuple[MergeMode, str, UUID]:
    return (CUSTOM, payload, strategy)


GRIDS = {
    6: {
        None: (COMMIT, EVENT, COMMIT, None, _custom(DEF, X)),
        OWL: (COMMIT,) * 5,
        DEF: (EVENT,) * 5,
        EVT: (EVENT_EVT,) * 5,
        USER: (_custom(USER),) * 5,
    },
    8: {
        None: (COMMIT, EVENT, COMMIT, None, _custom(DEF, X)),
        OWL: (COMMIT, None, COMMIT, _custom(OWL), _custom(OWL, X)),
        DEF: (EVENT, EVENT, None, _custom(DEF), _custom(DEF, X)),
        EVT: (EVENT_EVT, EVENT_EVT, None, _custom(EVT), _custom(EVT, X)),
        USER: (_custom(USER), None, None, _custom(USER), _custom(USER, X)),
    },
}
CELLS = [
    (version, payload, strategy, expected)
    for version, grid in GRIDS.items()
    for payload, row in grid.items()
    for strategy, expected in zip(IDS, row, strict=True)
]


@pytest.mark.parametrize(("version", "payload", "strategy", "expected"), CELLS)
def test_inference_follows_the_grid(
    version: int,
    payload: str | None,
    strategy: UUID | None,
    expected: tuple[MergeMode, str, UUID] | None,
) -> None:
    table = TableVersion.of(version)
    if expected is None:
        with pytest.raises(ConfigError):
            infer_behaviour(table, payload=payload, strategy=strategy)
        return
    found = infer_behaviour(table, payload=payload, strategy=strategy)
    assert (found.mode, found.payload_class, found.strategy_id) == expected


def test_an_ordering_field_alone_means_event_time() -> None:
    for version in (SIX, EIGHT, NINE):
        assert infer_behaviour(version, has_ordering=True).mode is ET
        assert infer_behaviour(version).mode is CT


def test_a_given_mode_must_agree() -> None:
    assert infer_behaviour(EIGHT, mode=CT).payload_class == OWL
    with pytest.raises(ConfigError, match="inconsistent"):
        infer_behaviour(EIGHT, mode=CT, payload=DEF)
    with pytest.raises(ConfigError, match="needs a payload class"):
        infer_behaviour(EIGHT, mode=CUSTOM)


def test_old_package_names_are_read_as_the_present_ones() -> None:
    old = "com.uber.hoodie.common.model.OverwriteWithLatestAvroPayload"
    assert infer_behaviour(SIX, payload=old).mode is CT


def _stored(version: TableVersion, **given: object) -> dict[str, str]:
    return behaviour_properties(version, merge_on_read=True, **given)  # type: ignore[arg-type]


def test_new_tables_store_what_their_version_stores() -> None:
    assert _stored(SIX, ordering_fields=["ts"]) == {
        "hoodie.table.precombine.field": "ts",
        "hoodie.compaction.payload.class": OWL,
        "hoodie.compaction.record.merger.strategy": str(names.EVENT_TIME_ID),
    }
    assert behaviour_properties(SIX, merge_on_read=False, ordering_fields=["ts"]) == {
        "hoodie.table.precombine.field": "ts"
    }
    assert _stored(EIGHT, ordering_fields=["ts"]) == {
        "hoodie.table.precombine.field": "ts",
        "hoodie.record.merge.mode": "EVENT_TIME_ORDERING",
        "hoodie.record.merge.strategy.id": str(names.EVENT_TIME_ID),
        "hoodie.compaction.payload.class": DEF,
    }
    assert _stored(NINE, ordering_fields=["ts"]) == {
        "hoodie.table.ordering.fields": "ts",
        "hoodie.record.merge.mode": "EVENT_TIME_ORDERING",
    }
    assert _stored(NINE, strategy=X) == {
        "hoodie.record.merge.mode": "CUSTOM",
        "hoodie.record.merge.strategy.id": str(X),
    }
    assert _stored(NINE, payload=USER) == {
        "hoodie.record.merge.mode": "CUSTOM",
        "hoodie.record.merge.strategy.id": str(names.PAYLOAD_ID),
        "hoodie.compaction.payload.class": USER,
    }


PREFIX = "hoodie.record.merge.property."
DELETE_FIELD = PREFIX + "hoodie.payload.delete.field"
DELETE_MARKER = PREFIX + "hoodie.payload.delete.marker"
RETIRED = {
    DEF: {"hoodie.record.merge.mode": "EVENT_TIME_ORDERING"},
    EVT: {"hoodie.record.merge.mode": "EVENT_TIME_ORDERING"},
    OWL: {"hoodie.record.merge.mode": "COMMIT_TIME_ORDERING"},
    names.PARTIAL_UPDATE: {
        "hoodie.record.merge.mode": "EVENT_TIME_ORDERING",
        "hoodie.table.partial.update.mode": "IGNORE_DEFAULTS",
    },
    names.OVERWRITE_NON_DEFAULTS: {
        "hoodie.record.merge.mode": "COMMIT_TIME_ORDERING",
        "hoodie.table.partial.update.mode": "IGNORE_DEFAULTS",
    },
    names.AWS_DMS: {
        "hoodie.record.merge.mode": "COMMIT_TIME_ORDERING",
        DELETE_FIELD: "Op",
        DELETE_MARKER: "D",
    },
    names.MYSQL_DEBEZIUM: {
        "hoodie.record.merge.mode": "EVENT_TIME_ORDERING",
        "hoodie.table.ordering.fields": "_event_bin_file,_event_pos",
        DELETE_FIELD: "_change_operation_type",
        DELETE_MARKER: "d",
    },
    names.POSTGRES_DEBEZIUM: {
        "hoodie.record.merge.mode": "EVENT_TIME_ORDERING",
        "hoodie.table.partial.update.mode": "FILL_UNAVAILABLE",
        "hoodie.table.ordering.fields": "_event_lsn",
        DELETE_FIELD: "_change_operation_type",
        DELETE_MARKER: "d",
        PREFIX + "hoodie.write.partial.update.unavailable.value": "__debezium_unavailable_value",
    },
}


@pytest.mark.parametrize("payload", sorted(RETIRED), ids=names.short_name)
def test_version_nine_replaces_retired_payload_classes(payload: str) -> None:
    stored = _stored(NINE, payload=payload, mode=ET)
    assert stored == RETIRED[payload] | {"hoodie.table.legacy.payload.class": payload}
    config = MergeConfig.from_properties(NINE, stored)
    assert config.mode.value == stored["hoodie.record.merge.mode"]
    assert config.delete_field == stored.get(DELETE_FIELD)


def test_version_nine_keeps_the_writers_delete_mark_for_the_default_payload() -> None:
    options = {"hoodie.payload.delete.field": "Op", "hoodie.payload.delete.marker": "D"}
    stored = _stored(NINE, payload=DEF, options=options)
    assert stored[DELETE_FIELD] == "Op" and stored[DELETE_MARKER] == "D"


def test_six_is_judged_by_the_payload_class_of_the_old_releases() -> None:
    bare = MergeConfig.from_properties(SIX, {"hoodie.table.precombine.field": "ts"})
    assert bare.payload_class == OWL and bare.semantics is Semantics.ZERO
    assert bare.ordering_fields == ("ts",)
    newer = MergeConfig.from_properties(
        SIX, {"hoodie.table.precombine.field": "ts"}, semantics=Semantics.ONE
    )
    assert newer.payload_class == DEF and newer.mode is ET
    pair = {
        "hoodie.compaction.payload.class": OWL,
        "hoodie.compaction.record.merger.strategy": str(names.EVENT_TIME_ID),
    }
    assert MergeConfig.from_properties(SIX, pair).payload_class == OWL


def test_stored_modes_are_taken_at_their_word_beside_leftovers() -> None:
    config = MergeConfig.from_properties(
        NINE,
        {
            "hoodie.record.merge.mode": "EVENT_TIME_ORDERING",
            "hoodie.table.ordering.fields": "a, b,",
            "hoodie.compaction.payload.class": OWL,
            "hoodie.compaction.record.merger.strategy": str(names.EVENT_TIME_ID),
        },
    )
    assert (config.mode, config.strategy_id) == (ET, names.EVENT_TIME_ID)
    assert config.ordering_fields == ("a", "b")
    commit = MergeConfig.from_properties(
        EIGHT,
        {
            "hoodie.record.merge.mode": "COMMIT_TIME_ORDERING",
            "hoodie.table.precombine.field": "ts",
        },
    )
    assert commit.mode is CT and commit.ordering_fields == ()


def test_a_table_that_an_early_upgrade_left_without_mode_is_inferred() -> None:
    leftovers = {
        "hoodie.compaction.payload.class": USER,
        "hoodie.compaction.record.merger.strategy": str(names.EVENT_TIME_ID),
    }
    config = MergeConfig.from_properties(EIGHT, leftovers)
    assert (config.mode, config.strategy_id) == (CUSTOM, names.PAYLOAD_ID)


def test_ordering_fields_are_looked_up_in_order() -> None:
    ladder = [
        "hoodie.table.ordering.fields",
        "hoodie.table.precombine.field",
        "hoodie.datasource.write.precombine.field",
        "hoodie.payload.ordering.field",
    ]
    for place in range(len(ladder)):
        properties = {key: key[-5:] for key in ladder[place:]}
        config = MergeConfig.from_properties(SIX, properties)
        assert config.ordering_fields == (ladder[place][-5:],)


def test_partial_update_modes_belong_to_version_nine() -> None:
    properties = {
        "hoodie.record.merge.mode": "EVENT_TIME_ORDERING",
        "hoodie.table.partial.update.mode": "IGNORE_DEFAULTS",
    }
    nine = MergeConfig.from_properties(NINE, properties)
    assert nine.partial_update_mode is PartialUpdateMode.IGNORE_DEFAULTS
    assert MergeConfig.from_properties(EIGHT, properties).partial_update_mode is None
    early = properties | {"hoodie.table.partial.update.mode": "IGNORE_MARKERS"}
    found = MergeConfig.from_properties(NINE, early).partial_update_mode
    assert found is PartialUpdateMode.FILL_UNAVAILABLE
    with pytest.raises(UnsupportedTableError, match="FILL_DEFAULTS"):
        MergeConfig.from_properties(
            NINE, properties | {"hoodie.table.partial.update.mode": "FILL_DEFAULTS"}
        )


def test_what_cannot_be_honoured_is_refused() -> None:
    with pytest.raises(UnsupportedTableError, match="LAST_WINS"):
        MergeConfig.from_properties(EIGHT, {"hoodie.record.merge.mode": "LAST_WINS"})
    with pytest.raises(ConfigError, match="not a strategy id"):
        MergeConfig.from_properties(EIGHT, {"hoodie.record.merge.strategy.id": "mine"})
    with pytest.raises(ConfigError, match="not specified"):
        MergeConfig.from_properties(EIGHT, {"hoodie.payload.delete.field": "Op"})


def test_old_cdc_payloads_imply_their_delete_mark_for_current_readers() -> None:
    properties = {"hoodie.compaction.payload.class": names.AWS_DMS}
    config = MergeConfig.from_properties(EIGHT, properties)
    assert (config.delete_field, config.delete_marker) == ("Op", "D")
    assert MergeConfig.from_properties(SIX, properties).delete_field is None


def test_the_context_carries_what_mergers_may_depend_on() -> None:
    config = MergeConfig.from_properties(
        NINE,
        {
            "hoodie.record.merge.mode": "EVENT_TIME_ORDERING",
            "hoodie.table.ordering.fields": "ts",
            PREFIX + "my.setting": "1",
        },
    )
    schema = pa.schema([(KEY, pa.string())])
    ctx = config.context(schema, Phase.LOG, defaults={"a": 1})
    assert ctx.key_column == KEY and ctx.ordering_columns == ("ts",)
    assert ctx.properties["my.setting"] == "1" and ctx.defaults == {"a": 1}
