"""A program that writes on Spark while tasks and executors die, and says as JSON what came of it.

    python failing_writes.py MASTER FAILURE VERB FOLDER

Verbs: `append`, `bulk_insert`, and `files`, a bulk insert of Parquet files that workers read.
Failures: `task` (every task fails once, after it has published its file), `executor` (an executor
is killed after a file was published), `late` (an executor is killed while a file is written; the
worker below it lives on, and goes on only when the write is committed).

Imports nothing of the tests, because a driver on a cluster does not have them.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from lakewright import Table
from lakewright.spark import SparkTable, parquet_source, session, write_verbs
from lakewright.storage.resolve import StorageRef

SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.executor.memory": "1g",
    "spark.sql.shuffle.partitions": "2",
    "spark.executor.heartbeatInterval": "1h",  # a machine may be busy with other things
    "spark.network.timeout": "2h",
}
ROWS = 90
FILES = "files"
PATIENCE_S = 240


class FailingStorage:
    """A storage whose process fails around the publishing of a data file."""

    def __init__(self, inner: Any, failure: str, folder: str) -> None:
        self._inner = inner
        self._failure = failure
        self._folder = folder

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def create_from(self, path: str, write: Callable[[Any], None]) -> Any:
        """Publish a file, and fail as asked for, once for each task or once at all."""
        task = path.rpartition("/")[2].split("_")[1].split("-")[0]
        if not self._is_first(task if self._failure == "task" else "any"):
            return self._inner.create_from(path, write)
        if self._failure == "late":
            return self._inner.create_from(path, lambda sink: self._late(sink, write))
        self._inner.create_from(path, write)
        if self._failure == "executor":
            os.kill(executor(), signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)
        raise RuntimeError("injected")

    def _late(self, sink: Any, write: Callable[[Any], None]) -> None:
        for ignored in (signal.SIGHUP, signal.SIGTERM):
            signal.signal(ignored, signal.SIG_IGN)
        os.kill(executor(), signal.SIGKILL)
        wait_for(Path(self._folder, "committed"))
        try:
            write(sink)
        except BaseException as error:
            Path(self._folder, "late.part").write_text(type(error).__name__)
            raise
        finally:
            Path(self._folder, "late.part").rename(Path(self._folder, "late"))

    def _is_first(self, name: str) -> bool:
        try:
            Path(self._folder, f"failed-{name}").touch(exist_ok=False)
        except FileExistsError:
            return False
        return True


class FailingRef:
    """A reference to such a storage; the driver's own is sound."""

    def __init__(self, uri: str, failure: str, folder: str) -> None:
        self.uri = uri
        self._failure = failure
        self._folder = folder
        self._driver = os.getpid()

    def open(self) -> Any:
        """The storage, opened here."""
        inner = StorageRef(self.uri).open()
        if os.getpid() == self._driver:
            return inner
        return FailingStorage(inner, self._failure, self._folder)


def executor() -> int:
    """The Java process above this worker: the parent of the daemon that is its parent."""
    stat = Path(f"/proc/{os.getppid()}/stat").read_text()
    return int(stat.rpartition(")")[2].split()[1])


def wait_for(path: Path) -> None:
    """Wait until a file is there."""
    end = time.monotonic() + PATIENCE_S
    while not path.exists():
        if time.monotonic() > end:
            raise TimeoutError(path)
        time.sleep(0.05)


def rows(spark: SparkSession, first: int) -> DataFrame:
    """Rows of three partitions in three tasks."""
    frame = spark.range(first, first + ROWS, 1, 3)
    return frame.selectExpr("concat('k', id) AS id", "concat('c', id % 3) AS city")


def incoming(spark: SparkSession, verb: str, folder: str) -> DataFrame:
    """More rows, as they come to a verb."""
    made = rows(spark, ROWS)
    if verb != FILES:
        return made
    parquet_source.TASK_BYTES_MIN = 1
    made.write.parquet(f"{folder}/in")
    return spark.read.parquet(f"{folder}/in")


def main(master: str, failure: str, verb: str, folder: str) -> None:
    """Write soundly, then with failures; print what is there."""
    spark = session(
        "failing", master=master, config={**SETTINGS, "spark.local.dir": f"{folder}/local"}
    )
    write_verbs.INLINE_ROWS = -1
    sound = SparkTable.create(
        spark, f"{folder}/t", schema=rows(spark, 0).schema, key=["id"], partition=["city"]
    )
    sound.bulk_insert(rows(spark, 0).coalesce(1))
    ref: Any = FailingRef(sound.uri, failure, folder)
    failing = SparkTable(spark, Table.open(sound.uri), ref)
    write = failing.bulk_insert if verb == FILES else getattr(failing, verb)
    done = write(incoming(spark, verb, folder))
    late = None
    if failure == "late":
        Path(folder, "committed").touch()
        wait_for(Path(folder, "late"))
        late = Path(folder, "late").read_text()
    scan = sound.table.scan(columns=["_hoodie_record_key", "_hoodie_file_name"]).to_arrow()
    names = [f for f in Path(folder, "t").rglob("*") if f.is_file() and ".hoodie" not in f.parts]
    told = {
        "keys": sorted(scan["_hoodie_record_key"].to_pylist())
        == sorted(f"k{i}" for i in range(2 * ROWS)),
        "inserted": done.inserted,
        "files": done.files,
        "instant": done.instant,
        "failures": len(list(Path(folder).glob("failed-*"))),
        "late": late,
        "data": sorted(f.name for f in names if not f.name.startswith(".hoodie_partition")),
        "pending": len(sound.table.timeline.pending().instants),
        "markers": Path(folder, f"t/.hoodie/.temp/{done.instant}").exists(),
    }
    spark.stop()
    sys.stdout.write(json.dumps(told))


if __name__ == "__main__":
    Path(sys.argv[4]).mkdir(parents=True, exist_ok=True)
    main(*sys.argv[1:5])
