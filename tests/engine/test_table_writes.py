"""Writing tables from Arrow: what readers see after each verb, and who may write."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakewright as lw
from lakewright.engine.proposal import Proposal
from lakewright.errors import (
    CancelledError,
    ConfigError,
    ConflictError,
    InputError,
    LockRequiredError,
    MetadataTableError,
    SchemaError,
    TableError,
    UnsupportedTableError,
)
from lakewright.format.properties import update_properties
from lakewright.format.records import load_commit_metadata
from lakewright.format.timeline import load_timeline
from lakewright.runtime import CancelToken, Event, SystemClock, SystemRandom
from lakewright.storage.local import LocalStorage
from lakewright.txn.states import InstantFiles
from tests.quickly import a_few_quickly

SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("city", pa.string()),
        pa.field("ts", pa.int64()),
    ]
)
EACH = pytest.mark.parametrize(
    ("version", "type_"), a_few_quickly([(6, "mor"), (6, "cow"), (8, "cow"), (8, "mor")], 2)
)


def rows(first: int, last: int, city: str = "sf") -> pa.Table:
    numbers = range(first, last)
    return pa.table(
        {"id": [f"k{i}" for i in numbers], "city": [city] * len(numbers), "ts": [*numbers]},
        schema=SCHEMA,
    )


def new_table(path: Path, version: int = 8, type_: str = "cow", **more: Any) -> lw.Table:
    chosen = {"key": ["id"], "partition": ["city"], "ordering": ["ts"], **more}
    return lw.Table.create(path, schema=SCHEMA, type=type_, version=version, **chosen)


def keys(table: lw.Table) -> list[str]:
    return sorted(table.scan(columns=["id"]).to_arrow()["id"].to_pylist())


def snapshot_of(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@EACH
def test_every_verb_gives_the_rows_it_says(tmp_path: Path, version: int, type_: str) -> None:
    table = new_table(tmp_path / "t", version, type_)
    assert table.append(rows(0, 10)).inserted == 10
    assert table.append(rows(10, 12, "ny")).files == 1
    assert len(keys(table)) == 12
    filled = table.append(rows(12, 14))
    assert filled.files == 1 and filled.inserted == 2
    assert len(table.snapshot().view(_listing(table)).groups) == 2
    table.bulk_insert(rows(20, 25))
    assert len(keys(table)) == 19
    done = table.overwrite(rows(0, 3))
    assert done.replaced_file_groups == 2
    assert keys(table) == ["k0", "k1", "k10", "k11", "k2"]
    table.delete_partition("ny")
    assert keys(table) == ["k0", "k1", "k2"]
    table.overwrite(rows(7, 9, "la"), whole_table=True)
    assert keys(table) == ["k7", "k8"]
    assert [s.requested_time for s in table.timeline.pending()] == []


def _listing(table: lw.Table) -> Any:
    listing = table.snapshot().opened.listing
    return listing.files(listing.partitions())


def test_old_rows_keep_their_commit_time_when_their_small_file_is_filled(tmp_path: Path) -> None:
    table = new_table(tmp_path / "t")
    first = table.append(rows(0, 2)).instant
    second = table.append(rows(2, 4)).instant
    found = table.scan().to_arrow().sort_by("id")
    assert found["_hoodie_commit_time"].to_pylist() == [first, first, second, second]
    assert len(set(found["_hoodie_file_name"].to_pylist())) == 1
    assert len(set(found["_hoodie_commit_seqno"].to_pylist())) == 4


def test_history_is_read_through_our_own_commits(tmp_path: Path) -> None:
    table = new_table(tmp_path / "t")
    first = table.append(rows(0, 2))
    table.overwrite(rows(5, 6))
    assert table.scan(as_of=first.instant).to_arrow().num_rows == 2
    changed = table.changes(since=first.completion_time).to_arrow()
    assert changed["id"].to_pylist() == ["k5"]


def test_new_columns_and_wider_types_evolve_the_table(tmp_path: Path) -> None:
    table = new_table(tmp_path / "t")
    table.append(rows(0, 2))
    more = (
        rows(2, 3)
        .append_column("note", pa.array(["x"]))
        .set_column(2, "ts", pa.array([1.5], pa.float64()))
    )
    table.append(more)
    found = table.scan().to_arrow().sort_by("id")
    assert found["note"].to_pylist() == [None, None, "x"]
    assert found["ts"].to_pylist() == [0.0, 1.0, 1.5]
    before = snapshot_of(tmp_path / "t")
    with pytest.raises(SchemaError, match="ts"):
        table.append(rows(3, 4).set_column(2, "ts", pa.array(["no number"])))
    assert snapshot_of(tmp_path / "t") == before


def test_rows_without_a_key_are_refused_with_a_sample(tmp_path: Path) -> None:
    table = new_table(tmp_path / "t")
    table.append(rows(0, 1))
    bad = pa.table({"id": ["a", ""], "city": ["sf", "sf"], "ts": [1, 2]})
    with pytest.raises(InputError) as refused:
        table.append(bad)
    assert "1 of 2" in refused.value.message or refused.value.context
    assert "rolled back" in str(getattr(refused.value, "__notes__", ""))
    assert keys(table) == ["k0"]


def test_a_table_with_generated_keys_gives_every_row_its_own(tmp_path: Path) -> None:
    table = new_table(tmp_path / "t", key=[], ordering=[])
    result = table.append(rows(0, 5))
    found = table.scan().to_arrow()["_hoodie_record_key"].to_pylist()
    assert len(set(found)) == 5 and all(k.startswith(f"{result.instant}_") for k in found)


def test_an_existing_table_is_not_created_again(tmp_path: Path) -> None:
    new_table(tmp_path / "t")
    with pytest.raises(TableError, match="already"):
        new_table(tmp_path / "t")


def test_a_validator_stops_a_write_that_nobody_has_seen(tmp_path: Path) -> None:
    table = new_table(tmp_path / "t")
    seen: list[int] = []

    def at_most_two(proposal: Proposal) -> None:
        seen.append(sum(b.num_rows for b in proposal.rows(["id"])))
        if seen[-1] > 2:
            raise InputError("too many rows", hint="write fewer")

    table.append(rows(0, 2), validators=[at_most_two])
    with pytest.raises(InputError, match="too many"):
        table.bulk_insert(rows(2, 7), validators=[at_most_two])
    assert seen == [2, 5] and keys(table) == ["k0", "k1"]


def test_a_cancelled_write_leaves_nothing(tmp_path: Path) -> None:
    table = new_table(tmp_path / "t")
    token = CancelToken()

    def cancel(proposal: Proposal) -> None:
        token.cancel("changed my mind")

    with pytest.raises(CancelledError):
        table.append(rows(0, 2), validators=[cancel], cancel=token)
    assert keys(table) == []
    assert list((tmp_path / "t").rglob("*.parquet")) == []


def test_a_conflict_is_retried_on_the_new_state(tmp_path: Path) -> None:
    table = new_table(tmp_path / "t")
    table.append(rows(0, 2))
    other = lw.Table.open(tmp_path / "t")
    once: list[int] = []

    def meanwhile(proposal: Proposal) -> None:
        if not once:
            once.append(1)
            other.append(rows(2, 4))

    with pytest.raises(ConflictError):
        table.append(rows(4, 6), validators=[meanwhile])
    once.clear()
    result = table.append(rows(6, 8), validators=[meanwhile], retries=1)
    assert result.attempts == 2
    assert keys(table) == sorted(["k0", "k1", "k2", "k3", "k2", "k3", "k6", "k7"])


def test_rows_that_come_once_are_kept_for_a_retry(tmp_path: Path) -> None:
    table = new_table(tmp_path / "t")
    table.append(rows(0, 2))
    other = lw.Table.open(tmp_path / "t")
    once: list[int] = []

    def meanwhile(proposal: Proposal) -> None:
        if not once:
            once.append(1)
            other.append(rows(2, 4))

    stream = pa.RecordBatchReader.from_batches(SCHEMA, iter(rows(4, 9).to_batches()))
    assert table.append(stream, validators=[meanwhile], retries=1).inserted == 5
    assert len(keys(table)) == 9


def _foreign_commit(path: Path) -> None:
    storage = LocalStorage(path)
    properties = lw.Table.open(path).properties
    files = InstantFiles(storage, properties, SystemRandom())
    last = load_timeline(storage, properties).completed().last()
    assert last is not None
    metadata = load_commit_metadata(storage, properties, last)
    from dataclasses import replace

    foreign = replace(
        metadata, partition_to_write_stats={}, extra_metadata={"schema": metadata.schema or ""}
    )
    time = str(int(last.completion_time or "0") + 1)
    files.request(time, "commit")
    files.start(time, "commit")
    files.complete(time, "commit", foreign.write(properties.version), str(int(time) + 1))


def test_a_table_that_others_write_needs_their_lock(tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = new_table(path)
    table.append(rows(0, 2))
    _foreign_commit(path)
    before = snapshot_of(path)
    with pytest.raises(LockRequiredError, match="lock"):
        table.append(rows(2, 3))
    assert snapshot_of(path) == before
    lw.Table.open(path, lock="file").append(rows(2, 3))
    lw.Table.open(path, sole_writer=True).append(rows(3, 4))
    assert len(keys(table)) == 4


def test_a_metadata_table_is_refused_or_dropped_in_the_safe_order(tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = new_table(path)
    table.append(rows(0, 2))
    storage = LocalStorage(path)
    storage.create_if_absent(".hoodie/metadata/files/x", b"1")
    for claimed, refused in (
        ("files", MetadataTableError),
        ("files,expr_index_x", UnsupportedTableError),
        ("record_index", UnsupportedTableError),
    ):
        claim = {"hoodie.table.metadata.partitions": claimed}
        update_properties(storage, claim, clock=SystemClock())
        with pytest.raises(refused, match="metadata table"):
            table.append(rows(2, 3))
    table.append(rows(2, 3), options={"hoodie.metadata.enable": "false"})
    assert table.properties.metadata_partitions == ()
    assert not (path / ".hoodie" / "metadata").exists()
    assert len(keys(table)) == 3


def test_partitions_that_are_not_there_cannot_be_deleted(tmp_path: Path) -> None:
    table = new_table(tmp_path / "t")
    table.append(pa.concat_tables([rows(0, 2), rows(2, 4, "la"), rows(4, 6, "lb")]))
    with pytest.raises(InputError, match="no partition 'xx'"):
        table.delete_partition("xx")
    table.delete_partition("l*")
    assert keys(table) == ["k0", "k1"]


def test_pairs_of_the_caller_are_kept_in_the_commit(tmp_path: Path) -> None:
    table = new_table(tmp_path / "t")
    table.append(rows(0, 1), options={"_source": "test"})
    last = table.timeline.completed().last()
    assert last is not None
    storage = LocalStorage(tmp_path / "t")
    extra = load_commit_metadata(storage, table.properties, last).extra_metadata
    assert extra["_source"] == "test"


def test_an_unknown_option_is_refused_with_the_nearest_one(tmp_path: Path) -> None:
    table = new_table(tmp_path / "t")
    with pytest.raises(ConfigError, match=r"hoodie\.parquet\.max\.file\.siz"):
        table.append(rows(0, 1), options={"hoodie.parquet.max.file.siz": "1"})


def test_the_progress_of_a_write_is_told_as_events(tmp_path: Path) -> None:
    new_table(tmp_path / "t")
    events: list[Event] = []
    lw.Table.open(tmp_path / "t", on_event=events.append).append(rows(0, 1))
    assert [e.kind for e in events if e.kind in ("write.files", "commit.done")] == [
        "write.files",
        "commit.done",
    ]


@pytest.fixture
def callback() -> Iterator[tuple[str, list[tuple[dict[str, str], Any]]]]:
    told: list[tuple[dict[str, str], Any]] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            told.append((dict(self.headers), json.loads(body)))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *args: Any) -> None:
            return None

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/commits", told
    server.shutdown()


def test_a_commit_is_told_to_its_callback_and_a_deaf_one_is_only_a_warning(
    tmp_path: Path, callback: tuple[str, list[tuple[dict[str, str], Any]]]
) -> None:
    url, told = callback
    table = new_table(tmp_path / "t")
    on = {"hoodie.write.commit.callback.on": "true"}
    where = "hoodie.write.commit.callback.http.url"
    result = table.append(rows(0, 2), options={**on, where: url})
    (headers, message) = told[0]
    assert headers["Hudi-Callback-Key"] == "hudi_write_commit_http_callback"
    assert message["commitTime"] == result.instant and message["commitActionType"] == "commit"
    assert message["hoodieWriteStat"][0]["numInserts"] == 2
    deaf = table.append(rows(2, 3), options={**on, where: "http://127.0.0.1:9/none"})
    assert deaf.inserted == 1 and "callback" in deaf.warnings[0]


def test_the_timeline_is_archived_when_it_has_grown(tmp_path: Path) -> None:
    events: list[Event] = []
    new_table(tmp_path / "t")
    table = lw.Table.open(tmp_path / "t", on_event=events.append)
    few = {
        "hoodie.keep.min.commits": "2",
        "hoodie.keep.max.commits": "3",
        "hoodie.clean.commits.retained": "1",
    }
    results = [table.append(rows(n, n + 1), options=few) for n in range(4)]
    assert "archive: 2 instants" in results[-1].services
    assert all(r.warnings == () for r in results)
    assert [e.done for e in events if e.kind == "archive.batch"] == [2]
    assert table.scan().to_arrow().num_rows == 4
