"""Verification of metadata tables: those of real Hudi are right, wrong records are found."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from lakewright.codec.hfile import HFile, encode_hfile
from lakewright.errors import OptionError
from lakewright.format.log_block import rollback_block
from lakewright.metadata.verification import Compared, Difference, DifferenceKind
from lakewright.services.rollback import roll_back_instant
from lakewright.table import Table
from tests.corpus import CommittedTable, committed_tables
from tests.engine.test_crash_everywhere import rows, upsert
from tests.engine.test_metadata_everywhere import access_of, check_listed, indexed
from tests.fixtures import SHARED_ABSENT, SharedTable, shared_tables, unpack

SHARED = [t for t in shared_tables() if not t.refused]
COMMITTED = [t for t in committed_tables() if "metadata" in t.name]
LIVE = Path(__file__).resolve().parents[2] / ".cache" / "interop"
LIVE_ABSENT = "no tables were made by `make interop` yet"
QUICK = ("mor_v8_trips_8i3u1d.zip", "mor_v6_comprehensive_types.zip")

WRONG_BY_HUDI = {
    # 0.15.0 builds the statistics anew after a restore, from no files: 4 files of 15 columns.
    "v6_cow_undone_timestamp": {("column_stats", DifferenceKind.MISSING): 60},
    # 1.0.2 leaves the base files below a compaction out of the statistics that a delta commit
    # beside it leaves; those of the compaction itself have the earlier time, and lose.
    "v8_mor_pending_compaction_complex": {("partition_stats", DifferenceKind.DIFFERENT): 22},
}
"""Differences that Hudi itself left in tables that it made for `make interop`."""


def verified(path: Path, *indexes: str) -> tuple[list[Difference], list[Compared]]:
    found = list(Table.open(path).metadata.verify(*indexes))
    differences = [f for f in found if isinstance(f, Difference)]
    return differences, [f for f in found if isinstance(f, Compared)]


def require_right(path: Path) -> None:
    differences, told = verified(path)
    assert differences == []
    assert [c.index for c in told] == list(Table.open(path).properties.metadata_partitions)
    assert all(c.records > 0 and not c.note for c in told)


@pytest.mark.skipif(not SHARED, reason=SHARED_ABSENT)
@pytest.mark.parametrize(
    "table",
    [pytest.param(t, marks=() if t.zip in QUICK else pytest.mark.slow, id=t.id) for t in SHARED],
)
def test_metadata_tables_of_real_tables_say_what_the_files_say(
    table: SharedTable, tmp_path: Path
) -> None:
    require_right(unpack(table, tmp_path))


@pytest.mark.parametrize("table", COMMITTED, ids=lambda t: t.name)
def test_a_committed_metadata_table_says_what_the_files_say(
    table: CommittedTable, tmp_path: Path
) -> None:
    require_right(table.unpack(tmp_path))


@pytest.mark.slow
@pytest.mark.skipif(not LIVE.exists(), reason=LIVE_ABSENT)
@pytest.mark.parametrize("folder", sorted(LIVE.glob("*/*/table")), ids=lambda p: p.parent.name)
def test_metadata_tables_made_live_say_what_the_files_say(folder: Path) -> None:
    wrong = WRONG_BY_HUDI.get(folder.parent.name, {})
    found: dict[tuple[str, DifferenceKind], int] = {}
    for difference in verified(folder)[0]:
        place = (difference.index, difference.kind)
        found[place] = found.get(place, 0) + 1
    assert found == wrong


# ---- what is wrong is found --------------------------------------------------------------------

Cells = dict[bytes, bytes]
FOREIGN = b"zzz-a-record-that-belongs-to-nothing"


@pytest.fixture(scope="module")
def trips(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not SHARED:
        pytest.skip(SHARED_ABSENT)
    table = next(t for t in SHARED if t.zip == QUICK[0])
    return unpack(table, tmp_path_factory.mktemp("trips"))


@pytest.fixture
def copied(trips: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trips, tmp_path / "copy"))


def newest_bases(table: Path, index: str) -> Iterator[Path]:
    """The base file of each file group; the last compaction of this table left no logs to read."""
    files = sorted((table / ".hoodie/metadata" / index).glob("*.hfile"))
    newest = {f.name.split("_")[0]: f for f in sorted(files, key=lambda f: f.name.split("_")[2])}
    yield from newest.values()


def tamper(path: Path, change: Callable[[Cells], Cells]) -> None:
    file = HFile(path.read_bytes(), path=path.name)
    keys, values = (a.to_pylist() for a in file.cells())
    cells = sorted(change(dict(zip(keys, values, strict=True))).items())
    names = pa.array([k for k, _ in cells], pa.binary())
    contents = pa.array([v for _, v in cells], pa.binary())
    path.write_bytes(encode_hfile(names, contents, info={"schema": file.file_info["schema"]}))


def without_last(cells: Cells) -> Cells:
    return dict(sorted(cells.items())[:-1])


def with_foreign(cells: Cells) -> Cells:
    return cells | {FOREIGN: max(cells.items())[1]} if cells else {}


def exchanged(cells: Cells) -> Cells:
    first, *_, last = sorted(cells)
    return cells | {first: cells[last], last: cells[first]}


INDEXES = [
    "files",
    "column_stats",
    "partition_stats",
    "record_index",
    "secondary_index_rider_idx",
]


@pytest.mark.parametrize("index", INDEXES)
def test_a_record_that_is_gone_is_missed(index: str, copied: Path) -> None:
    for base in newest_bases(copied, index):
        tamper(base, without_last)
    differences, told = verified(copied, index)
    assert differences and told[-1].differences == len(differences)
    assert {d.kind for d in differences} == {DifferenceKind.MISSING}
    assert all(d.index == index and d.expected is not None for d in differences)


@pytest.mark.parametrize("index", INDEXES)
def test_a_record_that_belongs_to_nothing_is_found(index: str, copied: Path) -> None:
    for base in newest_bases(copied, index):
        tamper(base, with_foreign)
    kinds = {d.kind for d in verified(copied, index)[0]}
    assert DifferenceKind.UNEXPECTED in kinds
    groups = len(list(newest_bases(copied, index)))
    assert (DifferenceKind.MISPLACED in kinds) == (groups > 1)


@pytest.mark.parametrize("index", ["files", "column_stats", "partition_stats"])
def test_records_with_each_others_values_are_different(index: str, copied: Path) -> None:
    tamper(next(newest_bases(copied, index)), exchanged)
    differences, _ = verified(copied, index)
    assert differences and all(d.index == index for d in differences)


def test_a_key_at_another_place_is_different(copied: Path) -> None:
    bases = list(newest_bases(copied, "record_index"))
    cells: Cells = {}
    for base in bases:
        file = HFile(base.read_bytes(), path=base.name)
        keys, values = (a.to_pylist() for a in file.cells())
        cells |= dict(zip(keys, values, strict=True))
    distinct = sorted(set(cells.values()))
    assert len(distinct) > 1
    for base in bases:
        tamper(base, lambda own: {k: next(v for v in distinct if v != own[k]) for k in own})
    differences, _ = verified(copied, "record_index")
    assert {d.kind for d in differences} == {DifferenceKind.DIFFERENT}
    assert {d.key for d in differences} <= {k.decode() for k in cells}


def test_a_file_that_nobody_wrote_down_is_missing_in_the_listing_and_the_statistics(
    copied: Path,
) -> None:
    base = max(p for p in copied.rglob("*.parquet") if ".hoodie" not in p.relative_to(copied).parts)
    token = base.name.split("_")[1]
    twin = base.with_name(base.name.replace(token, "9-9-9"))
    twin.write_bytes(base.read_bytes())
    differences, _ = verified(copied, "files", "column_stats")
    assert {d.kind for d in differences} == {DifferenceKind.MISSING}
    assert {d.index for d in differences} == {"files", "column_stats"}
    assert all(twin.name in d.key for d in differences)


def test_a_file_that_is_gone_is_unexpected(copied: Path) -> None:
    base = min(p for p in copied.rglob("*.parquet") if ".hoodie" not in p.relative_to(copied).parts)
    base.unlink()
    differences, _ = verified(copied, "files", "column_stats")
    assert {d.kind for d in differences} == {DifferenceKind.UNEXPECTED}
    assert all(base.name in d.key for d in differences)


OWN = ".hoodie/metadata/.hoodie/timeline"


def test_a_metadata_table_that_is_behind_is_stale_and_its_gaps_are_told(copied: Path) -> None:
    newest = max((copied / ".hoodie/timeline").glob("*.deltacommit")).name[:17]
    for file in (copied / OWN).glob(f"{newest}*"):
        file.unlink()
    differences, _ = verified(copied, "files")
    assert (differences[0].kind, differences[0].key) == (DifferenceKind.STALE, newest)


def test_a_damaged_index_is_unreadable_and_the_others_are_verified(copied: Path) -> None:
    base = next(newest_bases(copied, "record_index"))
    data = bytearray(base.read_bytes())
    data[60] ^= 0xFF
    base.write_bytes(bytes(data))
    differences, told = verified(copied)
    assert [(d.index, d.kind) for d in differences] == [("record_index", DifferenceKind.UNREADABLE)]
    assert base.name in differences[0].key
    assert [c.index for c in told if c.differences] == ["record_index"]


def test_an_index_that_is_not_there_cannot_be_verified(trips: Path) -> None:
    with pytest.raises(OptionError, match="bloom_filters"):
        verified(trips, "bloom_filters")


def test_a_table_without_metadata_table_has_nothing_to_verify(tmp_path: Path) -> None:
    table = Table.create(tmp_path / "t", schema=pa.schema([("id", pa.string())]), key=["id"])
    assert list(table.metadata.verify()) == [] and table.metadata.describe() is None


# ---- logs that nobody was told of --------------------------------------------------------------


@pytest.mark.parametrize("by", ["its own process", "a rollback"])
def test_a_log_that_cancels_itself_is_not_missed_one_of_a_rollback_is(by: str) -> None:
    world = indexed(6, "mor")
    dead = world.write(upsert(rows("a1", n=3))).instant
    assert dead is not None
    world.clock.advance(1)
    done = roll_back_instant(access_of(world), dead).rollback
    check_listed(world)
    log = next(p for p in world.bucket.objects() if p.startswith("a/") and ".log.1_" in p)
    block = rollback_block(instant=dead if by == "its own process" else str(done), target=dead)
    late = log.replace(".log.1_", ".log.99_")
    world.storage.create_if_absent(late, block)
    found = list(Table(world.storage, clock=world.clock).metadata.verify("files"))
    missed = [f.key for f in found if isinstance(f, Difference)]
    assert missed == ([] if by == "its own process" else [late])
