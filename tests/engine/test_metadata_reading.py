"""Reading through a metadata table gives the same rows as without it, and skips files."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.types as pt
import pytest

from lakewright.engine.options import ReadOptions
from lakewright.engine.scan import Scan, make_scan
from lakewright.engine.scan_plan import ScanPlan
from lakewright.engine.snapshot import Snapshot, load_snapshot
from lakewright.engine.statistics_skipping import _whole
from lakewright.expr import Expr, RangeColumns, bind, col, evaluate, keep_mask
from lakewright.format.partitions import ListedFile
from lakewright.merge.registry import MergerRegistry
from lakewright.metadata.table import MetadataTable
from lakewright.metadata.verification import Difference
from lakewright.runtime.clock import SystemClock
from lakewright.runtime.events import Event, ignore_events
from lakewright.storage.local import LocalStorage
from lakewright.table import Table
from tests.corpus import committed_tables
from tests.fixtures import SHARED_ABSENT, shared_tables, unpack

LIVE = Path(__file__).resolve().parents[2] / ".cache" / "interop"
QUICK = ("mor_v8_trips_8i3u1d.zip", "cow_v9_simple_meta.zip", "v9_mor_metadata_indexes")
UNIQUE = ReadOptions(keys_are_unique=True)


@dataclass(frozen=True)
class Case:
    """A real table with a metadata table."""

    name: str

    def at(self, folder: Path) -> Path:
        """Its place, unpacked."""
        for table in shared_tables():
            if table.id == self.name:
                return unpack(table, folder)
        for committed in committed_tables():
            if committed.name == self.name:
                return committed.unpack(folder)
        return LIVE / self.name / "table"


def cases() -> list[Any]:
    names = [t.id for t in shared_tables() if not t.refused and t.rows is not None]
    names += [t.name for t in committed_tables() if "metadata" in t.name]
    names += [str(p.parent.relative_to(LIVE)) for p in sorted(LIVE.glob("*/*/table"))]
    return [
        pytest.param(Case(n), id=n, marks=() if n.startswith(prefixes()) else pytest.mark.slow)
        for n in names
    ]


def prefixes() -> tuple[str, ...]:
    return tuple(name.removesuffix(".zip") for name in QUICK)


class Reading:
    """One table, read whole without its metadata table and by filters through it."""

    def __init__(self, path: Path) -> None:
        storage, clock = LocalStorage(str(path)), SystemClock()
        self.through = load_snapshot(storage, clock=clock)
        without = load_snapshot(storage, clock=clock, use_metadata_table=False)
        self.rows = scan_of(without, None).to_arrow().combine_chunks()
        self.schema = without.schema.arrow

    def expected(self, where: Expr) -> Counter[str]:
        bound = bind(where, self.schema)
        kept = [b.filter(evaluate(bound, b)) for b in self.rows.to_batches()]
        return Counter(repr(row) for b in kept for row in b.to_pylist())

    def found(
        self, where: Expr, options: ReadOptions | None = None
    ) -> tuple[Counter[str], ScanPlan]:
        scan = scan_of(self.through, where, options)
        return Counter(repr(row) for row in scan.to_arrow().to_pylist()), scan.plan()


def scan_of(snapshot: Snapshot, where: Expr | None, options: ReadOptions | None = None) -> Scan:
    return make_scan(
        snapshot,
        columns=None,
        where=where,
        mode="snapshot",
        meta=True,
        limit=None,
        options=options or ReadOptions(threads=1),
        registry=MergerRegistry(),
        on_event=ignore_events,
    )


def random_filter(random: Random, rows: pa.Table, depth: int = 0) -> Expr:
    if depth < 2 and random.random() < 0.4:
        left, right = (random_filter(random, rows, depth + 1) for _ in range(2))
        return left & right if random.random() < 0.6 else left | right
    found = leaf(random, rows)
    return ~found if random.random() < 0.15 else found


def leaf(random: Random, rows: pa.Table) -> Expr:
    fields = [f for f in rows.schema if comparable(f.type)]
    field = random.choice(fields)
    values = [v for v in rows[field.name].to_pylist() if v is not None and v == v]
    column = col(field.name)
    kind = random.randrange(8)
    if kind == 0 or not values:
        return column.is_null() if random.random() < 0.5 else ~column.is_null()
    value = random.choice(values)
    if kind == 1:
        return column.isin(random.sample(values, min(len(values), random.randrange(1, 4))))
    if kind == 2 and pt.is_string(field.type):
        return column.like(value[: random.randrange(len(value) + 1)].replace("%", "_") + "%")
    ops = (column == value, column == value, column < value, column <= value, column > value)
    return random.choice((*ops, column >= value, column != value))


def comparable(kind: pa.DataType) -> bool:
    checks = (pt.is_string, pt.is_integer, pt.is_floating, pt.is_boolean, pt.is_date)
    return any(check(kind) for check in checks) or pt.is_decimal(kind) or pt.is_timestamp(kind)


def skipped(plan: ScanPlan) -> Counter[str]:
    return Counter(
        partitions=plan.partitions_skipped_by_statistics,
        statistics=plan.skipped_by_statistics,
        keys=plan.skipped_by_keys,
    )


def filters(reading: Reading, count: int, seed: str) -> Iterator[Expr]:
    random = Random(seed)
    for _ in range(count):
        yield random_filter(random, reading.rows)


@pytest.mark.parametrize("case", cases())
def test_random_filters_give_the_same_rows_with_and_without(case: Case, tmp_path: Path) -> None:
    reading = Reading(case.at(tmp_path))
    if reading.through.opened.metadata is None or not reading.rows.num_rows:
        return
    total: Counter[str] = Counter()
    count = 12 if case.name.startswith(prefixes()) else 60
    for where in filters(reading, count, case.name):
        rows, plan = reading.found(where)
        assert rows == reading.expected(where), plan
        total += skipped(plan)
    assert reading.through.opened.warnings.told == []
    many = len(reading.through.live_slices()) > 2
    statistics = "column_stats" in reading.through.opened.metadata.indexes
    assert not (many and statistics) or total["statistics"] + total["partitions"] > 0


@pytest.fixture(scope="module")
def simple(tmp_path_factory: pytest.TempPathFactory) -> Reading:
    found = [t for t in shared_tables() if t.zip == "cow_v9_simple_meta.zip"]
    if not found:
        pytest.skip(SHARED_ABSENT)
    return Reading(unpack(found[0], tmp_path_factory.mktemp("simple")))


def test_a_filter_on_the_key_reads_the_file_group_that_has_it(simple: Reading) -> None:
    by_keys = 0
    for key in simple.rows["_hoodie_record_key"].to_pylist()[:4]:
        for where in (col("_hoodie_record_key") == key, col("txn_id") == key):
            rows, plan = simple.found(where)
            assert rows == simple.expected(where) and rows.total() == 1
            assert len(plan.tasks) == 1
            by_keys += plan.skipped_by_keys
    assert by_keys > 0
    assert simple.found(col("txn_id") == "no such key")[1].tasks == ()


def test_a_filter_on_an_indexed_column_reads_the_file_groups_that_have_its_values(
    simple: Reading,
) -> None:
    by_keys = 0
    for column in ("merchant_name", "txn_date"):
        for value in sorted(set(simple.rows[column].to_pylist()) - {None})[:3]:
            where = col(column) == value
            rows, plan = simple.found(where)
            assert rows == simple.expected(where) and rows.total() > 0
            by_keys += plan.skipped_by_keys
    assert by_keys > 0


def test_partitions_are_skipped_by_their_statistics(simple: Reading) -> None:
    amounts: dict[str, list[Any]] = {}
    columns = (simple.rows["_hoodie_partition_path"], simple.rows["amount"])
    for partition, amount in zip(*(c.to_pylist() for c in columns), strict=True):
        amounts.setdefault(partition, []).append(amount)
    least = min(max(values) for values in amounts.values())
    where = col("amount") > least
    rows, plan = simple.found(where)
    assert rows == simple.expected(where) and rows.total() > 0
    assert (
        plan.partitions_skipped_by_statistics == 1 == plan.partitions_total - plan.partitions_kept
    )


def test_a_column_that_some_files_lack_says_nothing_about_a_partition() -> None:
    known = RangeColumns(pa.array([1, 1]), pa.array([5, 5]), pa.array([0, 0]), pa.array([4, 9]))
    keys = RangeColumns(None, None, None, pa.array([9, 9]))
    ranges = _whole({"n": known, "_hoodie_record_key": keys}, ["n"])
    where = bind((col("n") > 7) | col("n").is_null(), pa.schema([("n", pa.int64())]))
    assert keep_mask(where, ranges, 2).tolist() == [True, False]


def test_a_key_with_two_rows_is_found_in_both(tmp_path: Path) -> None:
    found = [t for t in shared_tables() if t.zip == "cow_v9_timebasedkeygen_epochmillis.zip"]
    if not found:
        pytest.skip(SHARED_ABSENT)
    reading = Reading(unpack(found[0], tmp_path))
    keys = Counter(reading.rows["_hoodie_record_key"].to_pylist())
    twice = next(key for key, count in keys.items() if count > 1)
    where = col("_hoodie_record_key") == twice
    assert reading.found(where)[0] == reading.expected(where)
    # Who says that keys are unique gets what the index says.
    assert reading.found(where, UNIQUE)[0].total() == 1


@pytest.mark.slow
def test_a_past_state_is_not_judged_by_statistics_of_the_present(simple: Reading) -> None:
    storage, clock = simple.through.storage, SystemClock()
    commits = simple.through.timeline.commits().completed()
    for instant in list(commits)[1:4:2]:
        at = instant.requested_time
        then = load_snapshot(storage, clock=clock, as_of=at)
        plain = load_snapshot(storage, clock=clock, as_of=at, use_metadata_table=False)
        rows = scan_of(plain, None).to_arrow()
        for key, amount in zip(
            rows["_hoodie_record_key"].to_pylist()[:3],
            rows["amount"].to_pylist()[:3],
            strict=True,
        ):
            for where in (col("_hoodie_record_key") == key, col("amount") == amount):
                read = scan_of(then, where).to_arrow()
                expected = rows.filter(rows_mask(rows, where, then))
                assert sorted(map(repr, read.to_pylist())) == sorted(
                    map(repr, expected.to_pylist())
                )


def rows_mask(rows: pa.Table, where: Expr, snapshot: Snapshot) -> pa.Array:
    bound = bind(where, snapshot.schema.arrow)
    (batch,) = rows.combine_chunks().to_batches()
    return evaluate(bound, batch)


class Watching(LocalStorage):
    """Remembers which folders were listed."""

    def __init__(self, base: str, listed: list[str] | None = None) -> None:
        super().__init__(base)
        self.listed: list[str] = [] if listed is None else listed

    def child(self, path: str) -> Watching:
        return Watching(super().child(path).uri.removeprefix("file://"), self.listed)

    def list(self, path: str = "") -> Any:
        self.listed.append(f"{self.uri}/{path}")
        return super().list(path)

    def walk(self, path: str = "") -> Any:
        self.listed.append(f"{self.uri}/{path}")
        return super().walk(path)

    def names(self, path: str = "") -> Any:
        self.listed.append(f"{self.uri}/{path}")
        return super().names(path)


def test_no_folder_of_data_is_listed(simple: Reading) -> None:
    watched = Watching(simple.through.storage.uri.removeprefix("file://"))
    scan = scan_of(load_snapshot(watched, clock=SystemClock()), col("txn_id") == "TXN-007")
    assert scan.to_arrow().num_rows == 1
    assert watched.listed and all("/.hoodie/" in path for path in watched.listed)
    plain = load_snapshot(watched, clock=SystemClock(), use_metadata_table=False)
    scan_of(plain, None).plan()
    assert not all("/.hoodie/" in path for path in watched.listed)


# ---- a metadata table that is not to be trusted ------------------------------------------------


@pytest.fixture
def trips(tmp_path: Path) -> Path:
    found = [t for t in shared_tables() if t.zip == "mor_v8_trips_8i3u1d.zip"]
    if not found:
        pytest.skip(SHARED_ABSENT)
    return unpack(found[0], tmp_path)


OWN = ".hoodie/metadata/.hoodie/timeline"


def test_a_stale_metadata_table_is_not_used_and_the_way_out_is_told(
    trips: Path, caplog: pytest.LogCaptureFixture
) -> None:
    expected = sorted(map(repr, Table.open(trips).scan().to_arrow().to_pylist()))
    newest = max((trips / ".hoodie/timeline").glob("*.deltacommit")).name[:17]
    for file in (trips / OWN).glob(f"{newest}*"):
        file.unlink()
    events: list[Event] = []
    scan = Table.open(trips, on_event=events.append).scan()
    assert [(e.kind, e.path) for e in events] == [("metadata_table.not_used", ".hoodie/metadata")]
    assert sorted(map(repr, scan.to_arrow().to_pylist())) == expected
    (warning,) = scan.plan().warnings
    assert "stale" in warning and "lakewright metadata rebuild" in warning
    [logged] = caplog.messages
    assert warning in logged and str(trips) in logged
    assert scan.plan().listing == "listing"


@pytest.mark.parametrize("index", ["files", "column_stats", "partition_stats", "record_index"])
def test_a_damaged_index_is_not_used_and_rows_are_the_same(
    index: str, trips: Path, caplog: pytest.LogCaptureFixture
) -> None:
    expected = Reading(trips)
    for base in (trips / ".hoodie/metadata" / index).glob("*.hfile"):
        data = bytearray(base.read_bytes())
        data[60] ^= 0xFF
        base.write_bytes(bytes(data))
    reading = Reading(trips)
    where = (col("fare") > 30.0) & (col("_hoodie_record_key") >= "")
    key = expected.rows["_hoodie_record_key"][0].as_py()
    for asked in (where, col("_hoodie_record_key").isin([key, "other"])):
        assert reading.found(asked, UNIQUE)[0] == expected.expected(asked)
    warnings = reading.through.opened.warnings.told
    assert len(warnings) > 0
    assert all(w in caplog.text and "lakewright metadata rebuild" in w for w in warnings)
    assert len(caplog.messages) == len({*caplog.messages})


def test_a_record_index_that_lost_a_file_group_is_not_asked(
    simple: Reading, tmp_path: Path
) -> None:
    """It would find nothing: the number of file groups decides where a key is looked for."""
    source = Path(simple.through.storage.uri.removeprefix("file://"))
    copy = Path(shutil.copytree(source, tmp_path / "copy"))
    for file in (copy / ".hoodie/metadata/record_index").glob("*record-index-0009-0_*"):
        file.unlink()
    reading = Reading(copy)
    for key in simple.rows["_hoodie_record_key"].to_pylist()[:3]:
        where = col("_hoodie_record_key") == key
        assert reading.found(where, UNIQUE)[0] == simple.expected(where)
        assert reading.found(where)[0] == simple.expected(where)
    assert "record index not used" in reading.through.opened.warnings.told[0]


def test_a_secondary_index_without_entries_of_nulls_is_asked(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.string()), ("part", pa.string()), ("city", pa.string())])
    table = Table.create(tmp_path / "t", schema=schema, version=8, key=["id"], partition=["part"])
    options = {"hoodie.metadata.enable": "true"}

    def rows(**cities: str | None) -> pa.Table:
        columns = {"id": [*cities], "part": [i[0] for i in cities], "city": [*cities.values()]}
        return pa.table(columns, schema=schema)

    table.upsert(rows(a1="x", a2=None, b1="y", c1=None), options=options)
    table.metadata.build("column_stats", secondary={"by_city": "city"})
    for changed in (rows(a1=None, a2="y"), rows(b1=None, c1="y"), rows(d1="a", d2="z")):
        table.upsert(changed, options=options)
        assert [f for f in table.metadata.verify() if isinstance(f, Difference)] == []
    metadata = table.snapshot().opened.metadata
    assert metadata is not None
    assert metadata.secondary_index("secondary_index_by_city", [None]).num_rows == 0
    assert metadata.secondary_index_size("secondary_index_by_city") == 4
    scan = table.scan(where="city in ('y', 'none')")
    assert sorted(scan.to_arrow()["id"].to_pylist()) == ["a2", "c1"]
    assert {task.slice_.group.partition for task in scan.plan().tasks} == {"a", "c"}
    assert scan.plan().skipped_by_keys > 0
    assert table.scan(where="city is null").to_arrow().num_rows == 2


def test_logs_that_a_rollback_listed_by_their_names_alone_are_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hudi 0.x lists logs of dead writes with a size of 1, and even those that were never made."""
    schema = pa.schema([("id", pa.string()), ("ts", pa.int64())])
    table = Table.create(
        tmp_path / "t", schema=schema, key=["id"], ordering=["ts"], type="mor", version=6
    )
    options = {"hoodie.metadata.enable": "true"}
    for number in (1, 2):
        rows = pa.table({"id": ["a", "b"], "ts": [number, number]}, schema=schema)
        table.upsert(rows, options=options)
    listed = MetadataTable.files

    def by_name(self: MetadataTable, partitions: Sequence[str]) -> dict[str, list[ListedFile]]:
        found = listed(self, partitions)[""]
        log = min(f for f in found if ".log." in f.name)
        never = log.name.replace(".log.1_", ".log.9_")
        named = [ListedFile(name, 1) for name in (log.name, never)]
        return {"": [*(f for f in found if f != log), *named]}

    monkeypatch.setattr(MetadataTable, "files", by_name)
    scan = table.scan()
    assert sorted(scan.to_arrow()["ts"].to_pylist()) == [2, 2]
    [warning] = scan.plan().warnings
    assert "size of 2 files" in warning and "lakewright metadata rebuild" in warning
    table.upsert(pa.table({"id": ["a"], "ts": [3]}, schema=schema), options=options)
    assert sorted(table.scan().to_arrow()["ts"].to_pylist()) == [2, 3]
