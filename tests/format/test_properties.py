"""Table properties: the JVM's syntax, the checksum, loading with recovery, refusals, updating."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakewright.errors import (
    CorruptFileError,
    FormatError,
    LakewrightError,
    LockLostError,
    TableNotFoundError,
    UnsupportedTableError,
)
from lakewright.format import property_keys as keys
from lakewright.format.properties import (
    BACKUP_FILE,
    PROPERTIES_FILE,
    KeyGeneratorType,
    TableProperties,
    checksum,
    format_properties,
    load_properties,
    parse_properties,
    update_properties,
)
from lakewright.format.property_text import date_comment, iso_instant
from lakewright.runtime.clock import ManualClock
from lakewright.storage.local import LocalStorage
from lakewright.storage.memory import MemoryStorage
from tests.fixtures import SHARED_ABSENT, shared_tables
from tests.format.timeline_tables import readable_tables, table_folders

GOOD = {
    "hoodie.table.name": "trips",
    "hoodie.table.type": "MERGE_ON_READ",
    "hoodie.table.version": "8",
    "hoodie.timeline.layout.version": "2",
    "hoodie.timeline.path": "timeline",
}
needs_shared = pytest.mark.skipif(not shared_tables(), reason=SHARED_ABSENT)


def stored(storage: MemoryStorage, values: dict[str, str], path: str = PROPERTIES_FILE) -> None:
    name, database = values.get(keys.NAME, ""), values.get(keys.DATABASE)
    storage.replace(path, format_properties({keys.CHECKSUM: checksum(database, name), **values}))


def opened(values: dict[str, str], *, metadata_table: bool = False) -> TableProperties:
    storage = MemoryStorage()
    stored(storage, values)
    return load_properties(storage, clock=ManualClock(), metadata_table=metadata_table)


# ---- syntax ------------------------------------------------------------------------------------


def test_a_real_line_with_escaped_colons_reads_as_the_schema_it_holds() -> None:
    line = (
        rb'hoodie.table.create.schema={"type"\:"record","name"\:"v6_empty_record","namespace"\:'
        rb'"hoodie.v6_empty","fields"\:[{"name"\:"id","type"\:["int","null"]}]}' + b"\n"
    )
    pairs = parse_properties(line)
    assert pairs == {
        "hoodie.table.create.schema": '{"type":"record","name":"v6_empty_record","namespace":'
        '"hoodie.v6_empty","fields":[{"name":"id","type":["int","null"]}]}'
    }
    assert format_properties(pairs) == line


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        (b"a=1\n", {"a": "1"}),
        (b"  a  =  1 \n", {"a": "1 "}),
        (b"a:1\rb 2\r\nc\t3", {"a": "1", "b": "2", "c": "3"}),
        (b"a = : 1", {"a": ": 1"}),
        (b"a", {"a": ""}),
        (b"=x", {"": "x"}),
        (b"# no\n ! no\n\n a=1", {"a": "1"}),
        (b"a=x\\\n   y\nb=2", {"a": "xy", "b": "2"}),
        (b"a=x\\\\\nb=2", {"a": "x\\", "b": "2"}),
        (b"a=x\\\n\nb=2", {"a": "x", "b": "2"}),
        (b"a=x\\\n# y\nb=2", {"a": "x# y", "b": "2"}),
        (b"a=x\\", {"a": "x"}),
        (b"a\\ b\\=c=1", {"a b=c": "1"}),
        (b"a=\\u00e9\\t\\n\\r\\f\\q", {"a": "é\t\n\r\fq"}),
        (b"a=\\uD83D\\uDE00", {"a": "\U0001f600"}),
        (b"a=\xe9", {"a": "é"}),
        (b"a=1\na=2", {"a": "2"}),
        (b"", {}),
        (b"\\\n#a=1\nb=2", {"b": "2"}),
    ],
)
def test_text_reads_as_the_jvm_reads_it(text: bytes, pairs: dict[str, str]) -> None:
    assert parse_properties(text) == pairs


def test_a_malformed_unicode_escape_is_an_error_with_the_path() -> None:
    with pytest.raises(FormatError) as caught:
        parse_properties(b"a=\\u12", path="p")
    assert caught.value.context["path"] == "p"


def test_written_text_is_what_the_jvm_writes() -> None:
    pairs = {"a b": " x y", "k=:#!\\": "v=:#!\\", "t": "\t\n\r\f", "e": "é\U0001f600"}
    assert format_properties(pairs, ["Updated at now", "second"]) == (
        b"#Updated at now\n#second\n"
        b"a\\ b=\\ x y\n"
        b"k\\=\\:\\#\\!\\\\=v\\=\\:\\#\\!\\\\\n"
        b"t=\\t\\n\\r\\f\n"
        b"e=\\u00E9\\uD83D\\uDE00\n"
    )


@given(st.dictionaries(st.text(), st.text()), st.lists(st.text(), max_size=2))
def test_any_pairs_survive_writing_and_reading(pairs: dict[str, str], comments: list[str]) -> None:
    assert parse_properties(format_properties(pairs, comments)) == pairs


@given(st.binary(max_size=200))
def test_any_bytes_read_or_raise_a_format_error(data: bytes) -> None:
    try:
        pairs = parse_properties(data)
    except FormatError:
        return
    assert parse_properties(format_properties(pairs)) == pairs


def test_comment_lines_have_the_form_of_the_jvm() -> None:
    assert iso_instant(1758572497375) == "2025-09-22T20:21:37.375Z"
    assert date_comment(1758572497375) == "Mon Sep 22 20:21:37 UTC 2025"


# ---- checksum ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("database", "table", "value"),
    [
        ("default", "v6_empty", "1980710965"),
        (None, "hudi-v6-table-mor_table_metadata", "2553568492"),
        ("", "hudi-v6-table-mor_table", "1066950656"),
    ],
)
def test_checksums_of_real_tables(database: str | None, table: str, value: str) -> None:
    assert checksum(database, table) == value


@given(st.text(), st.text())
def test_checksum_is_the_crc_of_both_names_with_a_dot(database: str, table: str) -> None:
    assert checksum(database, table) == str(zlib.crc32(f"{database}.{table}".encode()))


# ---- real tables -------------------------------------------------------------------------------


@needs_shared
def test_every_real_properties_file_is_rewritten_to_the_same_lines() -> None:
    folders = table_folders()
    assert len(folders) > 40
    for folder in folders:
        data = (folder / PROPERTIES_FILE).read_bytes()
        lines = data.decode("latin-1").splitlines()
        comments = [line[1:] for line in lines if line.startswith("#")]
        pairs = parse_properties(data)
        assert format_properties(pairs, comments) == data, folder
        assert pairs[keys.CHECKSUM] == checksum(pairs.get(keys.DATABASE), pairs[keys.NAME])


@needs_shared
def test_tables_that_must_be_refused_are_refused_by_property_and_value() -> None:
    refused = [f for f in table_folders() if "_refuse" in str(f) and f.name != "metadata"]
    assert len(refused) == 3
    for folder in refused:
        with pytest.raises(UnsupportedTableError) as caught:
            load_properties(LocalStorage(folder), clock=ManualClock())
        context = caught.value.context
        assert f"{context['property']}={context['value']}" in caught.value.message


@needs_shared
def test_versions_and_types_of_real_tables_agree_with_the_manifest() -> None:
    opened_tables = {t.name: t.properties for t in readable_tables()}
    for shared in shared_tables():
        if shared.refused:
            continue
        properties = opened_tables[str(Path(shared.zip).stem / Path(shared.table))]
        assert properties.version.number == shared.version
        assert properties.table_type == shared.type
        assert properties.key_generator is not KeyGeneratorType.USER_PROVIDED


# ---- typed access ------------------------------------------------------------------------------


def test_defaults_are_those_of_hudi() -> None:
    properties = opened({k: v for k, v in GOOD.items() if k not in (keys.TYPE, keys.TIMELINE_PATH)})
    assert properties.table_type == "COPY_ON_WRITE"
    assert properties.database == ""
    assert properties.timeline_folder == ".hoodie/timeline"
    assert properties.history_folder == ".hoodie/timeline/history"
    assert properties.timeline_timezone == "LOCAL"
    assert properties.base_file_format == "PARQUET"
    assert properties.record_key_fields == () and properties.partition_fields == ()
    assert not (properties.hive_style or properties.url_encode or properties.cdc_enabled)
    assert not properties.drop_partition_columns
    assert properties.populate_meta_fields
    assert properties.cdc_mode == "DATA_BEFORE_AFTER"
    assert properties.key_generator is KeyGeneratorType.NON_PARTITION
    assert properties.payload_class is None and properties.merge_mode is None
    assert properties.metadata_partitions == ()


def test_version_6_keeps_its_timeline_beside_the_properties_and_ignores_newer_keys() -> None:
    six = {**GOOD, keys.VERSION: "6", keys.LAYOUT_VERSION: "1", keys.HISTORY_PATH: "history"}
    assert opened(six).timeline_folder == ".hoodie"
    assert opened(six).history_folder == ".hoodie/archived"
    assert opened({**six, keys.ARCHIVE_FOLDER: "old"}).history_folder == ".hoodie/old"
    assert opened({**GOOD, keys.ARCHIVE_FOLDER: "old"}).history_folder.endswith("/history")


def test_types_of_custom_partition_fields_are_told_apart_from_their_names() -> None:
    properties = opened({**GOOD, keys.PARTITION_FIELDS: "city:SIMPLE,day:timestamp"})
    assert properties.partition_fields == ("city", "day")
    assert properties.partition_field_types == ("SIMPLE", "TIMESTAMP")
    assert properties.key_generator is KeyGeneratorType.CUSTOM


def test_ordering_fields_are_found_under_either_name_and_the_new_one_wins() -> None:
    assert opened({**GOOD, keys.PRECOMBINE_FIELD: "ts"}).ordering_fields == ("ts",)
    both = {**GOOD, keys.PRECOMBINE_FIELD: "ts", keys.ORDERING_FIELDS: "a, b,"}
    assert opened(both).ordering_fields == ("a", "b")


def test_old_package_names_read_as_todays() -> None:
    properties = opened({**GOOD, keys.PAYLOAD_CLASS: "com.uber.hoodie.Payload"})
    assert properties.payload_class == "org.apache.hudi.Payload"


def test_merge_options_and_time_settings_come_without_their_prefix() -> None:
    properties = opened(
        {
            **GOOD,
            "hoodie.record.merge.property.hoodie.payload.delete.field": "Op",
            "hoodie.deltastreamer.keygen.timebased.timezone": "UTC",
            "hoodie.keygen.timebased.output.dateformat": "yyyy",
        }
    )
    assert properties.merge_properties == {"hoodie.payload.delete.field": "Op"}
    assert properties.time_keygen_settings == {"timezone": "UTC", "output.dateformat": "yyyy"}


def test_partial_update_mode_is_read_only_where_the_version_has_it() -> None:
    values = {**GOOD, keys.PARTIAL_UPDATE_MODE: "IGNORE_DEFAULTS"}
    assert opened(values).partial_update_mode is None
    assert opened({**values, keys.VERSION: "9"}).partial_update_mode == "IGNORE_DEFAULTS"


def test_meta_fields_mode_wins_over_the_old_flag() -> None:
    assert not opened({**GOOD, keys.META_FIELDS_MODE: "NONE"}).populate_meta_fields
    both = {**GOOD, keys.META_FIELDS_MODE: "ALL", keys.POPULATE_META_FIELDS: "false"}
    assert opened(both).populate_meta_fields


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ({keys.KEY_GENERATOR_CLASS: "org.apache.hudi.keygen.ComplexAvroKeyGenerator"}, "COMPLEX"),
        ({keys.KEY_GENERATOR_CLASS: "com.mine.SimpleKeyGenerator"}, "USER_PROVIDED"),
        ({keys.KEY_GENERATOR_CLASS: "org.apache.hudi.keygen.Mine"}, "USER_PROVIDED"),
        ({keys.KEY_GENERATOR_TYPE: "TIMESTAMP_AVRO"}, "TIMESTAMP"),
        (
            {
                keys.KEY_GENERATOR_TYPE: "SIMPLE",
                keys.KEY_GENERATOR_CLASS: "org.apache.hudi.keygen.CustomKeyGenerator",
            },
            "CUSTOM",
        ),
        ({keys.RECORD_KEY_FIELDS: "a"}, "NON_PARTITION"),
        ({keys.RECORD_KEY_FIELDS: "a,b"}, "NON_PARTITION"),
        ({keys.RECORD_KEY_FIELDS: "a", keys.PARTITION_FIELDS: "p"}, "SIMPLE"),
        ({keys.PARTITION_FIELDS: "p"}, "SIMPLE"),
        ({keys.RECORD_KEY_FIELDS: "a,b", keys.PARTITION_FIELDS: "p"}, "COMPLEX"),
        ({keys.RECORD_KEY_FIELDS: "a", keys.PARTITION_FIELDS: "p,q"}, "COMPLEX"),
    ],
)
def test_key_generator_is_resolved_from_class_type_or_fields(
    values: dict[str, str], kind: str
) -> None:
    assert opened({**GOOD, **values}).key_generator == kind


def test_an_unknown_key_generator_type_is_an_error_that_lists_the_known_ones() -> None:
    with pytest.raises(FormatError, match="SIMPLE"):
        _ = opened({**GOOD, keys.KEY_GENERATOR_TYPE: "WHAT"}).key_generator


# ---- refusals ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (keys.VERSION, "5"),
        (keys.VERSION, "7"),
        (keys.VERSION, "10"),
        (keys.VERSION, "eight"),
        (keys.LAYOUT_VERSION, "1"),
        (keys.LAYOUT_VERSION, ""),
        (keys.BASE_FILE_FORMAT, "LANCE"),
        (keys.BASE_FILE_FORMAT, "orc"),
        (keys.BASE_FILE_FORMAT, "HFILE"),
        (keys.BASE_FILE_FORMAT, "VORTEX"),
        (keys.BASE_FILE_FORMAT_OLD, "ORC"),
        (keys.MULTIPLE_FORMATS, "true"),
        (keys.BOOTSTRAP_BASE_PATH, "/old"),
        (keys.META_FIELDS_MODE, "COMMIT_TIME_ONLY"),
        (keys.TABLE_FORMAT, "iceberg"),
        (keys.TYPE, "WHAT"),
    ],
)
def test_what_cannot_be_handled_is_refused_by_property_and_value(key: str, value: str) -> None:
    with pytest.raises(UnsupportedTableError) as caught:
        opened({**GOOD, key: value})
    assert caught.value.context["property"] == key
    assert str(caught.value.context["value"]) == value
    assert caught.value.hint


def test_a_missing_version_is_not_guessed() -> None:
    with pytest.raises(UnsupportedTableError, match="missing"):
        opened({k: v for k, v in GOOD.items() if k != keys.VERSION})


def test_the_metadata_table_itself_may_have_hfile_base_files() -> None:
    values = {**GOOD, keys.BASE_FILE_FORMAT: "HFILE"}
    assert opened(values, metadata_table=True).base_file_format == "HFILE"


def test_harmless_values_of_the_same_properties_are_accepted() -> None:
    opened({**GOOD, keys.TABLE_FORMAT: "NATIVE", keys.MULTIPLE_FORMATS: "false"})
    opened({**GOOD, keys.BOOTSTRAP_BASE_PATH: "", keys.META_FIELDS_MODE: "all"})


# ---- loading with recovery ---------------------------------------------------------------------


def test_no_meta_folder_is_not_found_at_once() -> None:
    clock = ManualClock()
    with pytest.raises(TableNotFoundError):
        load_properties(MemoryStorage(), clock=clock)
    assert clock.slept_s == []


def test_a_meta_folder_without_properties_is_tried_five_times() -> None:
    storage, clock = MemoryStorage(), ManualClock()
    storage.replace(".hoodie/timeline/1.commit.requested", b"")
    with pytest.raises(TableNotFoundError, match=r"no hoodie\.properties"):
        load_properties(storage, clock=clock)
    assert clock.slept_s == [1.0] * 4


def truncated(storage: MemoryStorage) -> None:
    storage.replace(PROPERTIES_FILE, format_properties(GOOD)[:30])


def wrong(storage: MemoryStorage) -> None:
    storage.replace(PROPERTIES_FILE, format_properties({**GOOD, keys.CHECKSUM: "1"}))


def empty(storage: MemoryStorage) -> None:
    storage.replace(PROPERTIES_FILE, b"")


def unparsable(storage: MemoryStorage) -> None:
    storage.replace(PROPERTIES_FILE, b"a=\\u1")


def unchecked(storage: MemoryStorage) -> None:
    storage.replace(PROPERTIES_FILE, format_properties({keys.NAME: "cut off"}))


def missing(storage: MemoryStorage) -> None:
    storage.delete(PROPERTIES_FILE)


@pytest.mark.parametrize("damage", [truncated, wrong, empty, unparsable, unchecked, missing])
def test_the_backup_is_read_where_the_main_file_is_not_whole(
    damage: Callable[[MemoryStorage], None],
) -> None:
    storage, clock = MemoryStorage(), ManualClock()
    stored(storage, GOOD, BACKUP_FILE)
    damage(storage)
    assert load_properties(storage, clock=clock).name == "trips"
    assert clock.slept_s == []


def test_an_update_that_is_in_the_middle_is_waited_for() -> None:
    storage = MemoryStorage()
    empty(storage)

    class Finishing(ManualClock):
        def sleep(self, seconds: float) -> None:
            super().sleep(seconds)
            if len(self.slept_s) == 2:
                stored(storage, GOOD)

    clock = Finishing()
    assert load_properties(storage, clock=clock).name == "trips"
    assert clock.slept_s == [1.0, 1.0]


def test_files_that_stay_invalid_are_corrupt() -> None:
    storage = MemoryStorage()
    wrong(storage)
    with pytest.raises(CorruptFileError) as caught:
        load_properties(storage, clock=ManualClock())
    assert caught.value.context["path"] == PROPERTIES_FILE


def test_a_file_without_checksum_is_accepted_if_there_is_no_better_one() -> None:
    storage = MemoryStorage()
    storage.replace(PROPERTIES_FILE, format_properties(GOOD))
    assert load_properties(storage, clock=ManualClock()).name == "trips"


# ---- updating ----------------------------------------------------------------------------------


def test_an_update_keeps_unknown_keys_and_leaves_no_backup() -> None:
    storage = MemoryStorage()
    stored(storage, {**GOOD, "mine": "x", "gone": "y"})
    clock = ManualClock(1758572497375)
    new = update_properties(storage, {"a": "1"}, ["gone", "never"], clock=clock)
    data = storage.read(PROPERTIES_FILE)
    assert parse_properties(data) == new.values
    assert new.values["a"] == "1" and new.values["mine"] == "x" and "gone" not in new.values
    assert data.startswith(b"#Updated at 2025-09-22T20:21:37.375Z\n#Mon Sep 22 20:21:37 UTC 2025\n")
    assert not storage.exists(BACKUP_FILE)


def test_a_new_name_gets_a_new_checksum() -> None:
    storage = MemoryStorage()
    stored(storage, GOOD)
    new = update_properties(storage, {keys.NAME: "rides"}, clock=ManualClock())
    assert new.values[keys.CHECKSUM] == checksum("", "rides")


@pytest.mark.parametrize("damage", [truncated, wrong, empty, unparsable, missing])
def test_an_update_first_recovers_from_a_crashed_one(
    damage: Callable[[MemoryStorage], None],
) -> None:
    storage = MemoryStorage()
    stored(storage, {**GOOD, "old": "1"}, BACKUP_FILE)
    damage(storage)
    new = update_properties(storage, {"a": "1"}, clock=ManualClock())
    assert new.values["old"] == "1"
    assert not storage.exists(BACKUP_FILE)


def test_an_update_of_nothing_valid_fails_and_destroys_nothing() -> None:
    storage = MemoryStorage()
    storage.replace(BACKUP_FILE, b"half")
    with pytest.raises(CorruptFileError):
        update_properties(storage, {"a": "1"}, clock=ManualClock())
    assert storage.read(BACKUP_FILE) == b"half"


@pytest.mark.parametrize("allowed", [0, 1])
def test_who_lost_the_lock_changes_no_properties(allowed: int) -> None:
    storage = MemoryStorage()
    stored(storage, GOOD)
    asked: list[int] = []

    def check() -> None:
        asked.append(1)
        if len(asked) > allowed:
            raise LockLostError("It was lost.", hint="Stop.")

    with pytest.raises(LockLostError):
        update_properties(storage, {"a": "1"}, clock=ManualClock(), check=check)
    assert "a" not in load_properties(storage, clock=ManualClock()).values
    assert update_properties(storage, {"a": "1"}, clock=ManualClock()).values["a"] == "1"


def test_whenever_an_update_crashes_readers_see_old_or_new_and_the_next_update_works() -> None:
    for crash_after in range(1, 40):
        storage = MemoryStorage()
        stored(storage, GOOD)
        left = [crash_after]

        class Crashing:
            def __getattr__(self, name: str) -> object:
                member = getattr(storage, name)  # noqa: B023
                if not callable(member):
                    return member

                def call(*args: object, **options: object) -> object:
                    left[0] -= 1  # noqa: B023
                    if left[0] < 0:  # noqa: B023
                        raise KeyboardInterrupt
                    return member(*args, **options)

                return call

        finished = False
        try:
            update_properties(Crashing(), {"a": "1"}, clock=ManualClock())  # type: ignore[arg-type]
            finished = True
        except KeyboardInterrupt:
            pass
        clock = ManualClock()
        seen = load_properties(storage, clock=clock)
        assert clock.slept_s == []
        assert seen.get("a") in ({"1"} if finished else {None, "1"})
        after = update_properties(storage, {"b": "2"}, clock=ManualClock())
        assert after.get("b") == "2" and not storage.exists(BACKUP_FILE)
        if finished:
            return
    raise AssertionError("the update never finished")


def test_properties_survive_pickling() -> None:
    import pickle

    properties = opened(GOOD)
    assert pickle.loads(pickle.dumps(properties)) == properties


def test_errors_tell_what_to_do() -> None:
    with pytest.raises(LakewrightError) as caught:
        opened({**GOOD, keys.BASE_FILE_FORMAT: "LANCE"})
    assert "hoodie.table.base.file.format=LANCE" in str(caught.value)
