"""Streams into tables: every batch is committed once, whatever happens in between."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from lakewright.errors import ConfigError, InputError, OptionError
from lakewright.format.records import load_commit_metadata
from lakewright.runtime import Event
from lakewright.spark import SparkTable
from lakewright.spark.sink import StreamSink
from lakewright.txn.carried import SINK_KEY

COLUMNS = "id string, n bigint"


def rows(spark: SparkSession, *ids: str) -> DataFrame:
    return spark.createDataFrame([(key, n) for n, key in enumerate(ids)], COLUMNS).coalesce(1)


class Feed:
    """A folder that a stream reads, one batch for each file, and the table it goes to."""

    def __init__(self, spark: SparkSession, folder: Path, **choices: Any) -> None:
        self.spark = spark
        self.inbox, self.checkpoint = folder / "in", folder / "checkpoint"
        self.inbox.mkdir()
        self.known: list[Event] = []
        schema = rows(spark).schema
        st = SparkTable.create(spark, folder / "t", schema=schema, key=["id"], **choices)
        self.table = SparkTable.open(spark, st.uri, on_event=self._note)

    def _note(self, event: Event) -> None:
        if event.kind == "stream.batch_known":
            self.known.append(event)

    def put(self, *ids: str) -> None:
        rows(self.spark, *ids).write.mode("append").json(str(self.inbox))

    def run(self, **how: Any) -> None:
        """One run of the query over what is there."""
        chosen = {"checkpoint": self.checkpoint, "trigger": {"availableNow": True}, **how}
        query = self.table.write_stream(self.stream(), **chosen)
        query.awaitTermination()

    def stream(self) -> DataFrame:
        reader = self.spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", "1")
        return reader.json(str(self.inbox))

    def keys(self) -> list[str]:
        found = self.table.table.scan(columns=["_hoodie_record_key"]).to_arrow()[0].to_pylist()
        return sorted(found)

    def checkpoints(self) -> list[str | None]:
        """What each commit says about streams."""
        table, storage = self.table.table, self.table._ref.open()
        return [
            load_commit_metadata(storage, table.properties, i).extra_metadata.get(SINK_KEY)
            for i in table.timeline.commits().completed()
        ]


@pytest.fixture
def feed(spark: SparkSession, tmp_path: Path) -> Feed:
    return Feed(spark, tmp_path)


@pytest.mark.long
def test_batches_go_on_across_restarts(feed: Feed) -> None:
    feed.put("a", "b")
    feed.run()
    feed.put("c")
    feed.put("d")
    feed.run(operation="bulk_insert")
    feed.run()
    assert feed.keys() == ["a", "b", "c", "d"]
    assert feed.checkpoints() == [f'{{"default":"{n}"}}' for n in range(3)]
    assert not feed.known


@pytest.mark.parametrize("operation", ["append", "bulk_insert"])
@pytest.mark.slow
def test_a_batch_that_spark_did_not_note_is_not_written_again(feed: Feed, operation: str) -> None:
    feed.put("a")
    feed.put("b")
    feed.run(operation=operation)
    for note in (feed.checkpoint / "commits").glob("*1*"):
        note.unlink()  # as if Spark had died between the commit and its own note of it
    feed.put("c")
    feed.run(operation=operation)
    assert feed.keys() == ["a", "b", "c"]
    assert [event.done for event in feed.known] == [1]


@pytest.mark.slow
def test_a_batch_that_another_run_commits_meanwhile_is_given_up_under_the_lock(
    feed: Feed, spark: SparkSession
) -> None:
    again = StreamSink(feed.table._writes, "default", "bulk_insert", {})
    ran: list[int] = []

    def meanwhile(_: object) -> None:
        if not ran:
            ran.append(1)
            again.write(rows(spark, "a"), 5)

    StreamSink(feed.table._writes, "default", "bulk_insert", {"validators": [meanwhile]}).write(
        rows(spark, "a"), 5
    )
    assert feed.keys() == ["a"] and feed.checkpoints() == ['{"default":"5"}']
    assert [event.done for event in feed.known] == [5]
    assert not feed.table.table.timeline.pending().instants


@pytest.mark.slow
def test_streams_with_names_of_their_own_share_a_table(feed: Feed, tmp_path: Path) -> None:
    feed.put("a")
    feed.run(identifier="one")
    with pytest.raises(ConfigError, match="checkpoint is new"):
        feed.run(identifier="one", checkpoint=tmp_path / "other")
    feed.run(identifier="two", checkpoint=tmp_path / "other", operation="overwrite_table")
    assert feed.keys() == ["a"]
    assert feed.checkpoints()[-1] == '{"one":"0","two":"0"}'


def test_what_is_no_stream_or_no_operation_is_refused(feed: Feed, spark: SparkSession) -> None:
    with pytest.raises(InputError, match="takes a stream"):
        feed.table.write_stream(rows(spark, "a"), checkpoint=feed.checkpoint)
    with pytest.raises(OptionError, match="upsurt"):
        feed.run(operation="upsurt")
    with pytest.raises(OptionError, match=r"hoodie\.bulkinsert\.sort\.mode"):
        feed.run(options={"hoodie.bulkinsert.sort.mod": "NONE"})
